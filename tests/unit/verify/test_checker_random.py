"""Random good histories pass; with any one anomaly put in, exactly that one is found (and what follows from it)."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafkalite_cli.verify.checker import KINDS, check
from kafkalite_cli.verify.history import Ack, Fault, Read, read_history, write_history
from tests.unit.verify.histories import SPOILERS, Spoiler, good

CONSEQUENCES = {
    "lost": set(),
    "lost_after_it_was_read": set(),
    "vanished": set(),
    "altered": set(),
    "unnamed": set(),
    "unseen": set(),
    "duplicate": set(),
    "reordered": {"stale-offset", "watermark-regressed"},
    "stale_offset": {"reordered", "watermark-regressed"},
    "wrong_offset": {"reordered"},
    "wrong_partition": {"unexplained"},
    "inconsistent": {"lost", "unexplained", "vanished", "reordered"},
    "skip": set(),
    "non_monotonic": set(),
    "failed_read": {"reordered"},
    "unexplained": {"wrong-partition"},
    "watermark_regressed": set(),
}
"""What else the same harm may break: a record at the end of the log also comes after later ones of its key."""


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=60, deadline=None)
def test_good_histories_have_no_anomaly(seed):
    world = good(seed)
    report = check(world.events)
    assert report.counts == {}
    assert report.ok
    assert report.acked == sum(isinstance(event, Ack) for event in world.events)
    assert report.read == sum(isinstance(event, Read) for event in world.events)
    assert len(report.pauses) == sum(isinstance(event, Fault) for event in world.events)


@pytest.mark.parametrize("name", SPOILERS)
@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=15, deadline=None)
def test_one_anomaly_is_found_in_any_good_history(name, seed):
    spoiler = Spoiler(good(seed), random.Random(seed))
    expected = getattr(spoiler, name)()
    assume(expected is not None)
    report = check(spoiler.events)
    assert not report.ok
    assert report.counts.get(expected, 0) >= 1, report
    assert set(report.counts) <= {expected} | CONSEQUENCES[name], report
    assert any(example.kind == expected for example in report.examples)


def test_every_kind_of_anomaly_is_put_into_some_history():
    found = set()
    for name in SPOILERS:
        for seed in range(20):
            spoiler = Spoiler(good(seed), random.Random(seed))
            expected = getattr(spoiler, name)()
            if expected is not None:
                found.add(expected)
                break
        else:
            pytest.fail(f"{name} has no occasion in 20 histories")
    assert found == set(KINDS)


def test_the_same_verdict_comes_from_the_file(tmp_path):
    spoiler = Spoiler(good(7, steps=1000), random.Random(7))
    assert spoiler.lost() == "lost"
    write_history(tmp_path / "run.jsonl", spoiler.events)
    assert check(read_history(tmp_path / "run.jsonl")) == check(spoiler.events)
