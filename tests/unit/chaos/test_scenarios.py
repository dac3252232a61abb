"""There are enough scenarios, they can be told apart, and a long run is fair to all kinds of faults."""

from contextlib import contextmanager
from io import BytesIO
from random import Random
from types import SimpleNamespace

import pytest

from kafkalite_broker.telemetry import FLUSH_BUCKETS_S
from tests.chaos.cluster import ChaosError, Cluster
from tests.chaos.disk_faults import SLOW_S
from tests.chaos.faults import Bite, Harm, Run
from tests.chaos.scenarios import SAMPLE, deck, scenarios
from tests.chaos.signal_faults import frozen, undone
from tests.chaos.workloads import WORKLOADS


def test_there_are_sixty_scenarios_of_twenty_four_kinds_of_faults():
    known = scenarios()
    assert len(known) >= 60
    assert len({scenario.fault.name for scenario in known.values()}) >= 24
    assert {scenario.workload.name for scenario in known.values()} == set(WORKLOADS)


def test_every_fault_says_what_it_does():
    assert [s.fault.name for s in scenarios().values() if not s.fault.text] == []


def test_the_sample_is_of_scenarios_that_there_are():
    known = scenarios()
    assert [name for group in SAMPLE.values() for name in group if name not in known] == []
    assert {frozenset()} < {known[group[0]].fault.needs for group in SAMPLE.values()}


def test_a_deck_has_every_scenario_once_and_every_fault_before_any_comes_again():
    names = list(scenarios())
    order = deck(Random(3), names)
    assert sorted(order) == sorted(names)
    kinds = {name.partition("/")[0] for name in names}
    assert {name.partition("/")[0] for name in order[: len(kinds)]} == kinds


def test_a_deck_follows_from_its_seed():
    names = list(scenarios())
    assert deck(Random(5), names) == deck(Random(5), names) != deck(Random(6), names)


def test_a_harm_bit_when_all_its_proofs_are_seen():
    seen = [False, True]
    harm = Harm("SIGKILL", (Bite("an election", lambda: seen[0]), Bite("a restart", lambda: seen[1])))
    assert not harm.look()
    assert harm.unseen == ["an election"]
    seen[0] = True
    assert harm.look()
    assert harm.bit
    assert harm.unseen == []


def test_partitions_that_a_broker_does_not_lead_do_not_stand_still_because_of_it():
    """Of no partitions nothing is acknowledged, whatever is done: that is no proof of a bite."""
    leads = {0: [1, 2], 1: []}
    highest = {1: 10, 2: 20}
    traffic = SimpleNamespace(load=SimpleNamespace(acks=SimpleNamespace(highest=highest)))
    run = Run(cluster=SimpleNamespace(led_by=lambda _, broker: leads[broker]), traffic=traffic, random=Random(1))
    assert run.led([0, 1]) == [1, 2]
    assert run.moved([1, 2], 0.01) == 0
    with pytest.raises(ChaosError, match=r"brokers \[1\] lead nothing"):
        run.led([1])


SIGNALS = ("kill", "stop", "term")
WHOM = ("leader", "follower", "coordinator", "two", "all", "operator", "apiserver", "kubelet", "supervisor", "member")


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("whom", WHOM)
def test_every_process_is_killed_stopped_and_ended_in_order(signal, whom):
    """As docs/chaos.md says. Some of it is done together with something else, which shows what was left undone."""
    known = {scenario.fault.name for scenario in scenarios().values()}
    assert [name for name in known if name == f"{signal}-{whom}" or name.startswith(f"{signal}-{whom}-")]


class Stopped:
    """A cluster in which a process can be stopped; notes what goes on."""

    def __init__(self):
        self.held: list = []

    @contextmanager
    def frozen(self, *targets):
        self.held += targets
        yield
        self.held.clear()

    def led_by(self, _topic, _broker):
        return []


def harmed(cluster, traffic=None) -> Run:
    traffic = traffic or SimpleNamespace(fault=lambda *_: None)
    return Run(cluster=cluster, traffic=traffic, random=Random(1), say=lambda _: None)


@pytest.mark.parametrize("done_meanwhile", [True, False])
def test_what_a_frozen_process_left_undone_proves_the_bite_and_is_looked_at_while_it_is_frozen(done_meanwhile):
    cluster = Stopped()
    run = harmed(cluster)
    done = Bite("somebody was elected", lambda: done_meanwhile or not cluster.held)
    with frozen(run, "operator", undone("nobody was elected", done)):
        assert cluster.held == ["operator"]
    (harm,) = run.harms
    assert harm.look() is not done_meanwhile, "that it was done afterwards proves nothing"


@pytest.mark.parametrize("acked_meanwhile", [0, 1])
def test_a_moment_s_pause_bit_when_nothing_was_acknowledged_meanwhile(monkeypatch, acked_meanwhile):
    traffic = SimpleNamespace(fault=lambda *_: None, acked=0)

    def sleep(_s):
        traffic.acked += acked_meanwhile if cluster.held else 5

    cluster = Stopped()
    run = harmed(cluster, traffic)
    monkeypatch.setattr("tests.chaos.signal_faults.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("tests.chaos.faults.time", SimpleNamespace(sleep=sleep))
    scenarios()["pause-blips/single"].fault.inject(run)
    assert len(run.harms) == 8
    assert {harm.look() for harm in run.harms} == {not acked_meanwhile}


def test_a_disk_that_was_wiped_is_another_one():
    registration = {"directoryId": "a", "trustedSince": 3}
    cluster = SimpleNamespace(brokers=lambda: {1: {"status": {"registration": registration}}})
    cluster.disk_of = lambda broker: Cluster.disk_of(cluster, broker)
    bite = harmed(cluster).empty(1)
    assert not bite.seen()
    registration["trustedSince"] = 7
    assert bite.seen()


METRICS = """\
# TYPE kafkalite_log_flush_seconds histogram
kafkalite_log_flush_seconds_bucket{le="0.1"} 90.0
kafkalite_log_flush_seconds_bucket{le="0.25"} 95.0
kafkalite_log_flush_seconds_bucket{le="+Inf"} 98.0
kafkalite_log_flush_seconds_count 98.0
"""


def test_slow_flushes_are_those_that_the_broker_counts(monkeypatch):
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        return BytesIO(METRICS.encode())

    monkeypatch.setattr("tests.chaos.cluster.urllib.request.urlopen", urlopen)
    cluster = SimpleNamespace(network=None, ports=SimpleNamespace(broker_metrics=lambda number: 9000 + number))
    assert Cluster.slow_flushes(cluster, 2, SLOW_S) == 3
    assert asked == ["http://127.0.0.1:9002/metrics"]
    assert SLOW_S in FLUSH_BUCKETS_S
