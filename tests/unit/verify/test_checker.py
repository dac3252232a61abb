"""Hand-made histories: each anomaly is found and named, and a clean history stays clean."""

import random

import pytest

from kafkalite_cli.verify.checker import EXAMPLES_MAX, check
from kafkalite_cli.verify.history import Ack, Assign, End, Fault, Foreign, Header, HistoryError, Read, Unknown

HEADER = Header(1, "run", "orders", 2, 0)


def ack(sequence, offset, *, key=0, partition=0, producer=0, invoked=None, acked=None):
    invoked = sequence * 10 if invoked is None else invoked
    return Ack(producer, key, sequence, partition, offset, invoked, invoked + 5 if acked is None else acked)


def read(sequence, offset, *, key=0, partition=0, producer=0, consumer=0):
    return Read(consumer, partition, offset, producer, key, sequence, 0)


def clean(count=10):
    """`count` records of one key at offsets 0, 1, 2, …: acknowledged, read, read again at the end."""
    live = [event for n in range(count) for event in (ack(n + 1, n), read(n + 1, n))]
    final = [Assign(9, 0, 0, 0), *(read(n + 1, n, consumer=9) for n in range(count)), End(9, 0, count, 0)]
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
    events = without(clean(), read(5, 4), read(5, 4, consumer=9))
    report = check(events)
    assert report.counts == {"lost": 1, "skip": 2}
    lost = next(example for example in report.examples if example.kind == "lost")
    assert (lost.partition, lost.offset, lost.record) == (0, 4, "0/0/5")
    assert not report.ok


def test_an_acknowledged_record_behind_the_final_read_is_unseen():
    events = [event for event in clean() if event not in (read(10, 9), read(10, 9, consumer=9), End(9, 0, 10, 0))]
    assert counts([*events, End(9, 0, 9, 0)]) == {"unseen": 1}


def test_a_record_that_was_read_once_and_is_gone_in_the_final_read_is_a_skip():
    assert counts(without(clean(), read(5, 4, consumer=9))) == {"skip": 1}


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
    events = [*clean(3)[:-1], Assign(2, 0, 2, 0), read(7, 2, consumer=2), End(9, 0, 3, 0)]
    assert counts(events)["inconsistent"] == 1


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


def test_pauses_are_counted_from_the_fault_to_a_record_sent_after_it():
    fault = Fault("kill", [0, 1], 1000)
    early, other = ack(1, 0, invoked=900, acked=1100), ack(1, 0, key=1, partition=1, invoked=1500, acked=1600)
    events = [HEADER, fault, early, other]
    assert check(events).pauses[0].pause_ms is None
    report = check([*events, ack(2, 1, invoked=1001, acked=3000)])
    assert report.pauses[0].pause_ms == 2.0
    assert report.longest_ack_gap_ms == 1.4


def test_examples_are_limited_and_counts_are_not():
    report = check([HEADER, *(ack(n, n - 1) for n in range(1, 101))])
    assert report.counts == {"unseen": 100}
    assert len(report.examples) == EXAMPLES_MAX


@pytest.mark.parametrize(
    "event",
    [ack(1, -1), ack(0, 0), ack(1, 0, key=1 << 20), ack(1, 0, producer=1 << 12), ack(1 << 32, 0), ack(1, 1 << 63)],
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


def random_history(rng, *, records=300, partitions=3, keys=9):
    """A good history: several keys, unknown outcomes that did or did not reach the log, two consumers."""
    logs = [[] for _ in range(partitions)]
    sequences, events, now = [0] * keys, [HEADER], 0
    for _ in range(records):
        key = rng.randrange(keys)
        sequences[key] += 1
        now += 10
        log, partition = logs[key % partitions], key % partitions
        if (outcome := rng.random()) < 0.05:
            events.append(Unknown(0, key, sequences[key], partition, "timeout", now, now + 5))
        if outcome >= 0.02:
            log.append((key, sequences[key]))
        if outcome >= 0.05:
            events.append(Ack(0, key, sequences[key], partition, len(log) - 1, now, now + 5))
    for consumer in (0, 1):
        for partition, log in enumerate(logs):
            events.append(Assign(consumer, partition, 0, 0))
            events += [Read(consumer, partition, at, 0, key, sequence, 0) for at, (key, sequence) in enumerate(log)]
            events.append(End(consumer, partition, len(log), 0))
    return events


@pytest.mark.parametrize("seed", range(20))
def test_random_good_histories_pass_and_any_one_lost_record_is_found(seed):
    print("seed", seed)
    rng = random.Random(seed)
    events = random_history(rng)
    assert check(events).counts == {}
    victim = rng.choice([event for event in events if isinstance(event, Ack)])
    same = (victim.partition, victim.offset)
    kept = [event for event in events if not (isinstance(event, Read) and (event.partition, event.offset) == same)]
    report = check(kept)
    assert report.counts["lost"] == 1
    assert any(example.kind == "lost" and example.offset == victim.offset for example in report.examples)
