"""What a broker knows of its partitions and notes on the disk, and what it does when the store shows less (S11)."""

from dataclasses import replace

import pytest

from kafkalite_core.membership.metadata_cache import Sighting
from kafkalite_core.model.cluster import Broker
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.partition import IsrEntry, Topic
from kafkalite_core.model.topic import Holding
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import Role
from tests.unit.replication.rig import Rig, append, entry, on_uvloop, topic_ref, until


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
        await rig.all_set_aside()
        show_list(rig, ref, {0: entry(1, replicas=(1,), epoch=2, partition_epoch=5)})
        (holding,) = rig.partitions.holdings()
        assert (holding.leader_epoch, holding.partition_epoch, holding.log_epoch, holding.end_offset) == (3, 9, 3, 1)
        assert rig.logs.strays() == []
        rig.see_topic(ref, {0: entry(1, replicas=(1,), epoch=4, partition_epoch=10)})
        assert rig.partitions.holdings() == ()
        with pytest.raises(BrokerError):
            rig.driver()
        await rig.all_set_aside()
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
        await rig.all_set_aside()
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
        await rig.all_set_aside()
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


@on_uvloop
async def test_a_leader_notes_what_it_has_changed_itself_before_the_watch_shows_it(tmp_path):  # S10, S11
    """The topic may be lost, or the store go back, before it does: then the log's metadata tell who was in sync."""
    async with Rig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        ref = topic_ref()
        before = entry(0)
        rig.see_topic(ref, {0: before})
        rig.partitions.hand_over_all("test")
        rig.writer.apply()
        changed = rig.driver().replica.partition
        rig.delete_topic(ref)
        await rig.all_set_aside()
        (stray,) = rig.logs.strays()
        assert (stray.metadata.isr, stray.metadata.isr_epoch) == (changed.isr, changed.partition_epoch)
        assert changed.partition_epoch > before.partition_epoch
