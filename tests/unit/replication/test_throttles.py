"""The throttle of replication between two brokers over real sockets (KIP-73), and replicas that moved away."""

import asyncio
from dataclasses import replace
from time import monotonic

import pytest

from kafkalite_broker.clock import now_ms
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica.events import Role
from kafkalite_core.replica.throttle import IN_SYNC_DEBT_S
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref, until
from tests.unit.replication.test_fetcher import both_see
from tests.unit.server.client_requests import produce

RATE = 400_000
BATCH = batch(b"x" * 50_000)
BATCHES = 24


def catching_up(leader=0):
    """Broker 1 is a replica of the leader and not in sync."""
    return replace(entry(leader), isr=(IsrEntry(leader, 1),))


async def filled(leader, follower, ref, partitions, config):
    """The leader has 1.2 MB before the follower hears of the partitions."""
    leader.see_broker(0, leader.port)
    leader.see_broker(1, follower.port)
    leader.see_topic(ref, partitions, config=config)
    async with leader.client() as client:
        for _ in range(BATCHES):
            (part,) = await produce(client, (0, BATCH), acks=1)
            assert part.error_code == 0
    await leader.flusher.drain()
    return monotonic()


def follow(leader, follower, ref, partitions, config):
    follower.see_broker(0, leader.port)
    follower.see_broker(1, follower.port)
    follower.see_topic(ref, partitions, config=config)


async def copied_s(leader, follower, ref, partitions, config):
    await filled(leader, follower, ref, partitions, config)
    begun = monotonic()
    follow(leader, follower, ref, partitions, config)
    await until(lambda: follower.driver().log.end_offset == BATCHES, 60)
    return monotonic() - begun


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_is_copied_at_the_rate(tmp_path, side):
    @on_uvloop
    async def run():
        async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower:
            rig = leader if side == "leader" else follower
            rig.config[f"{side}.replication.throttled.rate"] = str(RATE)
            rig.partitions.reconfigure(rig.config)
            config = {f"{side}.replication.throttled.replicas": f"0:{rig.id}"}
            leader.partitions._fetch_settings.partition_max_bytes = 100_000
            follower.partitions._fetch_settings.partition_max_bytes = 100_000
            took = await copied_s(leader, follower, topic_ref(), {0: catching_up()}, config)
            # 1.2 MB at 0.4 MB/s, of which the first 0.4 MB (a burst) and one answer go at once.
            assert 1.2 < took < 60, took

    run()


@on_uvloop
async def test_a_replica_in_sync_is_not_throttled_and_neither_are_others(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower:
        for rig in (leader, follower):
            rig.config |= {f"{side}.replication.throttled.rate": "1000" for side in ("leader", "follower")}
            rig.partitions.reconfigure(rig.config)
        every = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
        ref = topic_ref()
        both_see(leader, follower, ref, {0: entry(0, min_isr=2)})
        for rig in (leader, follower):
            rig.see_topic(ref, {0: entry(0, min_isr=2)}, config=every)
        async with leader.client() as client:
            begun = monotonic()
            for _ in range(6):
                (part,) = await produce(client, (0, BATCH))
                assert part.error_code == 0
            assert monotonic() - begun < 60, "300 kB at 1 kB/s would take five minutes"
        other = topic_ref("other")
        both_see(leader, follower, other, {0: catching_up()})
        async with leader.client() as client:
            await produce(client, (0, BATCH), topic="other", acks=1)
        await until(lambda: follower.driver("other").log.end_offset == 1, 5)


@on_uvloop
async def test_writes_to_replicas_in_sync_hold_those_that_catch_up_back_for_seconds_and_not_for_hours(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower:
        sides = ("leader", "follower")
        for rig in (leader, follower):
            rig.config |= {f"{side}.replication.throttled.rate": "1000" for side in sides}
            rig.partitions.reconfigure(rig.config)
        every = {f"{side}.replication.throttled.replicas": "*" for side in sides}
        ref, late = topic_ref(), topic_ref("late")
        both_see(leader, follower, ref, {0: entry(0, min_isr=2)})
        both_see(leader, follower, late, {0: catching_up()})
        for rig in (leader, follower):
            rig.see_topic(ref, {0: entry(0, min_isr=2)}, config=every)
            rig.see_topic(late, {0: catching_up()}, config=every)
        async with leader.client() as client:
            for _ in range(6):
                (part,) = await produce(client, (0, BATCH))
                assert part.error_code == 0
        now = now_ms()
        for rig in (leader, follower):  # 300 kB at 1 kB/s would be paid for in five minutes
            throttles = rig.partitions.throttles
            throttles._clock = lambda: now + 1000 * IN_SYNC_DEBT_S + 1000
        assert not leader.partitions.throttles.withholds(leader.driver("late"), 1)
        assert not follower.partitions.throttles.wait_ms(follower.driver("late"))


@on_uvloop
async def test_a_throttle_that_is_lifted_ends_the_wait(tmp_path):
    async with Rig(tmp_path, 0) as leader, Rig(tmp_path, 1) as follower:
        config = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
        for rig, side in ((leader, "leader"), (follower, "follower")):
            rig.config[f"{side}.replication.throttled.rate"] = "0"
            rig.partitions.reconfigure(rig.config)
        ref, partitions = topic_ref(), {0: catching_up()}
        await filled(leader, follower, ref, partitions, config)
        follow(leader, follower, ref, partitions, config)
        await asyncio.sleep(0.3)
        assert follower.driver().log.end_offset == 0
        for rig in (leader, follower):
            rig.config.clear()
            rig.partitions.reconfigure(rig.config)
        await until(lambda: follower.driver().log.end_offset == BATCHES, 60)


# ------------------------------------------------------------------------------------------------ moved away


@on_uvloop
async def test_data_of_a_replica_that_moved_away_go_after_an_hour_and_those_of_a_lost_topic_do_not(tmp_path):  # 13972
    async with Rig(tmp_path, 0) as rig:
        ref, lost = topic_ref(), topic_ref("lost")
        await rig.lead(ref)
        await rig.lead(lost)
        elsewhere = replace(entry(1, replicas=(1, 2)), leader_epoch=1, partition_epoch=1)
        rig.see_topic(ref, {0: elsewhere})
        rig.delete_topic(lost)
        await rig.all_set_aside()
        flags = {s.metadata.topic: (s.metadata.moved_away, s.metadata.delete_seen) for s in rig.logs.strays()}
        assert flags == {"orders": (True, False), "lost": (False, True)}
        # It comes back: the same data, an ordinary log again.
        rig.see_topic(ref, {0: replace(entry(1, replicas=(1, 0)), leader_epoch=2, partition_epoch=2)})
        assert rig.driver().replica.role is Role.FOLLOWER
        assert [stray.metadata.topic for stray in rig.logs.strays()] == ["lost"]
        assert not rig.logs.metadata(rig.driver().log).moved_away
