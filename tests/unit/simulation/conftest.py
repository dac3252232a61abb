"""A healthy cluster, and the truth about its only partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation import run
from tests.simulation.cluster import SimCluster
from tests.simulation.oracles.order import ReadOrder
from tests.simulation.oracles.past import Past
from tests.simulation.swarm import TopicShape, draw
from tests.simulation.world import World


def begun() -> SimCluster:
    """Three brokers that have started, and one partition on all of them."""
    topic = TopicShape(name="t0", partitions=1, replicas=3, config={"min.insync.replicas": "2"})
    shape = replace(
        draw(0), brokers=3, operators=1, topics=(topic,), members=0, producers=1, consumers=1, pause_ms=50.0,
        clock_rate_spread=0.0, retention=False, network_ms=1.0, fsync_ms=1.0,
    )  # fmt: skip
    cluster = SimCluster(World(0), shape)
    cluster.begin()
    run._until(cluster, 30_000.0, "the cluster starts")
    return cluster


@pytest.fixture(scope="module")
def healthy() -> SimCluster:
    cluster = begun()
    cluster.world.run(cluster.world.now + 3_000.0)
    return cluster


@pytest.fixture
def fresh() -> SimCluster:
    """One of its own, to break."""
    return begun()


@pytest.fixture
def ledger(healthy):
    (found,) = healthy.oracles.ledgers.values()
    healthy.oracles.read_order = ReadOrder()
    names = (
        "committed_end", "entry", "marks", "leaders", "elected_at", "lossy", "unnoticed", "lossy_since", "losses",
        "behind", "newest", "past", "given_up", "unclean_since", "deposed_ends",
        "deletable", "min_isrs", "forfeited", "superseded", "destroyed",
    )  # fmt: skip
    kept = {name: getattr(found, name) for name in names}
    found.past, found.given_up, found.deposed_ends, found.min_isrs = Past(found), set(), {}, set(found.min_isrs)
    committed, written, sequences = list(found.committed), dict(found.written), dict(found.sequences)
    lines, found.lines = found.lines, dict(found.lines)
    found.marks, found.leaders, found.elected_at = dict(found.marks), dict(found.leaders), dict(found.elected_at)
    yield found
    for name, value in kept.items():
        setattr(found, name, value)
    found.committed, found.written, found.sequences, found.lines = committed, written, sequences, lines


@pytest.fixture
def leader(healthy, ledger):
    return healthy.hosts[ledger.entry.leader].broker.driver("t0", 0)


@pytest.fixture
def follower(healthy, ledger):
    other = next(i for i in ledger.entry.isr_ids() if i != ledger.entry.leader)
    return healthy.hosts[other].broker.driver("t0", 0)
