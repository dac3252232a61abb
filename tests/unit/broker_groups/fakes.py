"""A coordinator that does what the test says, and a rig with `__consumer_offsets`."""

from __future__ import annotations

from types import SimpleNamespace

from kafkalite_broker.groups import led_partition
from kafkalite_core.groups.events import Answered, Requested, Resigned, Restoring
from kafkalite_core.groups.refusals import refusal
from kafkalite_core.groups.routing import partition_for
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.heartbeat import HeartbeatRequest
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, parse_batch_header
from kafkalite_core.replica.events import FetchRequested, ProduceRequested
from tests.unit.replication.rig import Rig, entry, topic_ref, until

OFFSETS = "__consumer_offsets"
REF = topic_ref(OFFSETS)


class FakeCoordinator:
    """Records events; `react` makes the effects."""

    made: list[FakeCoordinator]
    groups_in_log = 0

    def __init__(self, config, metadata):
        self.config = config
        self.events = []
        self.deadline_ms = None
        self.waiting = []
        self.react = lambda event: []
        self.statistics = SimpleNamespace(offset_commits=0, rebalances_completed=0, offsets_expired=0)
        self.states = {}
        self.groups_left = self.groups_in_log
        FakeCoordinator.made.append(self)

    def step(self, now_ms, event):
        self.events.append(event)
        if isinstance(event, Restoring):
            self.groups_left -= event.groups
        if isinstance(event, Requested):
            self.waiting.append(event)
        if isinstance(event, Resigned):
            return self.answer_all(ErrorCode.NOT_COORDINATOR)
        return self.react(event)

    def close(self):
        pass

    def answer_all(self, code=0):
        waiting, self.waiting = self.waiting, []
        return [Answered(token=one.token, response=refusal(one.request, one.api_version, code)) for one in waiting]

    @property
    def unrestored(self):
        return self.groups_left > 0

    def next_deadline_ms(self):
        return self.deadline_ms

    def counts(self):
        return self.states

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def use_fakes(monkeypatch):
    FakeCoordinator.made = []
    monkeypatch.setattr(led_partition, "Coordinator", FakeCoordinator)
    return FakeCoordinator.made


class Asked:
    """A token that remembers its answer."""

    def __init__(self):
        self.response = None
        self.error = None

    def answer(self, response):
        assert self.response is None
        self.response = response

    def failed(self, error):
        self.error = error


def heartbeat(group="g"):
    return Requested(token=Asked(), api_version=4, request=HeartbeatRequest(group_id=group, member_id="m"))


class GroupRig(Rig):
    """A broker with `__consumer_offsets`, and replica 1 played by the test."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.failures = []

    def background(self, work):
        async def watched():
            try:
                await work
            except Exception as error:
                self.failures.append(error)

        super().background(watched())

    def lead_offsets(self, ref=REF, *, epoch=0, partitions=1, replicas=(0,), **changes):
        self.see_broker(0, self.port)
        for other in replicas[1:]:
            self.see_broker(other, 1)
        self.see_topic(ref, self.entries(epoch, partitions, replicas, leader=0), **changes)

    def lose_offsets(self, ref=REF, *, epoch, partitions=1, replicas=(0, 1)):
        self.see_topic(ref, self.entries(epoch, partitions, replicas, leader=1))

    def entries(self, epoch, partitions, replicas, leader):
        return {
            number: entry(leader, epoch=epoch, partition_epoch=epoch, replicas=replicas) for number in range(partitions)
        }

    def offsets(self, number=0):
        return self.driver(OFFSETS, number)

    def write(self, *pairs, number=0, **batch):
        """Append records as an earlier leader would have."""

        class Token:
            def produce_answered(self, answer):
                assert answer.error_code == 0, answer

        data = build_batch([SimpleRecord(1000, key, value) for key, value in pairs], **batch)
        self.offsets(number).step(
            ProduceRequested(
                token=Token(), acks=0, batch=data, header=parse_batch_header(data), received_ms=0.0,
                deadline_ms=1e18, wall_ms=1,
            )
        )  # fmt: skip

    def follower_fetches(self, number=0, *, offset=None):
        """Replica 1 has on its disk what the leader has."""
        driver = self.offsets(number)
        end = driver.log.end_offset if offset is None else offset
        driver.fetch(
            FetchRequested(
                token=None, replica_id=1, replica_epoch=1, current_leader_epoch=driver.replica.leader_epoch,
                fetch_offset=end, last_fetched_epoch=driver.log.epochs.latest_epoch if end else -1,
            )
        )  # fmt: skip


def group_in(partition, partitions):
    """A group id that belongs to that partition."""
    return next(name for name in (f"g{n}" for n in range(1000)) if partition_for(name, partitions) == partition)


def led(rig, number=0):
    """The led partition."""
    return rig.groups._led[number]


async def loaded(rig, number=0):
    """The coordinator, once it serves."""
    await until(lambda: number in rig.groups._led and led(rig, number).loaded)
    return led(rig, number).coordinator


async def serving(rig, *numbers):
    """The coordinators of these partitions, once they serve."""
    return [await loaded(rig, number) for number in numbers]


def answer_with(coordinator, respond):
    """Have requests answered with what `respond` makes of them."""
    coordinator.react = lambda event: (
        [Answered(token=event.token, response=respond(event.request))] if isinstance(event, Requested) else []
    )
