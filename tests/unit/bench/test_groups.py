"""When the proof of consumer groups passes, and what it prints of each change of the membership."""

import argparse

import groups
import pytest

from kafkalite_cli.verify.group_history import Assigned, GroupHeader, Joining, Leaving, Revoked
from kafkalite_cli.verify.group_load import judge
from kafkalite_cli.verify.group_report import GroupLimits
from kafkalite_cli.verify.history import Ack, End, Fault, Header, Read

SECOND = 1_000_000
KILL = Fault("SIGKILL broker 1", [0], 20 * SECOND)


def verdict_of(settled_s, changes_min=1):
    """Member 0 reads; member 1 joins half a second after a kill, and `settled_s` later both have their assignment."""
    outside = [Header(1, "run", "orders", 1, 0), Ack(0, 0, 1, 0, 0, 6 * SECOND, 6 * SECOND + 1)]
    outside += [Read(1 << 16, 0, 0, 0, 0, 1, 50 * SECOND), End(1 << 16, 0, 1, 60 * SECOND)]
    driver = [GroupHeader(1, "run", "orders", "group", 1, 10_000, 0), KILL]
    first = [Joining(0, ["range"], SECOND), Assigned(0, 1, [0], 5 * SECOND), Read(0, 0, 0, 0, 0, 1, 6 * SECOND + 2)]
    members = [first]
    if settled_s is not None:
        joins_us = KILL.at_us + SECOND // 2
        settled_us = joins_us + int(settled_s * SECOND)
        first += [Revoked(0, 1, [], False, joins_us + 1), Assigned(0, 2, [0], settled_us)]
        members.append([Joining(1, ["range"], joins_us), Assigned(1, 2, [], settled_us)])
    for number, events in enumerate(members):
        events.append(Leaving(number, 60 * SECOND + number))
    return judge(outside, driver, members, GroupLimits(settle_ms=5000, stuck_ms=12_000, changes_min=changes_min))


@pytest.fixture
def proof():
    proof = groups.Proof(argparse.Namespace(system="kafkalite"))
    proof.kills, proof.ordered, proof.heal_s, proof.outages_us = 1, 1, [3.0], [(20.0 * SECOND, 22.0 * SECOND)]
    return proof


def test_a_change_in_time_passes_and_is_printed(proof, capsys):
    verdict = verdict_of(1.5)
    assert groups.passed(verdict, proof)
    groups.show(verdict, proof)
    printed = capsys.readouterr().out
    assert "1 member 1 joined, 500 ms after SIGKILL broker 1: 2 members settled after 1,500 ms" in printed
    assert "changes: 1 ordered, 1 measured in 1 rebalances, 1 of them before" in printed
    assert "settled after p50 1,500 ms, max 1,500 ms" in printed
    assert "verdict: OK" in printed


def test_a_rebalance_of_six_seconds_is_broken(proof, capsys):
    verdict = verdict_of(6)
    assert not groups.passed(verdict, proof)
    groups.show(verdict, proof)
    printed = capsys.readouterr().out
    assert "2 members settled after 6,000 ms" in printed
    assert "verdict: BROKEN: anomalies: {'unsettled': 1}" in printed


@pytest.mark.parametrize("changes_min", [0, 1])
def test_a_run_without_a_measured_change_is_broken(proof, capsys, changes_min):
    verdict = verdict_of(None, changes_min)
    assert verdict.ok == (changes_min == 0)
    assert not groups.passed(verdict, proof)
    groups.show(verdict, proof)
    assert "verdict: BROKEN: " in capsys.readouterr().out


def test_the_order_of_changes_keeps_the_size_within_one(proof):
    class Members:
        def __init__(self):
            self.members, self.started, self.sizes = list(range(6)), 6, []

        def leave_member(self, number):
            self.members.remove(number)

        def start_member(self):
            self.members.append(self.started)
            self.started += 1
            return self.started - 1

    load, sizes, words = Members(), [], []
    proof.orders = proof.ordered = 0
    for _ in range(10):
        words.append(proof.order_change(load))
        sizes.append(len(load.members))
    assert sizes == [6, 7, 6, 5, 6] * 2
    assert words[:2] == ["member 0 leaves, member 6 joins, 6 then", "member 7 joins, 7 then"]
    assert proof.ordered == 12
