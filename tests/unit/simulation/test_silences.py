"""A broker's patches are not answered for a while: its leaders do not know what has landed, and wait for all of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from kafkalite_core.replica.events import CasOutcome, ProposalAnswered
from kafkalite_core.replica.isr import IsrChanges
from tests.simulation.driver import Driver
from tests.simulation.faults import Faults
from tests.simulation.run import _until, run_seed
from tests.simulation.silence import LENGTHS, Length, Silence, _lets_join
from tests.simulation.swarm import EDGE_FAULTS, FAULTS, SILENCES, TopicShape, draw

TOPIC = TopicShape(name="t0", partitions=1, replicas=3, config={"min.insync.replicas": "2"})
SHAPE = replace(
    draw(0), brokers=3, operators=1, topics=(TOPIC,), members=0, producers=1, consumers=1, pause_ms=50.0,
    clock_rate_spread=0.0, retention=False, network_ms=1.0, fsync_ms=1.0, scales=False, fault_every_ms=400.0,
    faults={"unanswered": 1.0}, chaos_ms=30_000.0, events=60_000,
)  # fmt: skip


def silence(host: str, length: Length, *, joins: bool = False, applies: bool = True) -> Silence:
    chance = SimpleNamespace(random=lambda: 0.9 if applies else 0.1)
    return Silence(host, length, chance, joins=joins, on_begin=lambda: None)


def test_it_is_in_the_default_swarm_and_leaves_the_others_as_they_are(fresh) -> None:
    drawn = [draw(seed).faults for seed in range(100)]
    assert 40 < sum("unanswered" in faults for faults in drawn) < 95
    assert not SILENCES.keys() & (FAULTS.keys() | EDGE_FAULTS.keys())
    faults = {"crash": 1.0, **EDGE_FAULTS}
    fresh.shape = replace(fresh.shape, faults={**faults, **SILENCES})
    with_silences = Faults(fresh)
    fresh.shape = replace(fresh.shape, faults=faults)
    without = Faults(fresh)
    assert with_silences._faults == without._faults == {"crash": 1.0}
    assert with_silences._edges._faults == without._edges._faults
    assert with_silences._edges._every_ms == without._edges._every_ms
    assert with_silences._silences._faults == SILENCES
    assert not without._silences._faults


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("broken", [True, False])
def test_a_leader_does_not_know_what_became_of_a_change(fresh, monkeypatch, broken, applies) -> None:
    (ledger,) = fresh.oracles.ledgers.values()
    leader, isr = fresh.hosts[ledger.entry.leader], ledger.entry.isr
    unknown: list[float] = []
    step = Driver.step

    def stepped(self: Driver, event) -> None:
        if isinstance(event, ProposalAnswered) and event.outcome is CasOutcome.UNKNOWN:
            unknown.append(fresh.world.now)
        step(self, event)

    monkeypatch.setattr(Driver, "step", stepped)
    length = Length(broken, 2_000.0 if broken else 9_000.0, 15_000.0)
    api = fresh.api
    silent = api.silences[leader.name] = silence(leader.name, length, joins=True, applies=applies)
    assert not any(watch.lag_ms for watch in api.watches)
    fresh.world.arm("unanswered")
    fresh.world.bury_now(fresh.hosts[next(m.id for m in isr if m.id != ledger.entry.leader)].broker.process, "crash")
    while not fresh.world.effects["unanswered"]:
        fresh.world.run(fresh.world.now + 10.0)
    began, before = fresh.world.now, leader.broker.cache.partition(leader.broker.driver("t0", 0).ref, 0)
    assert {watch.kind for watch in api.watches if watch.lag_ms} == {"topics"}
    assert {watch.host for watch in api.watches if watch.lag_ms} == {leader.name}
    assert (ledger.entry != before) is applies
    while not unknown:
        fresh.world.run(fresh.world.now + 10.0)
    assert (unknown[0] - began < 1_000.0) is broken
    assert fresh.world.bitten["unanswered"] == 1
    del api.silences[leader.name]
    for watch in silent.watches(api):
        watch.lag_ms = 0.0
    _until(fresh, 90_000.0, "the cluster recovers")


def test_it_is_the_patches_of_topics_of_one_broker_and_ends(fresh) -> None:
    patch = [{"op": "replace", "path": "/status/partitions/0", "value": {"isr": [0], "isrBrokerEpochs": [9]}}]
    silent = silence("b0", Length(True, 100.0, 0.0))
    assert not silent.takes(fresh.api, 0.0, "brokers", "b0", patch)
    assert silent.takes(fresh.api, 50.0, "topics", "t0", patch)
    assert silent.takes(fresh.api, 149.0, "topics", "t0", patch)
    assert not silent.takes(fresh.api, 150.0, "topics", "t0", patch)
    shares = Silence("b0", LENGTHS[0], Random(1), joins=False, on_begin=lambda: None)
    assert 180 < sum(shares.applies() for _ in range(300)) < 220


def test_a_patch_lets_somebody_join(fresh) -> None:
    (found,) = [obj for name, obj in fresh.api.objects["topics"].items() if name == "t0"]
    entry = found["status"]["partitions"]["0"]
    first, *rest = zip(entry["isr"], entry["isrBrokerEpochs"], strict=True)

    def lets_join(members) -> bool:
        ids, epochs = ([member[index] for member in members] for index in range(2))
        value = {**entry, "isr": ids, "isrBrokerEpochs": epochs}
        return _lets_join(found, [{"op": "replace", "path": "/status/partitions/0", "value": value}])

    assert not lets_join(rest)
    assert lets_join([first, *rest, (9, 1)])
    assert lets_join([(first[0], 99), *rest])
    assert not _lets_join(None, [{"op": "test", "path": "/status/partitions/0", "value": 1}])


def test_it_bites_in_a_history_that_is_clean() -> None:
    result = run_seed(11, shape=SHAPE)
    assert result.ok, result.violation
    assert result.faults_bitten["unanswered"] >= 2
    assert set(result.faults_bitten) <= {"unanswered", "crash"}


def test_a_history_with_it_finds_a_leader_that_takes_no_answer_for_no(monkeypatch) -> None:
    answered = IsrChanges.answered

    def taken(self: IsrChanges, now_ms: float, event: ProposalAnswered):
        found = answered(self, now_ms, event)
        if event.outcome is CasOutcome.UNKNOWN:
            self.pending = None
        return found

    monkeypatch.setattr(IsrChanges, "answered", taken)
    found = run_seed(11, shape=SHAPE).violation
    assert found is not None
    assert found["invariant"] == "quorum superset"


def test_heal_ends_it(fresh) -> None:
    fresh.shape = replace(fresh.shape, faults=dict(SILENCES))
    faults = Faults(fresh)
    for _ in range(5):
        faults._silences._unanswered()
    assert fresh.api.silences
    faults.heal()
    assert not fresh.api.silences
    assert not any(watch.lag_ms for watch in fresh.api.watches)
