"""The demonstration's arithmetic: what is missing, what is there twice, how long the pause was."""

import demo
import pytest
from flights import COUNT
from produce import Produced


def outcome(*rows):
    produced = Produced(count=len(rows))
    for row in rows:
        produced.acknowledged[row] = 1
    return produced


def murder(instant=10.0, partitions=(0, 1)):
    killed = demo.Murder(None, "flights", broker=1, partitions=set(partitions), instant=instant)
    for partition in partitions:
        killed.acknowledged(partition, 10.5, 10.7 + partition)
    return killed


def seen(**times):
    counts = bytearray(COUNT)
    for row, count in times.items():
        counts[int(row[1:])] = count
    return counts


def test_everything_there_once_is_ok(capsys):
    assert demo.verdict(outcome(0, 5), murder(), seen(r0=1, r5=1))
    expected = "OK: produced 2, consumed 2, missing 0, duplicated 0, longest pause 1.700 s (SIGKILL of broker 1"
    assert capsys.readouterr().out.startswith(expected)


@pytest.mark.parametrize(
    ("produced", "killed", "counts", "text"),
    [
        (outcome(0, 5), murder(), seen(r0=1), "missing 1, duplicated 0"),
        (outcome(0, 5), murder(), seen(r0=1, r5=2), "missing 0, duplicated 1"),
        (outcome(0), murder(instant=None), seen(r0=1), "longest pause none ended"),
        (Produced(failed={"_TIMED_OUT": 3}), murder(), seen(), "not acknowledged: {'_TIMED_OUT': 3}"),
    ],
)
def test_anything_else_is_broken(capsys, produced, killed, counts, text):
    assert not demo.verdict(produced, killed, counts)
    line = capsys.readouterr().out
    assert line.startswith("BROKEN")
    assert text in line


def test_only_a_record_sent_after_the_kill_ends_the_pause_and_only_the_first():
    killed = demo.Murder(None, "flights", partitions={0}, instant=10.0)
    killed.acknowledged(0, 9.9, 10.1)
    killed.acknowledged(3, 10.2, 10.3)
    assert killed.pauses_s == {}
    killed.acknowledged(0, 10.2, 10.5)
    killed.acknowledged(0, 10.3, 11.5)
    assert killed.pauses_s == {0: 0.5}


class Fake(demo.KafkaLiteCluster):
    def __init__(self, status):
        self._status = status

    def status(self):
        return self._status


def test_status_names_leaders_and_processes():
    partitions = [{"partition": 0, "leader": 2, "leaderEpoch": 1, "partitionEpoch": 1, "replicas": [2], "isr": [2]}]
    brokers = [{"id": 2, "pid": 77, "state": "Running", "address": "127.0.0.1:9094"}]
    fake = Fake({"topics": [{"name": "flights", "partitions": partitions}], "brokers": brokers})
    assert fake.leaders("flights") == {0: 2}
    assert fake.pid(2) == 77
    assert fake.topic("other") == []
