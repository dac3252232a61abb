"""Single rules of the metadata cache; the property tests cover their mixture."""

from dataclasses import replace

import pytest

from kafkalite_core.membership.metadata_cache import MetadataCache, Sighting
from kafkalite_core.membership.objects import TOMBSTONES_MAX, Held, Objects
from kafkalite_core.model.cluster import Broker, Registration
from kafkalite_core.model.partition import IsrEntry, Partition, Topic, TopicRef
from kafkalite_core.model.topic import Holding


def entry(epoch):
    return Partition(leader=0, leader_epoch=0, partition_epoch=epoch, min_isr=1, replicas=(0,), isr=(IsrEntry(0, 1),))


def topic(uid, *, epoch=0, object_name="orders", topic_id=None, **changes):
    ref = TopicRef("default", object_name, uid, topic_id or f"id-{uid}", "orders")
    found = Topic(ref=ref, generation=1, resource_version="", controller_epoch=0, partitions={0: entry(epoch)})
    return replace(found, **changes)


def see(cache, value, version, created=""):
    return cache.see_topic(Sighting(value=value, resource_version=str(version), created=created))


def test_a_late_event_of_the_deleted_namesake_does_not_hide_the_new_topic():
    cache = MetadataCache()
    see(cache, topic("new"), 20)
    assert not see(cache, topic("old", epoch=99), 10)
    assert cache.topic("orders").ref.uid == "new"


def test_the_new_topic_of_a_name_hides_the_old_one_whose_deletion_was_missed():
    cache = MetadataCache()
    see(cache, topic("old", epoch=99), 10)
    change = see(cache, topic("new"), 20)
    assert {(ref.uid, number) for ref, number in change.partitions} == {("old", 0), ("new", 0)}
    assert [gone.ref.uid for gone in change.deleted] == ["old"]
    assert cache.partition(topic("old").ref, 0) is None
    assert not cache.delete_seen(topic("old").ref), "its deletion was concluded, not seen"
    assert not see(cache, topic("old", epoch=100), 30), "what is gone stays gone"


def test_an_opaque_resource_version_lets_the_later_arrival_win():
    cache = MetadataCache()
    see(cache, topic("first"), "x7")
    see(cache, topic("second"), "a1")
    assert cache.topic("orders").ref.uid == "second"


def test_of_two_placed_claims_the_oldest_is_visible():
    cache = MetadataCache()
    see(cache, topic("u1", object_name="b"), 1, created="2026-01-02T00:00:00Z")
    assert see(cache, topic("u2", object_name="a"), 2, created="2026-01-01T00:00:00Z").partitions
    assert cache.topic("orders").ref.uid == "u2"
    assert cache.topic_by_id("id-u1") is None
    cache.delete_topic("u2")
    assert cache.topic_by_id("id-u1").ref.uid == "u1"


def test_a_list_that_shows_less_is_reported_and_the_highest_epochs_stay():
    cache = MetadataCache()
    see(cache, topic("u", epoch=9), 50)
    change = cache.list_topics([Sighting(value=topic("u", epoch=4), resource_version="20")])
    assert [ref.uid for ref in change.went_back] == ["u"]
    assert cache.partition(topic("u").ref, 0).partition_epoch == 9
    later = cache.list_topics([Sighting(value=topic("u", epoch=10), resource_version="21")])
    assert not later.went_back
    assert cache.partition(topic("u").ref, 0).partition_epoch == 10


def went_back_to(shown, known=None):
    """A cache that knew `known`, after a consistent list that shows `shown`."""
    cache = MetadataCache()
    see(cache, known or topic("u", partitions={0: entry(9), 1: entry(4)}), 50)
    return cache, cache.list_topics([Sighting(value=shown, resource_version="20")])


REF = topic("u").ref


@pytest.mark.parametrize(
    "shown",
    [
        {0: entry(8), 1: entry(4)},
        {0: replace(entry(9), leader_epoch=-1), 1: entry(4)},
        {0: replace(entry(9), replicas=(0, 1)), 1: entry(4)},
        {0: replace(entry(9), isr=(IsrEntry(0, 2),)), 1: entry(4)},
        {1: entry(4)},
    ],
)
def test_what_went_back_is_told_by_partition(shown):  # S11
    cache, change = went_back_to(topic("u", partitions=shown))
    assert [cache.went_back(REF, number) for number in (0, 1)] == [True, False]
    assert change.partitions == {(REF, 0)}, "its replica has to be told, though the entry is as it was"
    assert cache.partition(REF, 0).partition_epoch == 9
    again = cache.list_topics([Sighting(value=topic("u", partitions=shown), resource_version="21")])
    assert not again, "said once"


def test_a_topic_that_lost_its_status_went_back_as_a_whole():  # S11
    ref = replace(REF, topic_id="")
    cache, change = went_back_to(topic("u", partitions={}, ref=ref))
    assert [cache.went_back(REF, number) for number in (0, 1)] == [True, True]
    assert [ref.topic_id for ref in change.went_back] == [REF.topic_id]


def test_what_the_store_shows_less_of_is_remembered_until_it_shows_more():  # S11
    in_sync = (IsrEntry(1, 5), IsrEntry(0, 4))
    known = topic("u", partitions={0: replace(entry(9), leader_epoch=3, isr=in_sync), 1: entry(4)})
    cache, _ = went_back_to(topic("u", partitions={0: entry(8), 1: entry(4)}), known)
    (told,) = cache.remembered()
    assert (told.topic, told.topic_id, told.partition) == (REF.name, REF.topic_id, 0)
    assert (told.leader_epoch, told.partition_epoch, told.isr) == (3, 9, in_sync[::-1])
    assert (told.isr_leader_epoch, told.isr_epoch) == (3, None), "that very entry's"
    assert (told.log_epoch, told.end_offset, told.hosted, told.agrees) == (-1, 0, False, False)
    see(cache, topic("u", partitions={0: replace(entry(10), leader_epoch=4), 1: entry(4)}), 40)
    assert cache.remembered() == []


def test_who_is_named_in_a_report_is_to_have_its_replica_until_that_is_settled():  # S11
    """The operator waits for it, and what it knows itself does not speak against the store."""
    cache = MetadataCache()
    see(cache, topic("u", partitions={0: entry(4), 1: entry(4)}), 50)
    before = cache.hosts(REF, 0)
    report = Holding(
        topic=REF.name, topic_id=REF.topic_id, partition=0, leader_epoch=3, partition_epoch=9, log_epoch=3, end_offset=7,
        isr=(IsrEntry(0, 1), IsrEntry(7, -1)),
    )  # fmt: skip

    def reports(version, *holdings):
        told = Broker(id=2, uid="b2", object_name="b2", holdings=holdings)
        return cache.see_broker(Sighting(value=told, resource_version=str(version)))

    assert reports(1, report).partitions == {(REF, 0)}
    assert (7 in before, 7 in cache.hosts(REF, 0), 7 in cache.hosts(REF, 1)) == (False, True, False)
    assert not reports(2, report).partitions, "said once"
    assert reports(3, report, report, replace(report, partition=1)).partitions == {(REF, 1)}
    see(cache, topic("u", partitions={0: replace(entry(10), leader_epoch=4), 1: entry(4)}), 60)
    assert (7 in cache.hosts(REF, 0), 7 in cache.hosts(REF, 1)) == (False, True)
    assert reports(4).partitions == {(REF, 0), (REF, 1)}
    assert 7 not in cache.hosts(REF, 1)


def test_it_ends_with_epochs_above_all_or_with_a_list_that_shows_it_all():  # S11
    low = topic("u", partitions={0: entry(3), 1: entry(4)})
    cache, _ = went_back_to(low)
    for number, late in enumerate((entry(9), entry(10), replace(entry(5), leader_epoch=7))):
        see(cache, topic("u", partitions={0: late, 1: entry(4)}), 30 + number)
        assert cache.went_back(REF, 0)
    see(cache, topic("u", partitions={0: replace(entry(11), leader_epoch=1), 1: entry(4)}), 40)
    assert not cache.went_back(REF, 0)
    cache, _ = went_back_to(low)
    change = cache.list_topics(
        [Sighting(value=topic("u", partitions={0: entry(9), 1: entry(4)}), resource_version="5")]
    )
    assert not cache.went_back(REF, 0)
    assert (REF, 0) in change.partitions
    cache, _ = went_back_to(low)
    cache.delete_topic("u")
    assert not cache.went_back(REF, 0)


def test_replicas_of_what_the_store_shows_host_as_well_while_it_is_behind():  # S11
    def of(epoch, *replicas, leader_epoch=0):
        return topic("u", partitions={0: replace(entry(epoch), leader_epoch=leader_epoch, replicas=replicas)})

    cache = MetadataCache()
    see(cache, of(9, 0, 1), 50)
    assert cache.hosts(REF, 0) == (0, 1)
    cache.list_topics([Sighting(value=of(3, 1, 2), resource_version="20")])
    assert cache.hosts(REF, 0) == (0, 1, 1, 2)
    assert see(cache, of(4, 3), 10).partitions == set(), "an older version says nothing of now"
    assert see(cache, of(4, 3), 60).partitions == {(REF, 0)}
    assert cache.hosts(REF, 0) == (0, 1, 3)
    see(cache, of(10, 4, leader_epoch=1), 70)
    assert cache.hosts(REF, 0) == (4,)
    cache.delete_topic("u")
    assert cache.hosts(REF, 0) == ()


def test_a_replica_of_another_history_that_has_got_as_far_hosts_its_log_too():  # S11
    """It is waited for: who went on to go by the lost entry of that partitionEpoch would never report."""

    def of(epoch, *replicas, leader_epoch=0):
        entries = {0: replace(entry(epoch), leader_epoch=leader_epoch, replicas=replicas)}
        return Sighting(value=topic("u", partitions=entries), resource_version="60")

    cache = MetadataCache()
    cache.see_topic(of(2, 4, 3, 0))
    cache.list_topics([of(2, 1, 0, 4, 3)])
    assert cache.went_back(REF, 0)
    assert cache.hosts(REF, 0) == (4, 3, 0, 1, 0, 4, 3)
    cache.list_topics([of(3, 1, 0, 4, 3, leader_epoch=1)])
    assert not cache.went_back(REF, 0)
    assert cache.hosts(REF, 0) == (1, 0, 4, 3)


def test_what_was_learnt_after_the_list_was_asked_for_is_judged_by_the_next_one():  # S11
    cache = MetadataCache()
    see(cache, topic("u", partitions={0: entry(9), 1: entry(4)}), 50)
    asked = cache.mark()
    see(cache, topic("u", partitions={0: entry(10), 1: entry(4)}), 51)
    shown = [Sighting(value=topic("u", partitions={0: entry(9), 1: entry(3)}), resource_version="50")]
    change = cache.list_topics(shown, asked=asked)
    assert [cache.went_back(REF, number) for number in (0, 1)] == [False, True]
    assert change.undecided
    change = cache.list_topics(shown, asked=cache.mark())
    assert [cache.went_back(REF, number) for number in (0, 1)] == [True, True]
    assert not change.undecided
    asked = cache.mark()
    see(cache, topic("u", partitions={0: entry(11), 1: entry(4)}), 52)
    assert not cache.list_topics(shown, asked=asked).undecided, "it is known to be behind already"


def test_topics_of_which_the_operator_knows_more():  # S11
    cache = MetadataCache()
    see(cache, topic("u"), 5)
    assert cache.asked_for() == frozenset()
    see(cache, topic("u", store_went_back=True), 6)
    assert cache.asked_for() == {"id-u"}
    see(cache, topic("u"), 7)
    assert cache.asked_for() == frozenset()


def test_a_list_brings_back_what_an_older_store_knows():
    cache = MetadataCache()
    see(cache, topic("u"), 5)
    cache.delete_topic("u")
    assert cache.delete_seen(topic("u").ref)
    cache.list_topics([Sighting(value=topic("u"), resource_version="3")])
    assert cache.topic("orders").ref.uid == "u"


def test_a_list_brings_back_the_older_of_two_objects_of_one_name():  # S11
    cache = MetadataCache()
    see(cache, topic("old"), 5)
    see(cache, topic("new"), 20)  # made again; then the store goes back to what was before
    change = cache.list_topics([Sighting(value=topic("old"), resource_version="5")])
    assert cache.topic("orders").ref.uid == "old"
    assert [gone.ref.uid for gone in change.deleted] == ["new"]
    assert {ref.uid for ref, _ in change.partitions} == {"old", "new"}
    assert see(cache, topic("old", epoch=1), 30).partitions, "and its events are heard from then on"


def test_a_list_brings_back_the_older_registration_object_of_a_broker():  # S11
    cache = MetadataCache()
    for uid, version in (("old", "5"), ("new", "20")):
        cache.see_broker(Sighting(value=Broker(id=1, object_name="b1", uid=uid), resource_version=version))
    cache.list_brokers([Sighting(value=Broker(id=1, object_name="b1", uid="old"), resource_version="5")])
    assert cache.brokers[1].uid == "old"


def test_a_fence_that_a_list_does_not_show_any_more_is_none():  # S11
    def of(fenced_epoch, version):
        return Sighting(
            value=Broker(id=1, object_name="b1", uid="u", fenced_epoch=fenced_epoch), resource_version=version
        )

    cache = MetadataCache()
    cache.see_broker(of(7, "20"))
    assert not cache.see_broker(of(3, "10")).brokers, "an event that comes late"
    assert cache.list_brokers([of(3, "10")]).brokers == {1}
    assert cache.brokers[1].fenced_epoch == 3


def registered(epoch, version, *, incarnation="", fenced_epoch=-1):
    registration = Registration(
        broker_epoch=epoch,
        incarnation=incarnation or f"i{epoch}",
        directory_id="d",
        trusted_since=epoch,
        clean_since=epoch,
        host="h",
        port=1,
    )
    broker = Broker(id=1, object_name="b1", uid="u", registration=registration, fenced_epoch=fenced_epoch)
    return Sighting(value=broker, resource_version=str(version))


@pytest.mark.parametrize("shown", [registered(5, 90), registered(5, 7), registered(8, 90, incarnation="another")])
def test_a_registration_of_a_restored_store_is_the_one_that_holds(shown):  # S11
    """The broker lost its disk, and drew its epoch from a counter that has forgotten the later ones."""
    cache = MetadataCache()
    cache.see_broker(registered(8, 40))
    assert not cache.see_broker(registered(5, 7)).brokers, "an event that comes late"
    change = cache.list_brokers([shown], asked=cache.mark())
    assert change.brokers == {1}
    assert cache.brokers[1] == shown.value
    assert not change.undecided
    assert not cache.list_brokers([shown], asked=cache.mark())


def test_a_registration_learnt_after_the_list_was_asked_for_is_not_forgotten():  # S11
    cache = MetadataCache()
    cache.see_broker(registered(5, 30))
    asked = cache.mark()
    cache.see_broker(registered(8, 40, fenced_epoch=6))
    change = cache.list_brokers([registered(5, 30)], asked=asked)
    assert (cache.brokers[1].epoch, cache.brokers[1].fenced_epoch) == (8, 6)
    assert change.undecided, "late, or the store went back: the next list tells"
    asked = cache.mark()
    assert not cache.list_brokers([registered(8, 40, fenced_epoch=6)], asked=asked).undecided
    cache.list_brokers([registered(5, 30)], asked=cache.mark())
    assert cache.brokers[1].epoch == 5


def test_a_change_of_configuration_concerns_every_partition():
    cache = MetadataCache()
    see(cache, topic("u", partitions={0: entry(0), 1: entry(0)}), 1)
    changed = topic("u", partitions={0: entry(0), 1: entry(0)}, config={"retention.ms": "5"}, generation=2)
    assert {number for _, number in see(cache, changed, 2).partitions} == {0, 1}
    assert not see(cache, topic("u", partitions={0: entry(0), 1: entry(0)}), 1), "an older copy brings no old config"


def test_the_view_of_brokers_is_a_snapshot():
    cache = MetadataCache()
    before = cache.brokers
    cache.see_broker(Sighting(value=Broker(id=1, object_name="b", uid="u"), resource_version="1"))
    assert dict(before) == {}
    assert list(cache.brokers) == [1]
    with pytest.raises(TypeError):
        cache.brokers[2] = None


def test_tombstones_are_bounded():
    objects = Objects()
    for number in range(TOMBSTONES_MAX + 5):
        objects.remove(f"u{number}")
    assert len(objects._gone) == TOMBSTONES_MAX
    held = Held("n", f"u{TOMBSTONES_MAX + 4}", None, 1, "")
    assert objects.admit(held) == (False, None)


def test_what_all_partitions_go_by_changes_them_all():  # S4
    cache = MetadataCache()
    see(cache, topic("u", partitions={0: entry(0), 1: entry(0)}), 5)
    both = {(REF, 0), (REF, 1)}
    assert see(cache, topic("u", partitions={0: entry(0), 1: entry(0)}, flush_lag_known=True), 6).partitions == both
    assert see(cache, topic("u", partitions={0: entry(0), 1: entry(0)}, flush_lag_known=True), 7).partitions == set()
    another = topic("u", partitions={0: entry(0), 1: entry(0)}, flush_lag_known=True, config={"a": "b"})
    assert see(cache, another, 8).partitions == both
