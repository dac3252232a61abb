"""Which batches of a producer come first after a refusal."""

from __future__ import annotations

from types import SimpleNamespace

from kafkalite_core.replica import refused
from kafkalite_core.replica.refused import AWAKE_MS, GAPS_MS, Refused


def batch(sequence: int, producer: int = 7) -> SimpleNamespace:
    return SimpleNamespace(producer_id=producer, base_sequence=sequence)


def awake(known: Refused, until_ms: float) -> float:
    """The process runs until then."""
    now_ms = known._seen_ms
    while now_ms < until_ms:
        now_ms = min(now_ms + AWAKE_MS, until_ms)
        known.seen(now_ms)
    return until_ms


def may_begin(known: Refused, sent: SimpleNamespace, now_ms: float) -> bool:
    """Of one that is looked at when it comes."""
    return known.may_begin(sent, now_ms, now_ms)


def is_behind(known: Refused, sent: SimpleNamespace, now_ms: float) -> bool:
    """Of one that is looked at when it comes."""
    return known.is_behind(sent, now_ms, now_ms)


def test_without_a_refusal_nothing_is_said() -> None:
    known = Refused()
    known.note(batch(-1, producer=-1))
    known.note(batch(3, producer=8))
    assert may_begin(known, batch(4), 0.0)
    assert not is_behind(known, batch(4), 0.0)


def test_what_was_refused_behind_a_batch_is_missed_after_it_was_appended() -> None:
    """It was given up for want of memory while the one before it waited for its check."""
    known = Refused()
    known.note(batch(3))
    known.appended(batch(0))
    assert is_behind(known, batch(6), 0.0)
    assert not is_behind(known, batch(6), 0.0)
    known.note(batch(3))
    known.appended(batch(3))
    assert not is_behind(known, batch(9), 0.0)


def test_while_batches_are_refused_nobody_begins_but_who_was_refused_first() -> None:
    known = Refused()
    known.refusing(100.0)
    known.note(batch(4))
    for now_ms, later in ((100.0, False), (99.0 + GAPS_MS, False), (100.0 + GAPS_MS, True)):
        awake(known, now_ms)
        assert [may_begin(known, batch(9, producer), now_ms) for producer in (7, 8)] == [False, later]
        assert is_behind(known, batch(9, producer=8), now_ms) is not later
        assert may_begin(known, batch(4), now_ms)


def test_after_an_election_not_even_who_is_refused_here() -> None:
    """Whoever led may have refused one before it."""
    known = Refused()
    known.elected(100.0)
    known.note(batch(4))
    for now_ms, later in ((100.0, False), (99.0 + GAPS_MS, False), (100.0 + GAPS_MS, True)):
        awake(known, now_ms)
        assert may_begin(known, batch(4), now_ms) is later
        assert is_behind(known, batch(4), now_ms) is not later
        assert not may_begin(known, batch(5), now_ms)


def test_the_lowest_that_was_refused_comes_first() -> None:
    known = Refused()
    for sequence in (6, 4, 5):
        known.note(batch(sequence))
    assert [may_begin(known, batch(sequence), 0.0) for sequence in (3, 4, 5)] == [True, True, False]
    known.refusing(0.0)
    assert [may_begin(known, batch(sequence), 1.0) for sequence in (3, 4, 5)] == [True, True, False]
    known.appended(batch(4))
    assert not may_begin(known, batch(9), 1.0)
    assert may_begin(known, batch(9), awake(known, GAPS_MS))


def test_who_is_late_behind_it_is_refused_once_and_is_the_first_then() -> None:
    known = Refused()
    known.note(batch(4))
    assert [is_behind(known, batch(sequence), 0.0) for sequence in (3, 4, 5)] == [False, False, True]
    known.note(batch(5))
    assert is_behind(known, batch(6), 0.0), "what came before it was refused just now"
    known.note(batch(6))
    known.refusing(0.0)
    assert may_begin(known, batch(5), 1.0)


def test_producers_that_were_refused_long_ago_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(refused, "PRODUCERS_MAX", 2)
    known = Refused()
    known.refusing(0.0)
    for producer in (1, 2, 1, 3):
        known.note(batch(4, producer))
    assert [may_begin(known, batch(4, producer), 1.0) for producer in (1, 2, 3)] == [True, False, True]


def test_time_in_which_the_process_did_not_run_does_not_count() -> None:
    """What was sent behind a refused batch waited in its sockets."""
    known = Refused()
    known.elected(0.0)
    awake(known, 2_000.0)
    asleep_ms = 60_000.0
    known.seen(2_000.0 + AWAKE_MS + asleep_ms)
    assert not may_begin(known, batch(4), awake(known, asleep_ms + GAPS_MS - 1.0))
    assert is_behind(known, batch(4), asleep_ms + GAPS_MS - 1.0)
    assert may_begin(known, batch(4), awake(known, asleep_ms + GAPS_MS))
    assert may_begin(known, batch(4), 10 * asleep_ms), "the while is over"


def test_a_batch_that_waited_is_judged_by_when_it_came() -> None:
    """It may have been sent behind one that was refused then, and that has not come again."""
    known = Refused()
    known.elected(100.0)
    late_ms = awake(known, 100.0 + 3 * GAPS_MS)
    for received_ms, later in ((50.0, False), (99.0 + GAPS_MS, False), (100.0 + GAPS_MS, True)):
        assert known.may_begin(batch(4), late_ms, received_ms) is later
        assert known.is_behind(batch(4), late_ms, received_ms) is not later
