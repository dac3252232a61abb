"""The traffic: somebody keeps asking for the ends of the log, and what a fault excuses is counted apart."""

from types import SimpleNamespace

import pytest

from tests.chaos import workloads
from tests.chaos.scenarios import scenarios
from tests.chaos.workloads import WORKLOADS, Traffic


class Load:
    """Producers and a reader that have seen a history."""

    counts: dict = {}
    too_large, unread = 0, {}

    def __init__(self, *_, observe_s=0.0, **__):
        self.observe_s, self.log = observe_s, self
        self.acks = SimpleNamespace(count=300)

    def start(self):
        pass

    def wait_acks(self, count, timeout_s):
        pass

    def wait_stable(self, members, timeout_s):
        pass

    def wait_committed(self, timeout_s):
        self.committed = True

    def report(self):
        return SimpleNamespace(counts=self.counts, examples=[], acked=300, read=600, longest_ack_gap_ms=1.0)

    def verdict(self, _limits):
        return SimpleNamespace(log=self.report(), group=SimpleNamespace(counts={}, examples=[]))


@pytest.fixture
def traffic(tmp_path, monkeypatch):
    monkeypatch.setattr(workloads, "Load", Load)
    monkeypatch.setattr(workloads, "GroupLoad", Load)
    monkeypatch.setattr(Traffic, "_wait_served", lambda *_: None)
    cluster = SimpleNamespace(bootstrap="b", create_topic=lambda *_, **__: None)

    def made(workload):
        found = Traffic(cluster, WORKLOADS[workload], tmp_path)
        found.start()
        return found

    return made


@pytest.mark.parametrize("workload", ["steady", "group"])
def test_a_client_keeps_asking_for_the_ends_of_the_log(traffic, workload):
    assert traffic(workload).load.observe_s == workloads.OBSERVE_S > 0


def test_a_group_is_harmed_only_when_all_its_members_have_a_position(traffic):
    assert traffic("group").load.committed


@pytest.mark.parametrize("workload", ["steady", "group"])
def test_an_end_that_went_back_is_an_anomaly_except_where_a_leader_hung(traffic, monkeypatch, workload):
    monkeypatch.setattr(Load, "counts", {"watermark-regressed": 2})
    found = traffic(workload)
    seen = found.judge()
    assert (seen.ok, seen.anomalies, seen.allowed) == (False, {"watermark-regressed": 2}, {})
    found.allowed = scenarios()["stop-leader/steady"].fault.allowed
    seen = found.judge()
    assert (seen.ok, seen.anomalies, seen.allowed) == (True, {}, {"watermark-regressed": 2})
    monkeypatch.setattr(Load, "counts", {"watermark-regressed": 2, "lost": 1})
    assert (found.judge().ok, found.judge().anomalies) == (False, {"lost": 1})


def test_only_leaders_that_hang_or_are_cut_off_are_excused():
    excused = {scenario.fault.name for scenario in scenarios().values() if scenario.fault.allowed}
    assert {"stop-leader", "net-isolate-leader", "api-cut-off-leader", "disk-hang"} <= excused
    assert not {name for name in excused if name.startswith(("kill", "term", "power", "topic", "clock", "flap"))}
    told = {kind for scenario in scenarios().values() for kind in scenario.fault.allowed}
    assert told == {"watermark-regressed", "offset-regressed"}
    coordinators = {s.fault.name for s in scenarios().values() if "offset-regressed" in s.fault.allowed}
    assert coordinators == {"stop-coordinator", "stop-two"}, "where one hangs for certain"
