"""The checker of histories: somebody else's records, and those of the run whose beginning was overwritten."""

import pytest

from kafkalite_cli.verify.checker import check
from kafkalite_cli.verify.history import FINAL_READ, Ack, Assign, End, Foreign, Header, Read

HEAD = [Header(1, "run", "t", 1, 0), Assign(0, 0, 0, 0), *(Ack(0, 0, n + 1, 0, 2 * n, n, n) for n in range(3))]


def read_by(consumer):
    """Offsets 0, 2 and 4 are of the run, 1 and 3 are somebody else's."""
    ours = {2 * n: Read(consumer, 0, 2 * n, 0, 0, n + 1, 9) for n in range(3)}
    return [ours.get(offset, Foreign(consumer, 0, offset, 9)) for offset in range(5)]


def history(live, final):
    return [*HEAD, *live, Assign(FINAL_READ, 0, 0, 10), *final, End(FINAL_READ, 0, 5, 11)]


def without_a_name(reads):
    """What was given at offset 2 does not say that it is of this run."""
    return [Foreign(each.consumer, 0, 2, 9) if each.offset == 2 else each for each in reads]


def test_somebody_elses_records_may_lie_between():
    assert check(history(read_by(0), read_by(FINAL_READ))).ok


@pytest.mark.parametrize("turn", [list, lambda events: [HEAD[0], *events[HEAD.index(HEAD[-1]) + 1 :], *HEAD[1:]]])
def test_a_consumer_is_given_something_else_than_what_the_final_read_finds(turn):
    report = check(turn(history(without_a_name(read_by(0)), read_by(FINAL_READ))))
    assert report.counts == {"inconsistent": 1}
    assert (report.examples[0].offset, report.examples[0].record) == (2, "0/0/2")


def test_the_final_read_finds_something_else_than_a_consumer_was_given_and_that_is_lost():
    report = check(history(read_by(0), without_a_name(read_by(FINAL_READ))))
    assert report.counts == {"lost": 1}


def test_what_nobody_was_ever_given_is_lost():
    report = check(history(without_a_name(read_by(0)), without_a_name(read_by(FINAL_READ))))
    assert report.counts == {"lost": 1}
