"""The one defect of a client that a cell is forgiven is recognised by the client's log, and nothing else is."""

import pytest

from tests.integration.group_matrix.history import Acked, Fault, Read
from tests.integration.group_matrix.known import ASKED_MIN, LAST_S, excuse, misled
from tests.integration.group_matrix.members import Unlogged

HEAD = "%7|1795305434.389|{}|rdkafka#consumer-1| [thrd:main]: "
FOLLOW = ["gave up after 60 s: 78 records are not read", "2 acknowledged records were never read: [(2, 0), (2, 1)]"]


def asked(broker, partition):
    place = f"127.0.0.1:3109{broker}/{broker}: Partition t [{partition}]: "
    return f"{HEAD.format('OFFREQ')}{place}querying for logical offset BEGINNING (opv 4)\n"


def stays(leader, partition):
    words = f"Topic t [{partition}]: leader {leader} unchanged, not migrating away from preferred replica {leader}\n"
    return HEAD.format("BROKER") + words


def log(broker, leader, partition=2, times=ASKED_MIN):
    return [stays(leader, partition)] + [asked(broker, partition), stays(leader, partition)] * (times + 1)


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        (log(0, 1), {2: (0, 1)}),
        (log(0, 1) + log(0, 1, partition=5), {2: (0, 1), 5: (0, 1)}),
        (log(1, 1), {}),
        (log(0, 1, times=ASKED_MIN - 1), {}),
        (log(0, 1, times=4) + log(1, 1, times=1) + log(0, 1, times=4), {}),
        ([asked(0, 2)] * 50, {}),
        ([stays(1, 2)] * 50, {}),
    ],
    ids=["misled", "two", "asks the leader", "seldom", "with pauses", "was not told", "does not ask"],
)
def test_a_partition_is_misled_when_the_same_wrong_broker_is_asked_all_the_time(lines, places):
    assert misled(lines) == places


def history(*unread, end_s=70.0):
    read = [Acked(1.0, 0, 0), Read(2.0, "a", 0, 0)]
    return [*read, *(Acked(3.0, partition, 0) for partition in unread), Fault(end_s, "the end")]


def test_a_cell_is_forgiven_when_all_of_it_follows():
    words = excuse(history(2), FOLLOW, [log(0, 1), []])
    assert words is not None
    assert "[2] at 0, told 1" in words


@pytest.mark.parametrize(
    ("events", "problems"),
    [
        (history(2, 3), FOLLOW),
        (history(2), [*FOLLOW, "the committed offset of partition 0 was 8, then 7"]),
        (history(2), ["a had no assignment for 9.0 s"]),
        (history(), ["3 acknowledged records were never read"]),
        (history(2, end_s=3.0 + LAST_S / 2), FOLLOW),
    ],
    ids=["another partition", "another promise", "no assignment", "all is read", "not for long"],
)
def test_nothing_else_is_forgiven(events, problems):
    assert excuse(events, problems, [log(0, 1)]) is None


def test_without_the_log_nothing_is_forgiven():
    assert excuse(history(2), FOLLOW, [[], log(1, 1)]) is None


def test_lines_of_log_are_taken_out_of_kcats_own_lines():
    unlogged = Unlogged()
    said, logged = "", ""
    for line in ["% Group g rebalanced: assigned: t [0], " + stays(1, 2), asked(0, 2), "t [1]\n", stays(0, 1), "7 8\n"]:
        of_kcat, of_log = unlogged.take(line)
        said, logged = said + of_kcat, logged + of_log
    assert said == "% Group g rebalanced: assigned: t [0], t [1]\n7 8\n"
    assert logged == stays(1, 2) + asked(0, 2) + stays(0, 1)
