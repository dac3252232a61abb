"""What the store may say of a broker's strays (S10)."""

from kafkalite_core.membership.stray_listing import KEPT_MS, LATE_MS, StrayListing
from kafkalite_core.model.topic import Stray


def strays(*partitions):
    return [
        Stray(topic="t", topic_id="id", partition=number, leader_epoch=1, partition_epoch=1, end_offset=1)
        for number in partitions
    ]


def test_nothing_is_known_before_the_store_was_seen():
    listing = StrayListing()
    assert listing.unlisted_ms("id", 0, 100.0) == 0
    listing.may_say(strays(0))
    assert listing.unlisted_ms("id", 1, 100.0) == 0
    listing.says(strays(0), 100.0)
    assert [listing.unlisted_ms("id", number, 130.0) for number in (0, 1)] == [0, 30]


def test_a_list_counts_until_a_later_one_is_known_to_be_there():
    listing = StrayListing()
    listing.says(strays(0, 1), 100.0)
    listing.may_say(strays(1))
    assert listing.unlisted_ms("id", 0, 500.0) == 0, "the write may be lost"
    listing.may_say(strays(1, 2))
    listing.says(strays(1), 600.0)
    assert [listing.unlisted_ms("id", number, 700.0) for number in (0, 1, 2, 3)] == [100, 0, 100, 600]


def test_others_that_come_and_go_change_nothing():
    listing = StrayListing()
    listing.says(strays(0), 0.0)
    listing.says(strays(1), 100.0)
    for now_ms in (200.0, 300.0):
        listing.may_say(strays(2))
        listing.says(strays(2), now_ms)
        listing.says(strays(3), now_ms + 50.0)
    assert listing.unlisted_ms("id", 0, 400.0) == 300


def test_a_store_that_shows_it_again_begins_the_time_anew():
    listing = StrayListing()
    listing.says(strays(0), 0.0)
    listing.says(strays(), 100.0)
    listing.may_say(strays(0))  # it was restored
    assert listing.unlisted_ms("id", 0, 900.0) == 0
    listing.says(strays(), 1000.0)
    assert listing.unlisted_ms("id", 0, 1001.0) == 1


def test_a_write_without_an_answer_may_come_after_a_later_list():
    """The broker gave it up, wrote another list, and then the API server applied the first one."""
    listing = StrayListing()
    listing.says(strays(0, 1), 0.0)
    listing.may_come(strays(1, 2), 100.0)
    listing.says(strays(0), 200.0)
    listing.says(strays(), 300.0)
    assert [listing.unlisted_ms("id", number, 400.0) for number in (0, 1, 2, 3)] == [100, 0, 0, 400]
    given_up_ms = 100.0 + LATE_MS
    assert [listing.unlisted_ms("id", number, given_up_ms + 5.0) for number in (1, 2)] == [5, 5]
    listing.may_say(strays(1))  # it came
    listing.says(strays(), 500.0)
    assert [listing.unlisted_ms("id", number, given_up_ms + 5.0) for number in (1, 2)] == [5, 5]
    listing.may_say(strays(1))
    listing.says(strays(), given_up_ms + 10.0)
    assert [listing.unlisted_ms("id", number, given_up_ms + 15.0) for number in (1, 2)] == [5, 15]
    assert listing._late_ms == {}


def test_what_left_long_ago_is_forgotten_and_counts_since_the_first_sight():
    listing = StrayListing()
    listing.says(strays(*range(1000)), 0.0)
    listing.says(strays(), 10.0)
    listing.says(strays(5), 10.0 + KEPT_MS)
    assert listing._left_ms == {}
    assert listing.unlisted_ms("id", 7, 20.0 + KEPT_MS) >= KEPT_MS
