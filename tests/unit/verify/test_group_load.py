"""A group's history as files, and a whole run with member processes against the mock cluster that librdkafka carries."""

import os
import sys
import time
from argparse import Namespace
from types import SimpleNamespace

import msgspec
import pytest
from confluent_kafka import Consumer

from kafkalite_cli.verify.group_history import (
    Assigned,
    Commit,
    Committing,
    GroupHeader,
    GroupRecorder,
    Joining,
    Killed,
    Leaving,
    Observed,
    Revoked,
    generation_of,
    read_group_history,
    time_of,
)
from kafkalite_cli.verify.group_load import GroupLoad, judge
from kafkalite_cli.verify.group_member import Member
from kafkalite_cli.verify.group_report import GroupLimits
from kafkalite_cli.verify.history import (
    Ack,
    End,
    Fault,
    Foreign,
    Header,
    HistoryError,
    Read,
    Unknown,
    Unnamed,
    encode_value,
)
from kafkalite_cli.verify.load import LoadError
from tests.unit.verify.test_load import message

EVENTS = [
    GroupHeader(1, "run", "orders", "group", 2, 10_000, 5),
    Joining(0, ["range", "roundrobin"], 1),
    Assigned(0, 3, [0, 1], 2),
    Read(0, 1, 7, 0, 0, 1, 3),
    Commit(0, 3, 1, 8, "", 4, 5),
    Commit(0, 3, 1, 9, "ILLEGAL_GENERATION", 4, 5),
    Observed(1, 8, 6, 7),
    Revoked(0, 3, [], True, 8),
    Killed(0, 9),
    Committing(0, 1, 8, 9),
    Leaving(1, 10),
    Fault("SIGKILL broker 1", [0], 11),
]


def test_what_is_recorded_is_read_back_and_an_unfinished_line_is_ignored(tmp_path):
    path = tmp_path / "member.jsonl"
    recorder = GroupRecorder(path)
    for event in EVENTS:
        recorder.record(event)
    recorder.flush()
    assert read_group_history(path) == EVENTS
    recorder.close()
    path.write_bytes(path.read_bytes() + b'["assigned",0,')
    assert read_group_history(path) == EVENTS


def test_a_line_that_is_no_event_is_named(tmp_path):
    path = tmp_path / "member.jsonl"
    path.write_bytes(b'["leaving",1,10]\n["nonsense",1]\n')
    with pytest.raises(HistoryError, match="line 2"):
        read_group_history(path)
    with pytest.raises(HistoryError, match="No such file"):
        read_group_history(tmp_path / "absent")


def test_every_event_has_the_time_at_which_it_was_complete():
    assert [time_of(event) for event in EVENTS] == [0, 1, 2, 3, 5, 5, 7, 8, 9, 9, 10, 11]
    assert time_of(Ack(0, 0, 1, 0, 0, 20, 21)) == 21
    assert time_of(Unknown(0, 0, 1, 0, "timeout", 20, 22)) == 22
    assert time_of(Header(1, "run", "orders", 1, 99)) == 0


def test_the_generation_is_in_what_the_client_calls_opaque():
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "group", "log_level": 0})
    assert generation_of(consumer.consumer_group_metadata()) == -1
    consumer.close()
    assert generation_of(None) == -1
    assert generation_of(b"CGMDv2:" + (70_000).to_bytes(4, sys.byteorder) + b"group\0member\0\1") == 70_000
    for metadata in (b"CGMDv3:\0\0\0\0", b"CGMDv2:\0"):
        with pytest.raises(HistoryError, match="not known"):
            generation_of(metadata)


def test_members_are_also_judged_as_consumers_of_the_log():
    outside = [Header(1, "run", "orders", 1, 0), Ack(0, 0, 1, 0, 0, 1, 2), Read(1 << 16, 0, 0, 0, 0, 1, 50)]
    outside.append(End(1 << 16, 0, 1, 60))
    driver = [GroupHeader(1, "run", "orders", "group", 1, 10_000, 0)]
    member = [Joining(0, ["range"], 3), Assigned(0, 1, [0], 4), Read(0, 0, 0, 0, 0, 1, 5)]
    verdict = judge(outside, driver, [member])
    assert (verdict.ok, verdict.log.read, verdict.group.delivered) == (True, 2, 1)
    # Another record at the same offset than the one that everybody else found there.
    member[-1] = Read(0, 0, 0, 0, 0, 2, 5)
    verdict = judge(outside, driver, [member])
    assert (verdict.ok, verdict.log.counts["inconsistent"]) == (False, 1)
    # Only the final read found the record: the log is whole, the group has not done its work.
    verdict = judge(outside, driver, [member[:-1]])
    assert (verdict.ok, verdict.log.ok, verdict.group.counts) == (False, True, {"undelivered": 1})


def test_a_record_that_a_member_cannot_name_is_read_and_altered(tmp_path):
    names = {"bootstrap": "127.0.0.1:1", "topic": "orders", "group": "group", "run": "run", "number": 0}
    times = {"session_ms": 10_000, "commit_ms": 500}
    member = Member(Namespace(**names, **times, strategy="range", history=tmp_path / "member.jsonl"))
    sent = encode_value("run", 1, 2, 3, 100)
    for offset, value in enumerate([sent, sent.replace(b" 2 ", b" \x00 "), b"somebody else's"]):
        member._take(message(offset, value))
    member._consumer.close()
    member._recorder.close()
    found = [msgspec.structs.replace(event, at_us=5) for event in read_group_history(tmp_path / "member.jsonl")]
    assert [type(event) for event in found] == [Read, Unnamed, Foreign]
    outside = [Header(1, "run", "orders", 1, 0), Ack(1, 2, 3, 0, 0, 1, 2), Ack(1, 2, 4, 0, 1, 1, 2)]
    outside += [Read(1 << 16, 0, 0, 1, 2, 3, 50), Read(1 << 16, 0, 1, 1, 2, 4, 50), End(1 << 16, 0, 3, 60)]
    driver = [GroupHeader(1, "run", "orders", "group", 1, 10_000, 0)]
    verdict = judge(outside, driver, [[Joining(0, ["range"], 3), Assigned(0, 1, [0], 4), *found]])
    assert (verdict.log.counts, verdict.group.counts) == ({"altered": 1}, {})


def test_a_partition_that_comes_back_is_read_from_wherever_its_offset_is():
    outside = [Header(1, "run", "orders", 1, 0), *(Ack(0, 0, n + 1, 0, n, n, n + 1) for n in range(2))]
    driver = [GroupHeader(1, "run", "orders", "group", 1, 10_000, 0)]
    member = [Joining(0, ["range"], 3), Assigned(0, 1, [0], 4), Read(0, 0, 0, 0, 0, 1, 5), Read(0, 0, 1, 0, 0, 2, 6)]
    member += [Revoked(0, 1, [], False, 7), Assigned(0, 2, [0], 8), Read(0, 0, 0, 0, 0, 1, 9)]
    verdict = judge(outside, driver, [member])
    assert (verdict.log.counts, verdict.group.counts, verdict.group.redelivered) == ({}, {}, 1)


def wait_assigned(directory, members, partitions):
    """Until the files of the members that have not left say that they share the partitions."""
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        histories = [read_group_history(path) for path in files(directory)]
        staying = [events for events in histories if not any(isinstance(e, Leaving) for e in events)]
        last = [[e for e in events if isinstance(e, Assigned)][-1:] for events in staying]
        owned = [partition for found in last for event in found for partition in event.partitions]
        if all(last) and len(last) == members and sorted(owned) == list(range(partitions)):
            return
        time.sleep(0.05)
    pytest.fail(f"not shared after 30 s: {last}")


def files(directory):
    return sorted(directory.glob("member-*.jsonl"))


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_a_group_of_processes_reads_and_commits_everything(mock_bootstrap, tmp_path, strategy):
    load = GroupLoad(
        mock_bootstrap,
        "load",
        tmp_path,
        members=2,
        strategies=[strategy],
        producers=2,
        rate=200,
        session_timeout_ms=6000,
        commit_ms=100,
    )
    with load:
        load.log.wait_acks(50, 20)
        wait_assigned(tmp_path, members=2, partitions=4)
        load.wait_committed(20)
        assert {partition for partition, offset in load._last.items() if offset > 0} == set(range(4))
        load.fault("nothing happened", [0])
        load.leave_member(1)
        load.wait_left()
        assert load.members == [0]
        wait_assigned(tmp_path, members=1, partitions=4)
    # What is judged here is what was recorded; how fast a busy machine starts processes is not.
    verdict = load.verdict(GroupLimits(settle_ms=60_000, stuck_ms=60_000, changes_min=1))
    assert verdict.ok, (verdict.log.counts, verdict.group.counts, verdict.group.examples[:3])
    assert verdict.group.acked == verdict.group.delivered == load.log.acks.count
    assert (verdict.group.members, verdict.group.faults) == (2, 1)
    assert [change.left for change in verdict.group.changes] == [[1]]  # not how the run ends
    assert verdict.group.commits > 0
    assert verdict.group.observations > 0
    assert msgspec.json.decode(msgspec.json.encode(verdict))["ok"] is True


def test_partitions_of_which_nothing_is_committed_are_named():
    load = SimpleNamespace(group="verify-1", log=SimpleNamespace(partitions=4), _last={0: 5, 1: -1, 3: 7})
    with pytest.raises(LoadError, match=r"has committed nothing of partitions \[1, 2\]"):
        GroupLoad.wait_committed(load, timeout_s=0)


def test_a_member_is_frozen_for_a_while_and_leaves_in_order_at_sigterm(mock_bootstrap, tmp_path):
    load = GroupLoad(mock_bootstrap, "load", tmp_path, members=1, producers=1, rate=100, session_timeout_ms=6000)
    with load:
        load.log.wait_acks(20, 20)
        wait_assigned(tmp_path, members=1, partitions=4)
        pid = load._members[0].pid
        with load.frozen_member(0):
            assert os.waitid(os.P_PID, pid, os.WSTOPPED).si_pid == pid
        assert os.waitid(os.P_PID, pid, os.WCONTINUED).si_pid == pid
        load.term_member(0)
        assert load.members == []
        load.wait_left()  # it ends with exit code 0
    assert [
        event.member for event in read_group_history(tmp_path / "member-0.jsonl") if isinstance(event, Leaving)
    ] == [0]
