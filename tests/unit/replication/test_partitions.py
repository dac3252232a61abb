"""Which replicas a broker hosts, and what keeps them in step with the metadata."""

import asyncio
from dataclasses import replace

import pytest

from kafkalite_broker.log import strays
from kafkalite_broker.replication.suspects import SuspectedLeaders
from kafkalite_core.membership.metadata_cache import Sighting
from kafkalite_core.model.cluster import Broker
from kafkalite_core.model.errors import BrokerError, StorageError
from kafkalite_core.model.partition import IsrEntry, Topic
from kafkalite_core.model.topic import Holding
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import parse_batch_header
from kafkalite_core.replica.events import Decided, ProduceRequested, Role
from kafkalite_core.storage.errors import DiskFailure
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref, until


def append(driver, acks=1):
    class Token:
        answers = []

        def produce_answered(self, answer):
            self.answers.append(answer)

    data = bytearray(batch())
    token = Token()
    driver.step(
        ProduceRequested(
            token=token, acks=acks, batch=data, header=parse_batch_header(data), deadline_ms=1e18, wall_ms=1
        )
    )
    return token


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
        assert [stray.metadata.delete_seen for stray in rig.logs.strays()] == [True, True]
        assert rig.telemetry._topics == {}


@on_uvloop
async def test_acknowledgements_wait_for_the_disk_until_the_operator_reckons_with_less(tmp_path):  # S4
    async with Rig(tmp_path) as rig:
        relaxed = {"flush.messages": "1000"}
        ref = await rig.lead(config=relaxed)
        driver = rig.driver()
        assert append(driver).answers == []
        await rig.flusher.drain()
        rig.see_topic(ref, {0: driver.replica.partition}, config=relaxed, flush_lag_known=True)
        token = append(driver)
        assert [answer.error_code for answer in token.answers] == [ErrorCode.NONE], "before any flush"
        rig.see_topic(ref, {0: driver.replica.partition}, flush_lag_known=True)
        assert append(driver).answers == [], "a tightening is in force at once"
        assert driver.replica._state.relaxed_flush, "entries are judged as the operator judges them"
        rig.see_topic(ref, {0: driver.replica.partition})
        assert not driver.replica._state.relaxed_flush


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
        monkeypatch.setattr(strays, "write_metadata", write)
        rig.delete_topic(ref)
        await rig.lead(topic_ref(uid="u2"))
        rig.partitions.tick()
        assert list(rig.partitions.drivers()) == []
        monkeypatch.undo()
        rig.partitions.tick()
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
        assert not await rig.partitions.leads_nothing(0.0)
        waiting = asyncio.create_task(rig.partitions.leads_nothing(10.0))
        rig.partitions.hand_over_all("test")
        await asyncio.sleep(0)
        rig.writer.apply()
        assert await waiting
        assert rig.driver().replica.role is Role.FOLLOWER
        assert await rig.partitions.leads_nothing(0.0)


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


# ---------------------------------------------------------------- the store went back in time (S11)


def show_list(rig, ref, partitions):
    """A consistent list, as after a watch that broke."""
    rig.version += 1
    topic = Topic(ref=ref, generation=1, resource_version="1", controller_epoch=0, partitions=partitions)
    change = rig.cache.list_topics([Sighting(value=topic, resource_version=str(rig.version))])
    rig.partitions.partitions_changed(change.partitions)


@on_uvloop
async def test_while_the_store_is_behind_nothing_is_acknowledged_deleted_or_set_aside(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        rig.see_topic(ref, {0: entry(0, replicas=(0,), epoch=3, partition_epoch=9)})
        driver = rig.driver()
        append(driver)
        await rig.flusher.drain()
        assert rig.partitions.holdings() == ()
        assert driver.log in rig.partitions.deletable_up_to()
        show_list(rig, ref, {0: entry(1, replicas=(1,), epoch=2, partition_epoch=5)})
        assert rig.driver() is driver, "not set aside, though the list has its replica elsewhere"
        assert driver.replica.role is Role.OFFLINE
        assert append(driver).answers[-1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert rig.partitions.deletable_up_to() == {}
        (holding,) = rig.partitions.holdings()
        assert (holding.leader_epoch, holding.partition_epoch, holding.log_epoch, holding.end_offset) == (3, 9, 3, 1)
        rig.see_topic(ref, {0: entry(0, replicas=(1, 0), epoch=4, partition_epoch=10)})
        assert driver.replica.role is Role.LEADER
        assert rig.partitions.holdings() == ()


@on_uvloop
async def test_who_gave_its_replica_away_reports_when_the_store_shows_that_it_has_one(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        append(rig.driver())
        await rig.flusher.drain()
        rig.see_topic(ref, {0: entry(1, replicas=(1,), epoch=3, partition_epoch=9)})
        with pytest.raises(BrokerError):
            rig.driver()
        show_list(rig, ref, {0: entry(0, replicas=(0,), epoch=2, partition_epoch=5)})
        (holding,) = rig.partitions.holdings()  # for which the operator waits
        assert (holding.leader_epoch, holding.partition_epoch, holding.end_offset) == (3, 9, 1)
        assert rig.driver().replica.role is Role.OFFLINE
        rig.see_topic(ref, {0: entry(1, replicas=(1, 2), epoch=4, partition_epoch=10)})
        assert rig.partitions.holdings() == ()
        with pytest.raises(BrokerError):
            rig.driver()


@on_uvloop
async def test_who_set_its_replica_aside_takes_it_back_when_the_store_shows_less_than_that_knows(tmp_path):
    """The topic was deleted and is back as it was before it was moved here: those who report say who was in sync."""
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        rig.see_topic(ref, {0: entry(0, replicas=(0,), epoch=3, partition_epoch=9)})
        append(rig.driver())
        await rig.flusher.drain()
        rig.partitions.partitions_changed(rig.cache.delete_topic(ref.uid).partitions)
        show_list(rig, ref, {0: entry(1, replicas=(1,), epoch=2, partition_epoch=5)})
        (holding,) = rig.partitions.holdings()
        assert (holding.leader_epoch, holding.partition_epoch, holding.log_epoch, holding.end_offset) == (3, 9, 3, 1)
        assert rig.logs.strays() == []
        rig.see_topic(ref, {0: entry(1, replicas=(1,), epoch=4, partition_epoch=10)})
        assert rig.partitions.holdings() == ()
        with pytest.raises(BrokerError):
            rig.driver()
        rig.see_topic(ref, {0: entry(1, replicas=(1,), epoch=4, partition_epoch=11)})
        assert len(rig.logs.strays()) == 1, "what it knows is below what the store shows"


@on_uvloop
async def test_who_is_to_lead_a_topic_that_came_back_in_an_epoch_that_its_log_has_asks_for_another(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        append(rig.driver())
        await rig.flusher.drain()
        assert rig.partitions.holdings() == ()
        as_it_was = rig.cache.partition(ref, 0)
        rig.partitions.partitions_changed(rig.cache.delete_topic(ref.uid).partitions)
        with pytest.raises(BrokerError):
            rig.driver()
        show_list(rig, ref, {0: as_it_was})
        assert rig.driver().replica.role is Role.OFFLINE, "somebody may have led in that epoch since"
        (holding,) = rig.partitions.holdings()
        assert (holding.leader_epoch, holding.end_offset, holding.agrees) == (as_it_was.leader_epoch, 1, False)
        above = entry(0, replicas=(0,), epoch=as_it_was.leader_epoch + 1, partition_epoch=as_it_was.partition_epoch + 1)
        rig.see_topic(ref, {0: above})
        assert rig.driver().is_leader
        assert rig.partitions.holdings() == ()


@on_uvloop
async def test_a_restarted_broker_remembers_by_its_disk(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        rig.see_topic(ref, {0: entry(0, replicas=(0,), epoch=3, partition_epoch=9)})
        append(rig.driver())
        await rig.flusher.drain()
        rig.logs.checkpoint(rig.partitions.high_watermarks())
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_topic(ref, {0: entry(1, replicas=(1,), epoch=2, partition_epoch=5)})
        assert rig.driver().replica.store_went_back, "hosted, though the store knows no replica here"
        assert [holding.end_offset for holding in rig.partitions.holdings()] == [1]
        rig.see_topic(ref, {0: entry(1, replicas=(1,), epoch=4, partition_epoch=10)})
        with pytest.raises(BrokerError):
            rig.driver()
        (stray,) = rig.logs.strays()
        assert (stray.metadata.log_epoch, stray.metadata.end_offset) == (3, 1)


@on_uvloop
async def test_who_knows_no_more_than_the_store_reports_when_others_ask(tmp_path):
    async with Rig(tmp_path) as rig:
        ref = await rig.lead()
        append(rig.driver())
        await rig.flusher.drain()
        other = Holding(
            topic=ref.name, topic_id=ref.topic_id, partition=0, leader_epoch=9, partition_epoch=9, log_epoch=9,
            end_offset=7,
        )  # fmt: skip
        rig.cache.see_broker(Sighting(value=Broker(id=1, uid="b-1", holdings=(other,)), resource_version="99"))
        (holding,) = rig.partitions.holdings()
        assert (holding.leader_epoch, holding.end_offset) == (0, 1)
        assert rig.driver().is_leader, "it goes on until the operator has decided"


@on_uvloop
async def test_what_contradicts_is_refused_also_after_a_restart(tmp_path):  # S11
    """The store was restored and written on; the disk notes the epochs of what was refused, not that it was taken."""
    ref = topic_ref()
    known = entry(0, epoch=7, partition_epoch=30, replicas=(0, 1, 2))
    known = replace(known, isr=(IsrEntry(0, 1), IsrEntry(1, 1)))
    other = replace(known, leader=2, partition_epoch=31, isr=(IsrEntry(2, 1),))
    for epoch, shown in ((1, (known, other)), (2, (other,))):
        async with Rig(tmp_path, 1, epoch=epoch) as rig:
            for broker_id in range(3):
                rig.see_broker(broker_id, 1)
            for each in shown:
                rig.see_topic(ref, {0: each})
            await until(lambda rig=rig: rig.driver().replica.store_went_back)
            assert rig.driver().replica.role is Role.OFFLINE
            (report,) = rig.partitions.holdings()
            assert (report.isr, report.isr_epoch, report.partition_epoch) == (known.isr, 30, 31)
            rig.logs.checkpoint({})
    async with Rig(tmp_path, 1, epoch=3) as rig:
        for broker_id in range(3):
            rig.see_broker(broker_id, 1)
        rig.see_topic(ref, {0: replace(other, leader_epoch=8, partition_epoch=32)})
        await until(lambda: rig.driver().replica.role is Role.FOLLOWER)
        assert not rig.driver().replica.store_went_back, "one above all that it knows is a recovery"
