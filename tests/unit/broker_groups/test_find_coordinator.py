"""FindCoordinator over a socket, and the creation of the topic on first use."""

import asyncio

import pytest

from kafkalite_broker.groups import offsets_topic
from kafkalite_broker.server.handlers import find_coordinator
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.find_coordinator import FindCoordinatorRequest
from tests.unit.broker_groups.fakes import REF, GroupRig, group_in, use_fakes
from tests.unit.replication.rig import on_uvloop, until

FIND = 10


@pytest.fixture
def made(monkeypatch):
    return use_fakes(monkeypatch)


class Maker:
    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0
        self.go_on = asyncio.Event()

    async def ensure_offsets_topic(self, *, deadline_s):
        assert deadline_s > 0
        self.calls += 1
        await self.go_on.wait()
        if self.errors:
            raise self.errors.pop(0)


@on_uvloop
async def test_the_first_consumer_has_the_topic_made_and_the_next_ones_wait_for_it(tmp_path, made, monkeypatch):
    monkeypatch.setattr(offsets_topic, "CREATION_INTERVAL_S", 0.0)
    rig = GroupRig(tmp_path)
    maker = rig.topic_writer = Maker(BrokerError(ErrorCode.REQUEST_TIMED_OUT, "slow"))
    async with rig, rig.client() as client:
        for version in (0, 3):
            found = await client.ask(FIND, version, FindCoordinatorRequest(key="g"))
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert maker.calls == 1, "one creation at a time"
        maker.go_on.set()
        await until(lambda: not rig.groups.topic._making)
        await client.ask(FIND, 3, FindCoordinatorRequest(key="g"))
        assert maker.calls == 2, "after a failure it is tried again"
        assert rig.failures == []
        rig.lead_offsets()
        await client.ask(FIND, 3, FindCoordinatorRequest(key="g"))
        assert maker.calls == 2


@on_uvloop
async def test_the_coordinator_is_the_leader_of_the_groups_partition(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 4711)
        entries = rig.entries(0, 2, (0, 1), leader=0)
        gone = rig.entries(0, 3, (0, 2), leader=2)[2]
        rig.see_topic(REF, entries | {1: rig.entries(0, 2, (0, 1), leader=1)[1], 2: gone})
        names = [group_in(number, 3) for number in range(3)]
        first = await client.ask(FIND, 2, FindCoordinatorRequest(key=names[0], key_type=0))
        assert (first.error_code, first.node_id, first.host, first.port) == (0, 0, "127.0.0.1", rig.port)
        found = await client.ask(FIND, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[*names, names[1]]))
        assert [(each.key, each.error_code, each.node_id, each.port) for each in found.coordinators] == [
            (names[0], 0, 0, rig.port),
            (names[1], 0, 1, 4711),
            (names[2], ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1),
        ]


@on_uvloop
async def test_a_transactional_client_gives_up_at_once(tmp_path, made):
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        found = await client.ask(FIND, 3, FindCoordinatorRequest(key="t", key_type=1))
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "no transactions" in found.error_message
        batched = await client.ask(FIND, 4, FindCoordinatorRequest(key_type=7, coordinator_keys=["s"]))
        assert [each.error_code for each in batched.coordinators] == [ErrorCode.INVALID_REQUEST]


@on_uvloop
async def test_the_question_waits_a_moment_for_an_election(tmp_path, made, monkeypatch):
    monkeypatch.setattr(find_coordinator, "ELECTION_WAIT_S", 200.0)  # only the election ends it
    async with GroupRig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 4711)
        rig.see_topic(REF, rig.entries(0, 1, (0, 1), leader=1))
        rig.partitions.suspects.note(1)
        client.send(FIND, 3, FindCoordinatorRequest(key="g"))
        await asyncio.sleep(0.05)
        rig.lead_offsets(epoch=1, replicas=(0, 1))
        _, found = await client.receive(FIND, 3)
        assert (found.error_code, found.node_id) == (0, 0)
