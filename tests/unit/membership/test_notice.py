"""What a broker says that it has noticed, and when it says nothing new (S10)."""

from dataclasses import replace

from kafkalite_core.membership.metadata_cache import MetadataCache, Sighting
from kafkalite_core.membership.notice import Notice
from kafkalite_core.model.limits import NOTICED_MAX
from kafkalite_core.model.partition import TopicRef
from tests.unit.membership.test_metadata_cache import see, topic


def unplaced(uid, *, object_name="orders", name="orders"):
    return topic(uid, partitions={}, ref=TopicRef("default", object_name, uid, "", name))


def noticed(cache, *, tells_all=True):
    notice = Notice()
    notice.look(cache, tells_all=tells_all)
    return notice.uids


def test_a_topic_that_has_no_place_yet_is_noticed_until_it_has_one():
    cache = MetadataCache()
    see(cache, unplaced("new"), 5)
    assert noticed(cache) == ("new",)
    see(cache, topic("new"), 6)
    assert noticed(cache) == ()


def test_who_still_serves_the_lost_topic_has_not_noticed_the_next_one():
    cache = MetadataCache()
    see(cache, topic("lost", object_name="a"), 5, created="2026-01-01T00:00:00Z")
    see(cache, unplaced("new", object_name="b"), 6, created="2026-01-02T00:00:00Z")
    assert noticed(cache) == (), "the deletion of the lost one has not been heard of"
    cache.delete_topic("lost")
    assert noticed(cache) == ("new",)


def test_an_object_of_the_same_name_tells_that_the_other_is_gone():
    cache = MetadataCache()
    see(cache, topic("lost"), 5)
    see(cache, unplaced("new"), 6)
    assert noticed(cache) == ("new",)


def test_a_topic_that_lost_its_status_is_noticed_once_a_list_shows_it():  # S11
    cache = MetadataCache()
    known, bare = topic("u"), unplaced("u")
    see(cache, known, 50)
    see(cache, bare, 20)
    assert noticed(cache) == (), "an event may be an old one"
    cache.list_topics([Sighting(value=bare, resource_version="60")])
    assert noticed(cache) == ("u",)
    cache.list_topics([Sighting(value=replace(known, partitions=known.partitions), resource_version="61")])
    assert noticed(cache) == ()


def test_what_was_said_holds_while_the_store_is_not_told_all():
    cache, notice = MetadataCache(), Notice()
    see(cache, unplaced("first"), 5)
    notice.look(cache, tells_all=False)
    assert notice.uids == ()
    notice.look(cache, tells_all=True)
    see(cache, unplaced("second", object_name="other", name="other"), 6)
    notice.look(cache, tells_all=False)
    assert notice.uids == ("first",)
    notice.look(cache, tells_all=True)
    assert notice.uids == ("first", "second")


def test_of_very_many_topics_the_first_ones_are_named():
    cache = MetadataCache()
    for number in range(NOTICED_MAX + 5):
        see(cache, unplaced(f"uid-{number}", object_name=f"t{number}", name=f"t{number}"), number + 1)
    assert noticed(cache) == tuple(f"uid-{number}" for number in range(NOTICED_MAX))
