"""Which batches of a producer come first after a refusal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkalite_core.replica import refused
from kafkalite_core.replica.refused import Refused


def batch(sequence: int, producer: int = 7) -> SimpleNamespace:
    return SimpleNamespace(producer_id=producer, base_sequence=sequence)


@pytest.mark.parametrize("otherwise", [True, False])
def test_without_a_refusal_nothing_is_said(otherwise) -> None:
    known = Refused()
    known.note(batch(-1, producer=-1))
    known.note(batch(3, producer=8))
    assert known.may_begin(batch(4), otherwise=otherwise) is otherwise
    assert not known.is_behind(batch(4), late=False)


def test_the_lowest_that_was_refused_comes_first() -> None:
    known = Refused()
    for sequence in (6, 4, 5):
        known.note(batch(sequence))
    assert [known.may_begin(batch(sequence), otherwise=True) for sequence in (3, 4, 5)] == [True, True, False]
    assert [known.is_behind(batch(sequence), late=False) for sequence in (3, 4, 5)] == [False, False, True]
    known.appended(batch(4))
    assert not known.may_begin(batch(9), otherwise=False)
    assert known.may_begin(batch(9), otherwise=True)


def test_who_is_late_behind_it_is_refused_once_and_is_the_first_then() -> None:
    known = Refused()
    known.note(batch(4))
    assert known.is_behind(batch(5), late=True)
    known.note(batch(5))
    assert known.is_behind(batch(6), late=True), "what came before it was refused just now"
    known.note(batch(6))
    assert known.may_begin(batch(5), otherwise=False)


def test_producers_that_were_refused_long_ago_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(refused, "PRODUCERS_MAX", 2)
    known = Refused()
    for producer in (1, 2, 1, 3):
        known.note(batch(4, producer))
    assert [known.may_begin(batch(4, producer), otherwise=False) for producer in (1, 2, 3)] == [True, False, True]
