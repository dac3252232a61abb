"""Which replicas a broker hosts, and what keeps them in step with the metadata."""

import asyncio
from dataclasses import replace

import pytest

from kafkalite_broker.log import metadata_files
from kafkalite_broker.replication.leaving import in_no_isr, leads_nothing
from kafkalite_broker.replication.suspects import SuspectedLeaders
from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import Decided, Role
from kafkalite_core.storage.errors import DiskFailure
from tests.unit.replication.rig import Rig, append, entry, on_uvloop, topic_ref, until


class Waiter:
    woken = 0

    def wake(self, driver):
        self.woken += 1


@on_uvloop
async def test_replicas_come_and_go_with_the_metadata(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead(partitions=2)
        assert (rig.partitions.led_count(), rig.partitions.behind_count()) == (2, 0)
        append(rig.driver())
        await rig.flusher.drain()
        rig.delete_topic(ref)
        with pytest.raises(BrokerError) as refused:
            rig.driver()
        assert refused.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await rig.all_set_aside()
        assert [stray.metadata.delete_seen for stray in rig.logs.strays()] == [True, True]
        assert rig.telemetry._topics == {}


def totals(rig):
    """What `/metrics` tells of all topics together."""
    return {
        sample.name: sample.value
        for metric in rig.telemetry.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and not sample.labels
    }


@on_uvloop
async def test_totals_keep_what_a_topic_counted_that_has_gone(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        counters = rig.telemetry.topic("orders")
        counters.produced()
        counters.appended(3, 100)
        counters.fetched(40, follower=False)
        counters.fetched(50, follower=True)
        counters.fetch_failed()
        counters.isr_changed(shrunk=1, expanded=1)
        rig.telemetry.produce_failed("orders", ErrorCode.CORRUPT_MESSAGE)
        before = totals(rig)
        assert all(value for name, value in before.items() if name.startswith("kafka_server_"))
        rig.delete_topic(ref)
        assert totals(rig) == before
        await rig.lead(topic_ref(uid="u2"))
        rig.telemetry.topic("orders").appended(1, 10)
        assert totals(rig)["kafka_server_brokertopicmetrics_messagesin_total"] == 4
        of_topic = {"topic": "orders"}
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        assert rig.telemetry.registry.get_sample_value(name, of_topic) == 1, "another topic"


@on_uvloop
async def test_acknowledgements_wait_for_the_disk_until_the_operator_reckons_with_less(tmp_path):  # S4
    async with Rig(tmp_path) as rig:
        relaxed = {"flush.messages": "1000"}
        ref = await rig.lead(config=relaxed)
        driver = rig.driver()
        assert append(driver).answers == []
        await rig.flusher.drain()
        rig.see_topic(ref, {0: driver.replica.partition}, config=relaxed, flush_lag_known=True)
        assert append(driver).answers == [], "it reckons with one that was tightened, and may be about to end that"
        await rig.flusher.drain()
        rig.see_topic(ref, {0: driver.replica.partition}, config=relaxed, flush_lag_known=True, flush_may_lag=True)
        token = append(driver)
        assert [answer.error_code for answer in token.answers] == [ErrorCode.NONE], "before any flush"
        rig.see_topic(ref, {0: driver.replica.partition}, flush_lag_known=True)
        assert append(driver).answers == [], "a tightening is in force at once"
        assert driver.replica._state.relaxed_flush, "entries are judged as the operator judges them"
        rig.see_topic(ref, {0: driver.replica.partition})
        assert not driver.replica._state.relaxed_flush


@on_uvloop
async def test_that_a_log_has_relaxed_flush_is_noted_for_who_finds_it_without_its_topic(tmp_path):  # S10
    async with Rig(tmp_path) as rig:
        relaxed = {"flush.messages": "1000"}
        ref = await rig.lead(config=relaxed)
        rig.see_topic(ref, {0: rig.driver().replica.partition}, config=relaxed, flush_may_lag=True)
        append(rig.driver())
        rig.logs.checkpoint({})
    async with Rig(tmp_path, epoch=2) as rig:
        ((log, _),) = rig.logs.unclaimed()
        assert rig.logs.set_aside(log, delete_seen=False).metadata.relaxed_flush


@on_uvloop
async def test_a_topic_of_the_same_name_with_another_id_begins_empty(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        append(rig.driver())
        old = rig.driver()
        waiter = Waiter()
        old.wait(waiter, for_log_end=False)
        rig.delete_topic(ref)
        await rig.lead(topic_ref(uid="u2"))
        assert waiter.woken
        await rig.all_set_aside()
        assert rig.driver() is not old
        assert rig.driver().log.end_offset == 0
        assert old.log.closed


@on_uvloop
async def test_a_topic_of_the_same_name_waits_until_a_full_disk_lets_the_old_data_be_set_aside(tmp_path, monkeypatch):
    def write(_disk, directory, _metadata, **_named):
        raise StorageError(f"no space for {directory}")

    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        append(rig.driver())
        monkeypatch.setattr(metadata_files, "write_metadata", write)
        rig.delete_topic(ref)
        await rig.lead(topic_ref(uid="u2"))
        for _ in range(2):
            rig.partitions.tick()
            await rig.all_set_aside()
        assert list(rig.partitions.drivers()) == []
        assert rig.full
        monkeypatch.undo()
        rig.partitions.tick()
        await rig.all_set_aside()
        assert rig.driver().log.end_offset == 0
        assert rig.driver().is_leader
        assert [stray.metadata.delete_seen for stray in rig.logs.strays()] == [True]


@on_uvloop
async def test_an_object_made_again_with_the_same_topic_id_keeps_the_data(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        append(rig.driver())
        rig.cache.delete_topic(ref.uid)
        again = topic_ref(uid="u2", topic_id=ref.topic_id)
        rig.see_topic(again, {0: entry(0, replicas=(0,), epoch=1, partition_epoch=1)})
        assert rig.driver().ref == again
        assert rig.driver().log.end_offset == 1
        assert rig.driver().is_leader


@on_uvloop
async def test_no_replica_here_is_another_answer_than_no_partition(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_topic(topic_ref(), {0: entry(1, replicas=(1,))})
        for number, code in ((0, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
            with pytest.raises(BrokerError) as refused:
                rig.partitions.leader_of("orders", number)
            assert refused.value.error_code == code


@pytest.mark.parametrize("error", [StorageError("full"), ZeroDivisionError()])
def test_what_keeps_one_partition_from_following_the_metadata_is_tried_again(tmp_path, monkeypatch, error):
    @on_uvloop
    async def run():
        async with Rig(tmp_path) as rig:
            obtain = rig.logs.obtain

            def fail(ref, number, *arguments, **named):
                if number == 0:
                    raise error
                return obtain(ref, number, *arguments, **named)

            monkeypatch.setattr(rig.logs, "obtain", fail)
            await rig.lead(partitions=2)
            assert [driver.number for driver in rig.partitions.drivers()] == [1]
            rig.partitions.tick()
            assert rig.full == ([True] if isinstance(error, StorageError) else [])
            monkeypatch.undo()
            rig.partitions.tick()
            assert rig.driver().is_leader
            assert not rig.partitions._unsettled

    run()


@on_uvloop
async def test_a_disk_failure_while_following_the_metadata_is_fatal(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig:

        def fail(*_, **__):
            raise DiskFailure("EIO")

        monkeypatch.setattr(rig.logs, "obtain", fail)
        await rig.lead()
        assert [type(error) for error in rig.fatal] == [DiskFailure]


@on_uvloop
async def test_a_defect_in_one_partition_does_not_stop_the_ticks_and_flushes_of_the_others(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig:
        await rig.lead(partitions=3)
        ticked = []

        def fail(*_):
            raise ZeroDivisionError

        monkeypatch.setattr(rig.driver(number=1), "step", fail)
        for number in (0, 2):
            driver = rig.driver(number=number)
            monkeypatch.setattr(driver, "tick", lambda number=number: ticked.append(number))
        rig.partitions.tick()
        rig.partitions.log_flushed(rig.driver(number=1).log)
        assert sorted(ticked) == [0, 2]
        assert not rig.fatal


@on_uvloop
async def test_a_full_disk_makes_the_broker_look_for_room(tmp_path):
    async with Rig(tmp_path) as rig:
        await rig.lead()
        rig.driver()._decided(Decided(event="storage_full", facts={}))
        rig.driver()._decided(Decided(event="replica_role", facts={}))
        assert rig.full == [True]


@on_uvloop
async def test_an_answer_that_fails_does_not_cost_the_answers_after_it(tmp_path, monkeypatch):
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        rig.see_topic(topic_ref(), {0: entry(0)})
        tokens = [append(rig.driver(), acks=-1) for _ in range(2)]
        for token in tokens:
            token.answers = []
        rig.delete_topic(topic_ref())
        assert [[answer.error_code for answer in token.answers] for token in tokens] == [
            [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        ] * 2


@on_uvloop
async def test_a_late_proposal_answer_for_a_replica_that_went_is_ignored(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        ref = topic_ref()
        rig.see_topic(ref, {0: entry(0)})
        rig.partitions.hand_over_all("test")
        assert len(rig.writer.proposals) == 1
        rig.delete_topic(ref)
        rig.writer.apply()
        assert not list(rig.partitions.drivers())


@on_uvloop
async def test_hand_over_ends_when_nothing_is_led(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        rig.see_topic(topic_ref(), {0: entry(0)})
        partitions = rig.partitions
        assert not await leads_nothing(partitions, 0.0)
        waiting = asyncio.create_task(leads_nothing(partitions, 10.0))
        rig.partitions.hand_over_all("test")
        await asyncio.sleep(0)
        rig.writer.apply()
        assert await waiting
        assert rig.driver().replica.role is Role.FOLLOWER
        assert await leads_nothing(partitions, 0.0)


@on_uvloop
async def test_a_follower_is_awaited_as_long_as_its_leader_has_it_in_the_isr(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        partitions = rig.partitions
        both = entry(1)
        alone = replace(both, isr=both.isr[1:], partition_epoch=1)
        rig.see_topic(topic_ref(), {0: both, 1: alone, 2: entry(-1), 3: entry(0)})
        assert (partitions.awaited_count(), partitions.behind_count()) == (1, 1)
        waiting = asyncio.create_task(in_no_isr(partitions, 10.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        rig.see_topic(topic_ref(), {0: alone, 1: alone, 2: entry(-1), 3: entry(0)})
        assert await waiting
        assert partitions.awaited_count() == 0


# ---------------------------------------------------------------------------------------------------- suspects


@on_uvloop
async def test_suspicion_ends_with_the_election_with_time_and_with_another_incarnation(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("kafkalite_broker.replication.suspects.monotonic", lambda: clock[0])
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        rig.see_topic(topic_ref(), {0: entry(1, replicas=(1,))})
        suspects = SuspectedLeaders(rig.cache)
        assert not suspects.concern(["orders"])
        suspects.note(1)
        assert suspects.concern(["orders"])
        assert not suspects.concern(["other"])
        clock[0] += 1.5
        assert not suspects.concern(["orders"])
        assert not suspects
        suspects.note(1)
        rig.see_broker(1, 1, epoch=2)
        assert not suspects.concern(["orders"])


@on_uvloop
async def test_several_wait_for_the_same_election(tmp_path):
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        rig.see_topic(topic_ref(), {0: entry(1, replicas=(0, 1))})
        suspects = rig.partitions.suspects
        suspects.note(1)
        waiting = [asyncio.create_task(suspects.settled(["orders"], 10.0)) for _ in range(3)]
        waiting[0].cancel()
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting[1:])
        rig.see_topic(topic_ref(), {0: entry(0, epoch=1, partition_epoch=1)})
        await asyncio.gather(*waiting[1:])
        await suspects.settled(["orders"], 0.0)
        await until(lambda: waiting[0].cancelled())
