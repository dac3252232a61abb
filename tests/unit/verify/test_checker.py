"""Hand-made histories: each anomaly is found and named, and a clean history stays clean."""

import pytest

from kafkalite_cli.verify.checker import EXAMPLES_MAX, check
from kafkalite_cli.verify.history import (
    FINAL_READ,
    OFFSET_UNKNOWN,
    Ack,
    Altered,
    Assign,
    End,
    Failed,
    Fault,
    Foreign,
    Header,
    HistoryError,
    Read,
    Unknown,
    Unnamed,
    Watermark,
)

HEADER = Header(1, "run", "orders", 2, 0)


def ack(sequence, offset, *, key=0, partition=0, producer=0, invoked=None, acked=None):
    invoked = sequence * 10 if invoked is None else invoked
    return Ack(producer, key, sequence, partition, offset, invoked, invoked + 5 if acked is None else acked)


def read(sequence, offset, *, key=0, partition=0, producer=0, consumer=0):
    return Read(consumer, partition, offset, producer, key, sequence, 0)


def clean(count=10):
    """`count` records of one key at offsets 0, 1, 2, …: acknowledged, read, read again at the end."""
    live = [event for n in range(count) for event in (ack(n + 1, n), read(n + 1, n))]
    again = [read(n + 1, n, consumer=FINAL_READ) for n in range(count)]
    final = [Assign(FINAL_READ, 0, 0, 0), *again, End(FINAL_READ, 0, count, 0)]
    return [HEADER, Assign(0, 0, 0, 0), *live, *final]


def without(events, *dropped):
    return [event for event in events if event not in dropped]


def counts(events):
    return check(events).counts


def test_a_clean_history_has_no_anomaly():
    report = check(clean(5000))
    assert report.ok
    assert (report.acked, report.read, report.partitions, report.counts, report.examples) == (5000, 10000, 1, {}, [])


def test_an_acknowledged_record_that_nobody_read_is_lost():
    events = without(clean(), read(5, 4), read(5, 4, consumer=FINAL_READ))
    report = check(events)
    assert report.counts == {"lost": 1, "skip": 2}
    lost = next(example for example in report.examples if example.kind == "lost")
    assert (lost.partition, lost.offset, lost.record) == (0, 4, "0/0/5")
    assert not report.ok


def acked_somewhere(events):
    """The same history, whose fifth record was acknowledged without its offset."""
    return [ack(5, OFFSET_UNKNOWN) if event == ack(5, 4) else event for event in events]


def test_a_record_that_was_acknowledged_without_its_offset_may_be_anywhere():
    report = check(acked_somewhere(clean()))
    assert report.ok
    assert report.acked == 10
    elsewhere = [read(5, 10), read(5, 10, consumer=FINAL_READ)]
    assert counts([*acked_somewhere(clean()), *elsewhere])["duplicate"] == 1


def test_a_record_that_was_acknowledged_without_its_offset_is_missed_all_the_same():
    events = without(acked_somewhere(clean()), read(5, 4), read(5, 4, consumer=FINAL_READ))
    report = check(events)
    assert report.counts == {"lost": 1, "skip": 2}
    assert counts(without(acked_somewhere(clean()), read(5, 4, consumer=FINAL_READ))) == {"skip": 1, "lost": 1}


def test_an_acknowledged_record_behind_the_final_read_is_unseen():
    events = [
        event
        for event in clean()
        if event not in (read(10, 9), read(10, 9, consumer=FINAL_READ), End(FINAL_READ, 0, 10, 0))
    ]
    assert counts([*events, End(FINAL_READ, 0, 9, 0)]) == {"unseen": 1}


def test_an_acknowledged_record_that_was_read_once_and_is_gone_in_the_final_read_is_lost():
    assert counts(without(clean(), read(5, 4, consumer=FINAL_READ))) == {"skip": 1, "lost": 1}


def test_a_record_that_was_read_once_and_never_acknowledged_may_not_vanish_either():
    events = [HEADER, Unknown(0, 0, 1, 0, "timeout", 0, 1), Assign(FINAL_READ, 0, 0, 0)]
    final = [read(1, 0, consumer=FINAL_READ), ack(1, 1, key=1), read(1, 1, key=1, consumer=FINAL_READ)]
    assert check([*events, read(1, 0), *final, End(FINAL_READ, 0, 2, 0)]).ok
    assert counts([*events, read(1, 0), *final[1:], End(FINAL_READ, 0, 2, 0)]) == {"vanished": 1, "skip": 1}


def test_a_log_that_ends_before_what_had_been_read_is_unseen():
    """All replicas cut their logs: whoever reads again finds nothing amiss but the end."""
    gone = [read(n + 1, n, consumer=FINAL_READ) for n in (8, 9)]
    events = without(clean(), *gone, End(FINAL_READ, 0, 10, 0))
    assert counts([*events, End(FINAL_READ, 0, 8, 0)]) == {"unseen": 2}


def test_what_lies_before_the_final_read_is_not_missed_by_it():
    events = [HEADER, ack(1, 0), ack(2, 1), read(1, 0), read(2, 1), Assign(FINAL_READ, 0, 1, 0)]
    assert check([*events, read(2, 1, consumer=FINAL_READ), End(FINAL_READ, 0, 2, 0)]).ok


def test_a_record_that_was_refused_and_is_read_all_the_same_is_a_failed_read():
    events = [HEADER, Failed(0, 0, 1, 0, "MSG_SIZE_TOO_LARGE", 0, 1), ack(2, 0), read(2, 0), End(0, 0, 1, 0)]
    report = check(events)
    assert report.ok
    assert (report.failed, report.unknown) == (1, 0)
    assert counts([HEADER, events[1], ack(2, 1), read(1, 0), read(2, 1), End(0, 0, 2, 0)]) == {"failed-read": 1}


def test_the_end_of_the_log_is_not_told_below_what_was_acknowledged_or_told_before():
    told = Watermark(7, 0, 1, 20, 25)
    events = [HEADER, ack(1, 0, invoked=0, acked=10), read(1, 0), End(0, 0, 1, 0)]
    assert check([*events, told, Watermark(7, 0, 1, 30, 35)]).ok
    assert counts([*events, Watermark(7, 0, 0, 20, 25)]) == {"watermark-regressed": 1}
    assert check([*events, Watermark(7, 0, 0, 10, 25)]).ok, "asked for before the acknowledgement was complete"
    assert counts([*events, Watermark(7, 0, 5, 20, 25), Watermark(8, 0, 4, 30, 35)]) == {"watermark-regressed": 1}
    assert check([*events, Watermark(7, 0, 5, 20, 25), Watermark(8, 0, 4, 25, 35)]).ok, "asked for meanwhile"


def test_allowed_anomalies_are_counted_and_do_not_spoil_the_verdict():
    events = [HEADER, ack(1, 0), ack(2, 1), read(1, 0), read(2, 1), read(2, 2), End(0, 0, 3, 0)]
    report = check(events, allowed={"duplicate"})
    assert report.ok
    assert report.counts == {"duplicate": 1}
    assert not check([*events, ack(3, 3)], allowed={"duplicate"}).ok
    with pytest.raises(ValueError, match="no kind of anomaly: doubled"):
        check(events, allowed={"doubled"})


def test_a_history_without_reads_has_everything_unseen():
    assert counts([HEADER, ack(1, 0), ack(2, 1)]) == {"unseen": 2}


def test_the_same_record_at_two_offsets_is_a_duplicate():
    events = [HEADER, ack(1, 0), ack(2, 1), read(1, 0), read(2, 1), read(2, 2), End(0, 0, 3, 0)]
    report = check(events)
    assert report.counts == {"duplicate": 1}
    assert report.examples[0].offset == 2


def test_a_duplicate_before_the_acknowledged_offset_is_no_unexplained_record():
    events = [HEADER, ack(1, 0), ack(2, 2), read(1, 0), read(2, 1), read(2, 2), End(0, 0, 3, 0)]
    assert counts(events) == {"duplicate": 1}


def test_the_duplicate_of_a_record_whose_outcome_is_unknown_is_found():
    unknown = Unknown(0, 0, 1, 0, "timeout", 0, 1)
    assert counts([HEADER, unknown, read(1, 0), read(1, 1), End(0, 0, 2, 0)]) == {"duplicate": 1}


def test_unknown_records_may_be_there_or_not():
    absent, present = Unknown(0, 0, 1, 0, "timeout", 0, 1), Unknown(0, 0, 2, 0, "timeout", 0, 1)
    report = check([HEADER, absent, present, ack(3, 1), read(2, 0), read(3, 1), End(0, 0, 2, 0)])
    assert report.ok
    assert report.unknown == 2


def test_a_key_whose_records_lie_in_another_order_is_reordered():
    events = [HEADER, ack(1, 0), ack(3, 1, invoked=10), ack(2, 2, invoked=10), read(1, 0), read(3, 1), read(2, 2)]
    assert counts([*events, End(0, 0, 3, 0)]) == {"reordered": 1}


def test_the_order_of_different_keys_is_free():
    events = [HEADER, ack(1, 1, key=1), ack(1, 0, key=2, invoked=10), read(1, 0, key=2), read(1, 1, key=1)]
    assert check([*events, End(0, 0, 2, 0)]).ok


def test_a_record_that_is_not_where_it_was_acknowledged_has_a_wrong_offset():
    events = [HEADER, ack(1, 1), ack(2, 0, invoked=10), read(1, 0), read(2, 1), End(0, 0, 2, 0)]
    assert counts(events) == {"wrong-offset": 2}


def test_two_acknowledgements_of_one_offset_leave_one_record_lost():
    assert counts([HEADER, ack(1, 0), ack(1, 0, key=1), read(1, 0), End(0, 0, 1, 0)]) == {"lost": 1}


def test_a_record_sent_after_an_acknowledgement_may_not_get_a_lower_offset():
    events = [HEADER, ack(1, 1, invoked=0, acked=10), ack(1, 0, key=1, invoked=20), read(1, 0, key=1), read(1, 1)]
    assert counts([*events, End(0, 0, 2, 0)]) == {"stale-offset": 1}


def test_an_offset_that_changes_its_record_is_inconsistent():
    other = ack(1, 2, key=1, invoked=30)  # two acknowledgements of one offset
    events = [*clean(3)[:-1], other, Assign(2, 0, 2, 0), read(1, 2, key=1, consumer=2), End(FINAL_READ, 0, 3, 0)]
    assert counts(events) == {"inconsistent": 1, "lost": 2}, "neither is what the final read and the reader agree on"


def test_what_was_read_differently_in_between_is_inconsistent_and_not_misplaced():
    events = clean(3)
    events[events.index(Assign(FINAL_READ, 0, 0, 0)) : 0] = []
    between = [Assign(2, 0, 2, 0), read(1, 2, key=1, consumer=2)]
    at = events.index(Assign(FINAL_READ, 0, 0, 0))
    report = check([*events[:at], Unknown(0, 1, 1, 0, "timeout", 0, 1), *between, *events[at:]])
    assert report.counts == {"inconsistent": 2}


def test_a_consumer_that_goes_back_is_non_monotonic():
    events = clean(3)
    events.insert(events.index(read(3, 2)), read(1, 0))
    assert counts(events) == {"non-monotonic": 1, "skip": 1}


def test_an_offset_gap_in_a_poll_is_a_skip_and_an_assignment_excuses_it():
    events = [HEADER, ack(1, 0), ack(2, 7), Assign(0, 0, 0, 0), read(1, 0), read(2, 7), End(0, 0, 8, 0)]
    assert counts(events) == {"skip": 1}
    assert check([*events[:-2], Assign(0, 0, 7, 0), *events[-2:]]).ok


def test_a_reader_that_starts_elsewhere_than_assigned_skips():
    assert counts([HEADER, ack(1, 3), Assign(0, 0, 0, 0), read(1, 3), End(0, 0, 4, 0)]) == {"skip": 1}


def test_a_record_that_nobody_sent_is_unexplained():
    assert counts([HEADER, ack(1, 0), read(1, 0), read(2, 1), End(0, 0, 2, 0)]) == {"unexplained": 1}


def test_a_record_that_nobody_sent_in_the_place_of_an_acknowledged_one_is_both():
    assert counts([HEADER, ack(1, 0), read(2, 0), End(0, 0, 1, 0)]) == {"lost": 1, "unexplained": 1}


def test_records_of_others_count_for_the_order_of_offsets_only():
    events = [HEADER, Assign(0, 0, 0, 0), ack(1, 0), ack(2, 2), read(1, 0), Foreign(0, 0, 1, 0), read(2, 2)]
    assert check([*events, End(0, 0, 3, 0)]).ok
    assert counts(without([*events, End(0, 0, 3, 0)], Foreign(0, 0, 1, 0))) == {"skip": 1}
    backwards = check([*events, Foreign(0, 0, 1, 0), End(0, 0, 3, 0)])
    assert [(example.kind, example.record) for example in backwards.examples] == [("non-monotonic", "")]


def test_a_key_in_two_partitions_is_in_a_wrong_one():
    events = [HEADER, ack(1, 0), read(1, 0), ack(2, 0, partition=1), read(2, 0, partition=1)]
    assert counts(events) == {"wrong-partition": 1}


def test_real_time_order_reaches_back_as_far_as_a_record_was_on_its_way():
    count = 70_000  # more than anybody would keep a window of
    acks = [ack(n + 1, n + 1, key=1, invoked=100 + n, acked=101 + n) for n in range(count)]
    reads = [read(n + 1, n + 1, key=1) for n in range(count)]
    late = ack(1, 0, invoked=99, acked=10**6)
    events = [HEADER, *acks, late, read(1, 0), *reads, End(0, 0, count + 1, 0)]
    assert check(events).ok
    events[events.index(late)] = ack(1, 0, invoked=102, acked=10**6)
    assert counts(events) == {"stale-offset": 1}


def test_pauses_are_counted_from_the_fault_to_a_record_sent_after_it():
    fault = Fault("kill", [0, 1], 1000)
    early, other = ack(1, 0, invoked=900, acked=1100), ack(1, 0, key=1, partition=1, invoked=1500, acked=1600)
    events = [HEADER, fault, early, other]
    assert check(events).pauses[0].pause_ms is None
    report = check([*events, ack(2, 1, invoked=1001, acked=3000)])
    assert report.pauses[0].pause_ms == 2.0
    assert report.longest_ack_gap_ms == 1.4


def test_the_gap_of_a_fault_is_the_longest_time_without_acknowledgement_until_the_next():
    """A graceful stop answers for a while after the signal: the pause is what comes then."""
    one = [ack(n, n - 1, invoked=at - 50, acked=at) for n, at in enumerate((1000, 2000, 2500, 9000, 9100, 30000), 1)]
    other = ack(1, 0, key=1, partition=1, invoked=900, acked=1500)
    first, second, third = Fault("term", [0], 2400), Fault("none", [0], 9050), Fault("kill", [0, 1], 9150)
    report = check([HEADER, one[0], other, one[1], first, *one[2:4], second, one[4], third, one[5]])
    assert [pause.gaps_ms for pause in report.pauses] == [{0: 6.5}, {0: 0.1}, {0: 20.9, 1: 28.5}]
    assert [pause.gap_ms for pause in report.pauses] == [6.5, 0.1, 28.5]


def test_a_pause_that_nothing_ended_lasts_until_nobody_waited_any_more():
    """Without an acknowledgement behind it, it would be as long as nothing at all."""
    events = [HEADER, ack(1, 0, invoked=900, acked=1000), Fault("kill", [0], 2000)]
    events += [Unknown(0, 0, 2, 0, "no answer", 3000, 61_000), Unknown(0, 0, 3, 0, "no answer", 3000, 60_000)]
    report = check(events)
    assert [(pause.pause_ms, pause.gap_ms) for pause in report.pauses] == [(None, 60.0)]
    assert report.longest_ack_gap_ms == 60.0
    report = check([*events, ack(4, 1, invoked=61_000, acked=70_000)])
    assert [(pause.pause_ms, pause.gap_ms) for pause in report.pauses] == [(69.0 - 1.0, 69.0)]


def test_examples_are_limited_and_counts_are_not():
    report = check([HEADER, *(ack(n, n - 1) for n in range(1, 101))])
    assert report.counts == {"unseen": 100}
    assert len(report.examples) == EXAMPLES_MAX


@pytest.mark.parametrize(
    "event",
    [ack(1, -2), ack(0, 0), ack(1, 0, key=1 << 20), ack(1, 0, producer=1 << 12), ack(1 << 32, 0), ack(1, 1 << 63)],
)
def test_numbers_out_of_range_are_refused(event):
    with pytest.raises(HistoryError, match="range"):
        check([HEADER, event])


def test_a_header_is_needed_exactly_once():
    with pytest.raises(HistoryError, match="header"):
        check([])
    with pytest.raises(HistoryError, match="one history"):
        check([HEADER, HEADER])
    with pytest.raises(HistoryError, match="version"):
        check([Header(2, "run", "orders", 2, 0)])


@pytest.mark.parametrize(
    "found", [Unnamed(0, 0, 9, 0), Altered(0, 0, 9, 1 << 20, 0, 10, 0), Altered(0, 0, 9, 0, 0, -1, 0)]
)
def test_a_record_that_does_not_even_name_itself_is_altered(found):
    """Whether the recorder could not read the name, or the name is none that a run has."""
    events = clean()
    events[events.index(read(10, 9))] = found
    report = check(events)
    assert report.counts == {"altered": 1}, "the final read found the record as it was sent"
    assert (report.examples[0].offset, report.examples[0].record, report.read) == (9, "", 20)
    assert counts([*events[:-11], Assign(FINAL_READ, 0, 0, 0), End(FINAL_READ, 0, 10, 0)])["lost"] == 10
    final = [event for event in clean() if event != read(10, 9, consumer=FINAL_READ)]
    final.insert(-1, Unnamed(FINAL_READ, 0, 9, 0))
    assert counts(final) == {"altered": 1, "lost": 1}, "what was acknowledged there is gone"
