"""Each change of the membership is measured by the rebalance that follows it, and one that takes too long is found."""

from kafkalite_cli.verify.group_checker import check_group
from kafkalite_cli.verify.group_history import (
    Assigned,
    Joining,
    Killed,
    Leaving,
    Revoked,
)
from kafkalite_cli.verify.group_report import GroupLimits
from kafkalite_cli.verify.history import Fault
from tests.unit.verify.group_histories import (
    FROM,
    SECOND,
    ack,
    counts,
    joined,
    read,
    rebalanced,
)

DEMANDING = GroupLimits(settle_ms=5000, stuck_ms=12_000, changes_min=1)


def test_a_rebalance_of_six_seconds_after_a_change_breaks_the_verdict():
    report = check_group(rebalanced(FROM + 6 * SECOND), DEMANDING)
    assert (report.ok, report.counts) == (False, {"unsettled": 1})
    assert (report.changed, report.change_ms_p50, report.change_ms_max) == (1, 6000.0, 6000.0)
    assert "6000 ms from the last change" in report.examples[0].text
    report = check_group(rebalanced(FROM + 4 * SECOND), DEMANDING)
    assert (report.ok, report.changed, report.change_ms_max) == (True, 1, 4000.0)


def test_each_rebalance_after_a_change_is_one_entry():
    events = [*rebalanced(FROM + SECOND), Leaving(0, FROM + 10 * SECOND), Joining(3, ["range"], FROM + 11 * SECOND)]
    events += [Revoked(m, 2, [], False, FROM + 11 * SECOND) for m in (1, 2)]
    events += [Assigned(m, 3, [m - 1] if m < 3 else [], FROM + 13 * SECOND) for m in (1, 2, 3)]
    report = check_group(events, DEMANDING)
    assert (report.counts, report.changed, report.change_ms_p50, report.change_ms_max) == ({}, 3, 2000.0, 2000.0)
    first, second = report.changes
    assert (first.joined, first.left, first.members, first.took_ms, first.all_ms) == ([2], [], 3, 1000.0, 1000.0)
    assert (second.joined, second.left, second.members) == ([3], [0], 3)
    assert (second.changed_us, second.took_ms, second.all_ms) == (FROM + 11 * SECOND, 2000.0, 3000.0)
    assert (second.fault, second.fault_ms) == ("", 0.0)


def test_the_first_rebalance_and_the_end_of_the_group_are_no_changes():
    events = [*joined(), Leaving(0, FROM), Leaving(1, FROM + 1), ack(0, at=5 * SECOND), read(0, at=5 * SECOND + 10)]
    assert (check_group(events).changed, check_group(events).changes, check_group(events).change_ms_max) == (0, [], 0.0)
    report = check_group(events, DEMANDING)
    assert (report.ok, report.counts) == (False, {"unmeasured": 1})
    assert "0 members joined or left" in report.examples[0].text


def test_a_group_that_fills_again_has_its_first_rebalance_again():
    events = [*joined(), Leaving(0, FROM), Leaving(1, FROM + 1), Joining(2, ["range"], FROM + SECOND)]
    report = check_group([*events, Assigned(2, 2, [0, 1], FROM + 8 * SECOND)])
    assert (report.counts, report.changed, report.first_ms) == ({}, 0, 7000.0)


def test_a_change_that_was_not_followed_by_a_settled_group_is_not_measured():
    events = [*rebalanced(FROM + SECOND), Leaving(0, FROM + 10 * SECOND)]
    limits = GroupLimits(settle_ms=5000, stuck_ms=12_000, changes_min=2)
    assert counts(events, settle_ms=5000, stuck_ms=12_000, changes_min=2) == {"unmeasured": 1}
    settled = [Revoked(1, 2, [], False, FROM + 11 * SECOND), Revoked(2, 2, [], False, FROM + 11 * SECOND)]
    settled += [Assigned(1, 3, [1], FROM + 12 * SECOND), Assigned(2, 3, [0], FROM + 12 * SECOND)]
    report = check_group([*events, *settled], limits)
    assert (report.counts, report.changed, [change.left for change in report.changes]) == ({}, 2, [[], [0]])


def test_who_leaves_because_the_run_is_over_is_no_change():
    """The last one has settled alone for a moment before it is its turn."""
    events = [*rebalanced(FROM + SECOND), Leaving(0, FROM + 10 * SECOND), Leaving(1, FROM + 10 * SECOND + 5)]
    events += [Revoked(2, 2, [], False, FROM + 10 * SECOND + 6), Assigned(2, 3, [0, 1], FROM + 10 * SECOND + 9)]
    events.append(Leaving(2, FROM + 11 * SECOND))
    assert check_group(events).changed == 3
    assert check_group(events, DEMANDING, ended_us=FROM + 10 * SECOND).changed == 1


def test_a_change_is_measured_from_a_fault_that_came_after_it():
    fault = Fault("SIGKILL broker 1", [0], FROM + 2 * SECOND)
    change = check_group([*rebalanced(FROM + 6 * SECOND), fault], DEMANDING).changes[0]
    assert (change.took_ms, change.all_ms, change.fault, change.fault_ms) == (4000.0, 6000.0, fault.name, -2000.0)
    earlier = Fault("SIGKILL broker 1", [0], FROM - 2 * SECOND)
    report = check_group([*rebalanced(FROM + 6 * SECOND), earlier], DEMANDING)
    assert (report.counts, report.changes[0].took_ms, report.changes[0].fault_ms) == ({"unsettled": 1}, 6000.0, 2000.0)


def test_a_change_that_waits_for_a_killed_member_is_not_measured():
    """The joining member waits for the dead one's session time-out."""
    events = [*joined(), Killed(1, FROM), Joining(2, ["range"], FROM + 1), Revoked(0, 1, [], False, FROM + 2)]
    settled = [Assigned(0, 2, [0], FROM + 9 * SECOND), Assigned(2, 2, [1], FROM + 9 * SECOND)]
    assert check_group([*events, *settled]).changes == []
    settled = [Assigned(0, 2, [0], FROM + 11 * SECOND), Assigned(2, 2, [1], FROM + 11 * SECOND)]
    assert [change.took_ms for change in check_group([*events, *settled]).changes] == [1000.0]
    fault = Fault("SIGKILL broker 1", [], FROM + 8 * SECOND)  # the next coordinator gives it a whole session
    assert check_group([*events, *settled, fault]).changes == []


def test_the_leave_of_a_member_that_owned_nothing_has_its_rebalance_yet_to_come():
    """All partitions have an owner at once; what is measured is the generation without it."""
    events = [*rebalanced(FROM + SECOND), Leaving(2, FROM + 10 * SECOND)]
    events += [Revoked(m, 2, [], False, FROM + 15 * SECOND) for m in (0, 1)]
    events += [Assigned(m, 3, [m], FROM + 16 * SECOND) for m in (0, 1)]
    report = check_group(events)
    assert [change.took_ms for change in report.changes] == [1000.0, 6000.0]
    assert report.counts == {"unsettled": 1}


def left_after(fault_s, settled_s):
    """Member 2 leaves at FROM + 10 s, so long after a broker was killed; the others are settled at FROM + `settled_s`."""
    left = FROM + 10 * SECOND
    events = [
        *rebalanced(FROM + SECOND),
        Fault("SIGKILL broker 1", [0], int(left - fault_s * SECOND)),
        Leaving(2, left),
    ]
    events += [Revoked(m, 2, [], False, left + 100) for m in (0, 1)]
    return [*events, *(Assigned(m, 3, [m], int(FROM + settled_s * SECOND)) for m in (0, 1))]


def test_a_leave_that_no_coordinator_can_hear_costs_a_session_time_out_and_no_more():
    """The session time-out is 10 s, and a coordinator that takes over begins it anew."""
    report = check_group(left_after(0.1, 20.2), DEMANDING)
    assert (report.counts, report.changes[-1].unheard) == ({}, True)
    assert (report.changes[-1].took_ms, report.changes[-1].all_ms) == (300.0, 10_200.0)
    assert check_group(left_after(0.1, 25.0), DEMANDING).counts == {"unsettled": 1, "stuck": 2}, "and 5.1 s"


def test_a_leave_that_was_heard_is_not_excused():
    report = check_group(left_after(0.1, 14.0), DEMANDING)
    assert (report.counts, report.changes[-1].unheard, report.changes[-1].took_ms) == ({}, False, 4000.0)
    assert check_group(left_after(0.1, 16.0), DEMANDING).counts == {"unsettled": 1}, "before any session could end"
    assert check_group(left_after(2.1, 20.2), DEMANDING).counts == {"unsettled": 1}, "long after the fault"


def test_an_earlier_leave_that_was_heard_does_not_shorten_a_later_rebalance():
    events = left_after(0.1, 11.0)
    events += [Leaving(1, FROM + 18 * SECOND), Revoked(0, 3, [], False, FROM + 18 * SECOND + 1)]
    report = check_group([*events, Assigned(0, 4, [0, 1], FROM + 22 * SECOND)], DEMANDING)
    assert (report.counts, [change.took_ms for change in report.changes]) == ({}, [1000.0, 1000.0, 4000.0])
    late = [*events, Assigned(0, 4, [0, 1], FROM + 24 * SECOND)]
    assert check_group(late, DEMANDING).counts == {"unsettled": 1}, "nor does it excuse one that takes 6 s"
