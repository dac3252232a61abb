"""Fetch sessions (KIP-227): the numbers and the refusals; what they mean together is in the property test."""

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import FetchPosition
from kafkalite_core.replica.fetch_session import (
    EPOCH_MAX,
    FULL_LOOK_INTERVAL_MS,
    FollowerSession,
    LeaderSession,
    epoch_after,
)


def position(offset=0, epoch=3):
    return FetchPosition(
        leader=1, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=0, log_start_offset=0
    )


def session(*keys, partitions_max=10):
    leader = LeaderSession(7, partitions_max)
    leader.take([(key, key.upper()) for key in keys], [])
    leader.look(0.0)
    return leader


def test_the_first_request_names_everything_and_asks_for_a_session():
    request = FollowerSession().request({"a": position(), "b": position()})
    assert (request.session_id, request.session_epoch, request.forgotten) == (0, 0, [])
    assert set(request.named) == {"a", "b"}


def test_a_leader_that_grants_no_session_is_asked_for_everything_again():
    follower = FollowerSession()
    for _ in range(3):
        request = follower.request({"a": position()})
        assert (request.session_id, request.session_epoch, set(request.named)) == (0, 0, {"a"})
        follower.answered(0)


def test_requests_of_a_session_name_what_moved_and_count():
    follower = FollowerSession()
    follower.request({"a": position(), "b": position()})
    follower.answered(9)
    request = follower.request({"a": position(), "b": position(5), "c": position()})
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert (set(request.named), request.forgotten) == ({"b", "c"}, [])
    follower.answered(9)
    request = follower.request({"b": position(5)})
    assert (request.session_epoch, request.named, sorted(request.forgotten)) == (2, {}, ["a", "c"])
    follower.answered(9)
    request = follower.request({"a": position(), "b": position(5)})
    assert set(request.named) == {"a"}, "what was forgotten is named again"


def test_one_that_comes_while_another_goes():
    follower = FollowerSession()
    follower.request({"a": position(), "b": position()})
    follower.answered(9)
    request = follower.request({"a": position(), "c": position()})
    assert (set(request.named), request.forgotten) == ({"c"}, ["b"])


def test_a_new_leader_epoch_is_another_position():
    follower = FollowerSession()
    follower.request({"a": position(epoch=3)})
    follower.answered(9)
    assert set(follower.request({"a": position(epoch=4)}).named) == {"a"}


def test_an_answer_may_end_the_session():
    follower = FollowerSession()
    follower.request({"a": position()})
    follower.answered(9)
    follower.request({"a": position()})
    follower.answered(0)
    assert set(follower.request({"a": position()}).named) == {"a"}


def test_epochs_wrap_to_one():
    assert epoch_after(EPOCH_MAX) == 1
    assert epoch_after(0) == 1


def test_a_request_of_another_session_or_out_of_order_is_refused():
    leader = session("a")
    assert leader.check(7, 1, 0) is ErrorCode.NONE
    assert leader.check(8, 1, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert leader.check(7, 2, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert leader.check(7, 0, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_is_bounded():
    leader = session("a", "b", partitions_max=3)
    assert leader.check(7, 1, 1) is ErrorCode.NONE
    assert leader.check(7, 1, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_at_rest_nothing_is_looked_at_until_the_interval_is_over():
    leader = session("a", "b")
    leader.take([], [])
    assert leader.look(FULL_LOOK_INTERVAL_MS - 1) == []
    leader.take([], [])
    assert leader.look(FULL_LOOK_INTERVAL_MS) == ["A", "B"]


def test_what_waits_longest_comes_first():
    leader = session("a", "b", "c")
    leader.note("c")
    leader.take([("a", "A2")], [])
    assert leader.look(1.0) == ["C", "A2"]
    leader.note("b")
    assert leader.look_at_all(2.0) == ["B", "C", "A2"]


def test_what_is_looked_at_while_the_request_waits_is_not_due_again():
    leader = session("a")
    assert leader.note("a") == "A"
    leader.looked("a")
    leader.take([], [])
    assert leader.look(1.0) == []
    assert leader.note("elsewhere") is None


def test_news_is_what_differs_from_what_was_told():
    leader = session("a")

    def news(high_watermark, *, urgent=False):
        return leader.is_news("a", high_watermark=high_watermark, log_start_offset=0, urgent=urgent)

    assert [news(5), news(5), news(6), news(6, urgent=True)] == [True, False, True, True]
    leader.take([("a", "A")], [])
    assert news(6), "its position moved: perhaps it had no use for the last answer"


def test_entries_out_of_use_are_given_back():
    leader = session("a", "b")
    assert leader.take([("b", "B2")], ["a", "unknown"]) == ["A", "B"]
    assert list(leader.entries()) == ["B2"]
    assert len(leader) == 1
