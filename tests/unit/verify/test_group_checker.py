"""Hand-made histories of a group: each broken promise is found and named, and a clean history stays clean."""

import random

import pytest

from kafkalite_cli.verify.group_checker import check_group
from kafkalite_cli.verify.group_history import (
    Assigned,
    Committing,
    GroupHeader,
    Joining,
    Killed,
    Leaving,
    Revoked,
)
from kafkalite_cli.verify.group_report import EXAMPLES_MAX, GroupLimits
from kafkalite_cli.verify.history import Assign, Fault, HistoryError, Unknown
from tests.unit.verify.group_histories import (
    FROM,
    HEADER,
    SECOND,
    ack,
    clean,
    commit,
    counts,
    joined,
    observed,
    read,
    rebalanced,
)


def test_a_clean_history_has_no_anomaly():
    report = check_group(clean(200))
    assert report.ok
    assert report.counts == {}
    assert (report.acked, report.delivered, report.redelivered, report.unknown) == (400, 400, 0, 0)
    assert (report.commits, report.observations, report.commit_errors) == (400, 400, {})
    assert (report.members, report.generations, report.rebalances, report.faults) == (2, 1, 1, 0)
    assert (report.delivery_ms_p50, report.delivery_ms_max) == (0.1, 0.1)
    assert (report.first_ms, report.settle_ms_max) == (pytest.approx(3000.01), 0.0)
    assert report.waiting_ms_max == pytest.approx(4000)


def test_the_order_of_the_files_does_not_matter():
    events = clean(50)
    report = check_group(events)
    random.Random(7).shuffle(events)
    assert check_group(events) == report


def test_only_one_header_of_this_version_is_a_history():
    for events in ([], [HEADER, HEADER], [GroupHeader(2, "run", "t", "g", 1, 10_000, 0)]):
        with pytest.raises(HistoryError, match="version 1"):
            check_group(events)


# --- at least once ---------------------------------------------------------------------------------------------------


def test_an_acknowledged_record_that_no_member_read_is_undelivered():
    report = check_group([*joined(), ack(0), ack(1), read(0)])
    assert report.counts == {"undelivered": 1}
    assert (report.examples[0].partition, "offset 1 " in report.examples[0].text) == (0, True)
    assert not report.ok


def test_a_record_without_an_acknowledgement_may_be_missing():
    report = check_group([*joined(), Unknown(0, 0, 1, 0, "timeout", FROM, FROM + 1)])
    assert (report.ok, report.unknown) == (True, 1)


def test_reading_twice_after_a_rebalance_is_at_least_once():
    events = [*joined(), ack(0), read(0), Revoked(0, 1, [], False, FROM + 200), Revoked(1, 1, [], False, FROM + 200)]
    events += [Assigned(0, 2, [1], FROM + 300), Assigned(1, 2, [0], FROM + 300), read(0, member=1, at=FROM + 400)]
    report = check_group(events)
    assert (report.counts, report.redelivered, report.delivered) == ({}, 1, 1)


def test_a_record_that_is_read_too_late_is_stalled():
    late = FROM + 12 * SECOND + 1000
    assert counts([*joined(), ack(0), read(0, at=late)]) == {"stalled": 1}
    assert counts([*joined(), ack(0), read(0, at=late - 1001)]) == {}


def test_the_clock_of_records_from_before_the_group_starts_when_it_is_settled():
    early = [HEADER, ack(0, at=1), Joining(0, ["range"], 50 * SECOND), Assigned(0, 1, [0, 1], 53 * SECOND)]
    assert counts([*early, read(0, at=54 * SECOND)]) == {}


def test_a_commit_past_a_record_that_nobody_read_is_found():
    report = check_group([*joined(), ack(0), ack(1), read(0), commit(2), read(1, at=FROM + 3000)])
    assert report.counts == {"committed-unread": 1}
    assert "nobody had read 1" in report.examples[0].text


def test_a_failed_commit_past_an_unread_record_is_found_too():
    assert counts([*joined(), commit(1, error="TIMED_OUT")]) == {"committed-unread": 1}


def test_a_run_may_begin_at_a_later_offset():
    start = [Assign(0, 0, 40, 5), ack(40), read(40), commit(41), observed(41)]
    assert counts([*joined(), *start]) == {}
    assert counts([*joined(), *start[1:]]) == {"committed-unread": 1, "skip": 1}


# --- offsets ---------------------------------------------------------------------------------------------------------


def two_records():
    return [*joined(), ack(0), ack(1), read(0), read(1)]


def test_a_lower_commit_after_a_higher_one_is_a_regression():
    assert counts([*two_records(), commit(2), commit(1, at=FROM + 1101)]) == {"commit-regressed": 1}


def test_commits_that_overlap_in_time_are_in_no_order():
    assert counts([*two_records(), commit(2), commit(1, at=FROM + 1100)]) == {}
    assert counts([*two_records(), commit(2), commit(1, at=FROM + 1101, error="ILLEGAL_GENERATION")]) == {}


def test_a_lower_committed_offset_than_what_was_acknowledged_is_a_regression():
    assert counts([*two_records(), commit(2), observed(1)]) == {"offset-regressed": 1}
    assert counts([*two_records(), commit(2), observed(-1)]) == {"offset-regressed": 1}
    assert counts([*two_records(), commit(2), observed(-1, at=FROM + 1050)]) == {}


def test_a_lower_committed_offset_than_what_was_told_before_is_a_regression():
    events = [*two_records(), commit(2, error="TIMED_OUT"), observed(2), observed(-1, at=FROM + 3000)]
    assert counts(events) == {"offset-regressed": 1}


def test_a_committed_offset_that_nobody_committed_is_unexplained():
    assert counts([*two_records(), commit(1), observed(2)]) == {"commit-unexplained": 1}
    assert counts([*two_records(), commit(2, error="TIMED_OUT"), observed(2)]) == {}


def test_a_killed_members_last_commit_may_have_happened():
    """It was about to commit, and nobody knows how that ended."""
    events = [*two_records(), Committing(0, 0, 2, FROM + 1000), Killed(0, FROM + 1001)]
    events += [Revoked(1, 1, [], False, FROM + SECOND), Assigned(1, 2, [0, 1], FROM + 2 * SECOND), ack(2)]
    events += [read(2, member=1, at=FROM + 3 * SECOND)]
    assert counts([*events, observed(2)]) == {}
    assert counts([*events, observed(-1)]) == {}
    told_more = [event for event in events if not isinstance(event, Committing)]
    assert counts([*told_more, observed(2)]) == {"commit-unexplained": 1, "skip": 1}
    assert counts([*joined(), Committing(0, 0, 1, FROM + 1000)]) == {"committed-unread": 1}


def later_generation(events, *, partitions=((1,), (0,)), at=FROM + 500):
    """Generation 2: by default the members change places."""
    revoked = [Revoked(member, 1, [], False, at - 100) for member in (0, 1)]
    return [*events, *revoked, *(Assigned(member, 2, list(p), at) for member, p in enumerate(partitions))]


def test_a_commit_of_an_earlier_generation_that_is_taken_is_stale():
    events = later_generation(two_records())
    assert counts([*events, commit(2, member=0, generation=1)]) == {"stale-commit": 1}
    assert counts([*events, commit(2, member=0, generation=1, error="ILLEGAL_GENERATION")]) == {}
    assert counts([*events, commit(2, member=0, generation=1, at=FROM + 450)]) == {}


def test_the_next_owner_begins_where_the_last_one_committed():
    events = later_generation([*two_records(), commit(1, at=FROM + 200)])
    assert counts([*events, read(1, member=1, at=FROM + 600)]) == {}
    assert counts([*events, read(0, member=1, at=FROM + 600)]) == {"offset-regressed": 1}
    report = check_group([*events, ack(2), read(2, member=1, at=FROM + 600)])
    assert report.counts == {"skip": 1}


# --- ownership -------------------------------------------------------------------------------------------------------


def test_two_owners_in_one_generation_are_found():
    report = check_group(later_generation(joined(), partitions=((0, 1), (0,))))
    assert report.counts["two-owners"] == 1
    assert "members 0 and 1" in next(e.text for e in report.examples if e.kind == "two-owners")


def test_owners_of_different_generations_are_no_conflict():
    assert counts(later_generation(joined())) == {}


def test_reading_what_one_does_not_own_is_found():
    assert counts([*joined(), ack(0), read(0), read(0, member=1)]) == {"unowned-read": 1}
    events = [*joined(), ack(0), Revoked(0, 1, [], False, FROM + 50), read(0)]
    assert counts(events) == {"unowned-read": 1}


def test_a_gap_and_a_step_back_within_one_assignment_are_found():
    events = [*joined(), *(ack(n) for n in range(4)), read(0), read(2, at=FROM + 200), read(1, at=FROM + 300)]
    assert counts([*events, read(2, at=FROM + 400), read(3, at=FROM + 500)]) == {"skip": 1, "rewound": 1}


def test_a_cooperative_member_goes_on_reading_what_it_keeps():
    events = [HEADER, Joining(0, ["cooperative-sticky"], 1), Assigned(0, 1, [0, 1], SECOND), ack(0), read(0), ack(1)]
    events += [Joining(1, ["cooperative-sticky"], FROM + 150), Revoked(0, 2, [0], False, FROM + 200)]
    events += [Assigned(0, 2, [0], FROM + 210), Assigned(1, 2, [], FROM + 210)]
    events += [Assigned(0, 3, [0], FROM + 300), Assigned(1, 3, [1], FROM + 310), read(1, at=FROM + 400)]
    report = check_group(events)
    assert (report.counts, report.generations, report.rebalances) == ({}, 3, 2)
    # The same member starting again at the committed offset would be a step back: it never gave the partition up.
    assert counts([*events, read(0, at=FROM + 500)]) == {"rewound": 1}


def test_a_generation_that_goes_back_is_found():
    events = [*later_generation(joined()), Revoked(0, 2, [], True, FROM + 600), Assigned(0, 1, [1], FROM + 700)]
    assert counts(events)["generation-regressed"] == 1


# --- rebalances ------------------------------------------------------------------------------------------------------


def test_a_rebalance_that_ends_too_late_is_unsettled():
    report = check_group(rebalanced(FROM + 5 * SECOND + 1000))
    assert report.counts == {"unsettled": 1}
    assert (report.rebalances, report.settle_ms_max, report.unsettled_ms_max) == (2, 5001.0, 5001.0)
    assert counts(rebalanced(FROM + 5 * SECOND)) == {}


def test_an_empty_group_may_wait_for_further_members():
    events = [HEADER, Joining(0, ["range"], SECOND), Assigned(0, 1, [0, 1], 12 * SECOND + 1000)]
    report = check_group(events)
    assert report.counts == {"unsettled": 1}
    assert (report.rebalances, report.first_ms, report.settle_ms_max) == (1, 11_001.0, 0.0)
    assert counts([*events[:2], Assigned(0, 1, [0, 1], 12 * SECOND)]) == {}
    assert counts([*events[:2], Assigned(0, 1, [0, 1], 6 * SECOND + 1000)], settle_ms=5000, stuck_ms=12_000, empty_ms=0)


def test_the_bound_runs_from_the_last_change():
    events = [*rebalanced(FROM + 8 * SECOND)[:-1], Joining(3, ["range"], FROM + 4 * SECOND)]
    events += [Assigned(2, 2, [], FROM + 8 * SECOND), Assigned(3, 2, [], FROM + 8 * SECOND)]
    report = check_group(events)
    assert (report.counts, report.settle_ms_max, report.unsettled_ms_max) == ({}, 4000.0, 8000.0)


def test_a_group_that_never_settles_is_found_at_the_end():
    events = [HEADER, Joining(0, ["range"], SECOND), Assigned(0, 1, [0], 2 * SECOND), ack(0, at=13 * SECOND)]
    report = check_group([*events, read(0, at=13 * SECOND)])
    assert report.counts == {"unsettled": 1}
    assert "the history ends" in report.examples[0].text


def test_members_of_different_generations_are_not_settled():
    events = [*joined(), Assigned(0, 2, [0], FROM), ack(0, at=FROM + 6 * SECOND), read(0, at=FROM + 6 * SECOND)]
    assert counts(events) == {"unsettled": 1}


def test_a_fault_starts_the_bound_anew():
    fault = Fault("SIGKILL broker 1", [0], FROM + 3 * SECOND)
    events = [*joined(), Revoked(0, 1, [], True, FROM), fault, Assigned(0, 1, [0], FROM + 7 * SECOND)]
    report = check_group(events)
    assert (report.counts, report.faults) == ({}, 1)
    assert counts([event for event in events if event is not fault]) == {"unsettled": 1}


def taken_over(at):
    """Member 1 is killed; member 0 owns everything at `at`."""
    return [
        *joined(),
        Killed(1, FROM),
        Revoked(0, 1, [], False, at - SECOND),
        Assigned(0, 2, [0, 1], at),
    ]


def test_a_killed_member_is_waited_for_until_its_session_is_over():
    report = check_group(taken_over(FROM + 14 * SECOND))
    assert (report.counts, report.settle_ms_max) == ({}, 4000.0)
    assert counts(taken_over(FROM + 16 * SECOND)) == {"unsettled": 1}


def test_a_new_coordinator_gives_a_killed_member_a_whole_session():
    fault = Fault("SIGKILL broker 1", [], FROM + 8 * SECOND)
    assert counts([*taken_over(FROM + 22 * SECOND), fault]) == {}
    assert counts([*taken_over(FROM + 24 * SECOND), fault]) == {"unsettled": 1}


def test_leaving_in_order_needs_no_session_time_out():
    events = [*joined(), Leaving(1, FROM), Revoked(1, 1, [], False, FROM + 10), Revoked(0, 1, [], False, FROM + SECOND)]
    assert counts([*events, Assigned(0, 2, [0, 1], FROM + 4 * SECOND)]) == {}
    assert counts([*events, Assigned(0, 2, [0, 1], FROM + 6 * SECOND)]) == {"unsettled": 1}


def test_an_empty_group_is_settled():
    events = [*joined(), Leaving(0, FROM), Leaving(1, FROM + 1), ack(0, at=5 * SECOND), read(0, at=5 * SECOND + 10)]
    assert counts([*events, observed(-1, at=FROM + 60 * SECOND)]) == {}


def test_a_member_without_an_assignment_for_too_long_is_stuck():
    events = [*joined(), Revoked(1, 1, [], True, FROM), Revoked(0, 1, [], False, FROM + 12 * SECOND)]
    events += [Assigned(0, 2, [0], FROM + 13 * SECOND), Assigned(1, 2, [1], FROM + 13 * SECOND)]
    report = check_group(events, GroupLimits(settle_ms=60_000, stuck_ms=12_000))
    assert report.counts == {"stuck": 1}
    assert (report.examples[0].member, report.waiting_ms_max) == (1, 13_000.0)


def test_a_member_that_never_gets_an_assignment_is_stuck():
    events = [*joined(), Joining(2, ["range"], FROM), ack(0, at=FROM + 13 * SECOND), read(0, at=FROM + 13 * SECOND)]
    assert counts(events) == {"stuck": 1, "unsettled": 1}


def test_examples_are_limited_and_counts_are_not():
    report = check_group([*joined(), *(ack(n) for n in range(100))])
    assert report.counts == {"undelivered": 100}
    assert len(report.examples) == EXAMPLES_MAX


def test_of_two_commits_that_overlap_in_time_either_may_come_last():
    """The first one's connection breaks, and it is sent again when the second one is acknowledged already."""
    overlapping = [*two_records(), commit(1, at=FROM + 1000, took=900), commit(2, at=FROM + 1100, took=100)]
    after = FROM + 3000
    assert counts([*overlapping, observed(2, at=after)]) == {}
    assert counts([*overlapping, observed(1, at=after)]) == {}
    assert counts([*overlapping, observed(2, at=FROM + 1300), observed(1, at=after)]) == {}
    assert counts([*overlapping, observed(2, at=after), observed(1, at=after + 200)]) == {"offset-regressed": 1}
    assert counts([*overlapping, observed(0, at=after)]) == {"offset-regressed": 1}
    unanswered = [*two_records(), commit(1, at=FROM + 1000, took=900, error="_TIMED_OUT")]
    unanswered.append(commit(2, at=FROM + 1100, took=100))
    assert counts([*unanswered, observed(1, at=after)]) == {}
    refused = [*two_records(), commit(1, at=FROM + 1000, took=900, error="ILLEGAL_GENERATION")]
    refused.append(commit(2, at=FROM + 1100, took=100))
    assert counts([*refused, observed(1, at=after)]) == {"offset-regressed": 1}
    in_order = [*two_records(), commit(1, at=FROM + 1000), commit(2, at=FROM + 1101)]
    assert counts([*in_order, observed(1, at=after)]) == {"offset-regressed": 1}


@pytest.mark.parametrize("first", [1, -1])
def test_a_look_that_overlaps_a_commit_excuses_nothing_afterwards(first):
    """It may have seen what was there before; that the commit was acknowledged binds all the same."""
    events = [*two_records(), *([commit(1, at=FROM + 500)] if first == 1 else [])]
    events += [observed(first, at=FROM + 950, took=200), commit(2, at=FROM + 1000, took=100)]
    assert counts([*events, observed(2, at=FROM + 2000)]) == {}
    assert counts([*events, observed(first, at=FROM + 2000)]) == {"offset-regressed": 1}


def test_of_a_first_commit_without_an_answer_nobody_knows_whether_there_is_one():
    """The cluster stops with the commit under way: it may be carried out after it is back, and may never be."""
    unknown = [*two_records(), commit(2, error="NO_ANSWER", took=100)]
    assert counts([*unknown, observed(-1, at=FROM + 2000)]) == {}
    assert counts([*unknown, observed(-1, at=FROM + 2000), observed(2, at=FROM + 3000)]) == {}
    told = [*unknown, observed(2, at=FROM + 2000), observed(-1, at=FROM + 3000)]
    assert counts(told) == {"offset-regressed": 1}
    acknowledged = [*unknown, commit(2, at=FROM + 2000), observed(-1, at=FROM + 4000)]
    assert counts(acknowledged) == {"offset-regressed": 1}
