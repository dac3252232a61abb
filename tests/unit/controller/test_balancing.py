"""Proposed placements: even, over racks, with little movement."""

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite_core.controller.balancing import evacuated, propose, rebalanced

NO_RACKS = dict.fromkeys(range(6), "")


def load(proposed):
    return Counter(i for ids in proposed.values() for i in ids)


def moved(current, proposed):
    return sum(len(set(proposed[key]) - set(ids)) for key, ids in current.items())


def test_what_is_even_stays():
    current = {("t", n): (n % 3, (n + 1) % 3) for n in range(6)}
    assert propose(current, {0: "", 1: "", 2: ""}) == current


def test_a_new_broker_gets_its_share_and_no_more_moves_than_that():
    current = {("t", n): (n % 3, (n + 1) % 3) for n in range(8)}
    proposed = propose(current, dict.fromkeys(range(4), ""))
    assert sorted(load(proposed).values()) == [4, 4, 4, 4]
    assert moved(current, proposed) == 4
    firsts = Counter(ids[0] for ids in proposed.values())
    assert max(firsts.values()) - min(firsts.values()) <= 1


def test_brokers_that_are_not_given_are_emptied():
    current = {("t", n): (n % 3, (n + 1) % 3) for n in range(6)}
    proposed = propose(current, {1: "", 2: "", 3: ""})
    assert 0 not in load(proposed)
    assert moved(current, proposed) == load(current)[0]


def test_racks_are_kept_apart():
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    current = {("t", n): (0, 1) for n in range(4)}
    proposed = propose(current, racks, replicas=2)
    assert sorted(load(proposed).values()) == [2, 2, 2, 2]
    spread = propose({("t", n): (0, 2) for n in range(4)}, racks)
    assert all({racks[i] for i in ids} == {"a", "b"} for ids in spread.values())


def test_another_number_of_replicas():
    current = {("t", n): (n % 3,) for n in range(6)}
    more = propose(current, dict.fromkeys(range(3), ""), replicas=3)
    assert all(sorted(ids) == [0, 1, 2] for ids in more.values())
    fewer = propose(more, dict.fromkeys(range(3), ""), replicas=1)
    assert sorted(load(fewer).values()) == [2, 2, 2]
    with pytest.raises(ValueError, match="3 replicas need 3 brokers, and 2 are given"):
        propose(current, {0: "", 1: ""}, replicas=3)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_proposal_is_valid_and_even(data):
    brokers = data.draw(st.lists(st.integers(0, 8), min_size=2, max_size=6, unique=True))
    racks = {i: data.draw(st.sampled_from(["", "a", "b"])) for i in brokers}
    replicas = data.draw(st.integers(1, len(brokers)))
    ids = st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True).map(tuple)
    current = {("t", n): data.draw(ids) for n in range(data.draw(st.integers(1, 12)))}
    proposed = propose(current, racks, replicas=replicas)
    assert proposed.keys() == current.keys()
    for row in proposed.values():
        assert len(row) == len(set(row)) == replicas
        assert set(row) <= set(brokers)
    if len(set(racks.values())) == 1:
        counts = [load(proposed)[i] for i in brokers]
        assert max(counts) - min(counts) <= 1, counts
    assert propose(proposed, racks, replicas=replicas) == proposed, "a proposal that was carried out is final"


def test_ten_thousand_partitions_are_planned_in_a_moment():
    current = {(f"t{n % 1000}", n // 1000): tuple((n + k) % 5 for k in range(3)) for n in range(10_000)}
    begun = time.process_time()
    for planned, apart in (
        (current | rebalanced(current, dict.fromkeys(range(6), "")), 1),
        (current | evacuated(current, dict.fromkeys(range(4), ""), 4), 15),  # nothing else moves
        (propose(current, dict.fromkeys(range(1, 7), "")), 1),
    ):
        counts = load(planned)
        assert max(counts.values()) - min(counts.values()) <= apart, counts
    assert time.process_time() - begun < 15, "2 s each, and room for a slow machine"
