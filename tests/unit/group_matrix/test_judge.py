"""The judge of the group matrix sees each kind of broken promise, and the output of every client is understood."""

import pytest

from tests.integration.group_matrix.cells import SIZES, STRATEGIES, every_cell, sample
from tests.integration.group_matrix.history import Acked, Assembled, Ended, Observed, Owns, Read, Started
from tests.integration.group_matrix.judge import Limits, judge
from tests.integration.group_matrix.members import Words

LIMITS = Limits(waiting_s=8, joining_s=10, delivery_s=12)
GOOD = [
    Started(0.0, "a"),
    Acked(1.0, 0, 0),
    Owns(2.0, "a", frozenset({0})),
    Read(2.5, "a", 0, 0),
    Observed(3.0, {0: 1}),
    Owns(4.0, "a", frozenset()),
    Owns(11.0, "a", frozenset({0})),
    Acked(12.0, 0, 1),
    Read(12.5, "a", 0, 1),
    Observed(13.0, {0: 2}),
    Ended(14.0, "a", killed=True),
]


def problems(history):
    return judge(sorted(history, key=lambda event: event.at_s), LIMITS).problems


def test_a_history_without_faults_has_none():
    verdict = judge(GOOD, LIMITS)
    assert verdict.problems == []
    assert verdict.figures == {
        "acked": 2, "read_again": 0, "delivery_s": 1.5, "observations": 2, "waiting_s": 7.0, "joining_s": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([Acked(5.0, 1, 0), Observed(13.5, {0: 2, 1: 1})], "1 acknowledged records were never read: [(1, 0)]"),
        ([Acked(0.5, 1, 0), Read(12.6, "a", 1, 0), Observed(13.5, {0: 2, 1: 1})], "1 records came late"),
        ([Observed(13.1, {0: 1}), Observed(13.2, {0: 2})], "partition 0 was 2, then 1"),
        ([Observed(13.1, {}), Observed(13.2, {0: 2})], "partition 0 was 2, then None"),
        ([Acked(13.5, 0, 2), Read(13.6, "a", 0, 2)], "at the end of it: {0: (2, 3)}"),
        ([Started(0.0, "b"), Owns(10.5, "b", frozenset({1}))], "b waited for its first assignment for 10.5 s"),
        ([Started(0.0, "b")], "b waited for its first assignment for 14.0 s"),
        (
            [Started(0, "b"), Owns(1, "b", frozenset({1})), Owns(2, "b", frozenset()), Owns(11, "b", frozenset({1}))],
            "b had no assignment for 9.0 s",
        ),
        ([Started(0, "b"), Owns(1, "b", frozenset({1})), Owns(2, "b", frozenset())], "b had no assignment for 12.0 s"),
        ([Started(0, "b"), Owns(1, "b", frozenset({1})), Ended(2.0, "b", killed=False)], "b ended by itself"),
    ],
)
def test_each_broken_promise_is_found(more, words):
    (found,) = problems([*GOOD, *more])
    assert words in found


def test_records_from_before_the_members_came_wait_for_them_no_longer_than_others():
    early = [Acked(0.1, 1, 0), Read(12.5, "a", 1, 0), Observed(13.5, {0: 2, 1: 1})]
    (found,) = problems([*GOOD, *early])
    assert "came late, after 12.4 s" in found
    assert problems([*GOOD, *early, Assembled(2.0)]) == []
    assert problems([*GOOD, *early, Assembled(0.2)]) != []


def test_a_member_waits_only_from_its_start_on():
    late = [Started(0.0, "b"), Started(9.0, "b"), Owns(11.0, "b", frozenset({1}))]
    assert problems([*GOOD, *late]) == []


def test_the_dead_wait_for_nothing():
    dead = [Started(0, "b"), Owns(1, "b", frozenset({1})), Owns(2, "b", frozenset()), Ended(3.0, "b", killed=True)]
    assert problems([*GOOD, *dead]) == []


def test_a_history_without_records_proves_nothing():
    assert problems([Started(0.0, "a"), Owns(1.0, "a", frozenset({0}))]) == [
        "no record was acknowledged: this proves nothing"
    ]


@pytest.mark.parametrize(
    ("client", "lines", "said"),
    [
        (
            "kafka-python",
            ["assigned", "assigned 1 2", "record 1 7", "committed", "assigned 2"],
            [frozenset(), frozenset({1, 2}), (1, 7), None, frozenset({2})],
        ),
        (
            "kcat",
            [
                "% Waiting for group rebalance",
                "% Group g rebalanced (memberid rdkafka-1): assigned: t-9 [0], t-9 [1]",
                "1 7",
                "% Reached end of topic t-9 [1] at offset 8",
                "% Group g rebalanced (memberid rdkafka-1): revoked: t-9 [0], t-9 [1]",
            ],
            [None, frozenset({0, 1}), (1, 7), None, frozenset()],
        ),
        (
            "kcat",
            [
                "% Group g rebalanced: incremental assignment of 2 partition(s) (memberid m, COOPERATIVE): t-9 [0], t-9 [1]",
                "% Group g rebalanced: incremental revoke of 1 partition(s) (memberid m, assignment lost): t-9 [0]",
            ],
            [frozenset({0, 1}), frozenset({1})],
        ),
        (
            "java",
            [
                "log: [Consumer clientId=c-1, groupId=g-7] Adding newly assigned partitions: [t-9-0, t-9-11]",
                "Partition:11\tOffset:7\tvalue",
                "log: [Consumer clientId=c-1, groupId=g-7] Revoke previously assigned partitions [t-9-0]",
                "log: [Consumer clientId=c-1, groupId=g-7] Adding newly assigned partitions: []",
                "log: [Consumer clientId=c-1, groupId=g-7] Lost previously assigned partitions t-9-11",
            ],
            [frozenset({0, 11}), (11, 7), frozenset({11}), frozenset({11}), frozenset()],
        ),
    ],
)
def test_the_words_of_every_client_are_understood(client, lines, said):
    words = Words(client)
    assert [words.read(line + "\n") for line in lines] == said


def test_a_sample_has_every_client_and_no_cell_twice():
    assert len(set(every_cell())) == len(every_cell()) == 2 * 2 * len(STRATEGIES) * len(SIZES)
    for seed in range(20):
        cells = sample(seed, 8)
        assert len(set(cells)) == 8
        assert {cell.client for cell in cells} == set(STRATEGIES)
    assert sample(1, 8) == sample(1, 8) != sample(2, 8)
