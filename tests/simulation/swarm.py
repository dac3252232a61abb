"""What a seed draws before anything happens: the shape of the cluster, its timers, its load, its faults (swarm)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from random import Random

from kafkalite_broker.log.strays import UNLISTED_MS

FAULTS: dict[str, float] = {
    "crash": 4.0,
    "power": 4.0,
    "power_all": 0.7,
    "crash_effect": 3.0,
    "crash_disk": 3.0,
    "stop": 2.0,
    "pause": 3.0,
    "wipe": 1.5,
    "bit_flip": 1.0,
    "disk_full": 1.0,
    "sync_error": 1.0,
    "slow_disk": 1.0,
    "cut": 3.0,
    "isolate": 2.0,
    "api_cut": 1.5,
    "loss": 2.0,
    "repeat": 2.0,
    "delay": 2.0,
    "reset": 1.5,
    "clock_rate": 1.0,
    "clock_jump": 1.0,
    "api_outage": 1.5,
    "api_slow": 1.0,
    "api_ambiguous": 3.0,
    "api_throttle": 1.0,
    "watch_lag": 2.0,
    "watch_break": 1.0,
    "watch_expired": 1.0,
    "operator_crash": 2.0,
    "operator_pause": 1.5,
    "recreate_topic": 0.5,
    "lose_topic": 0.4,
    "delete_records": 2.0,
    "reassign": 0.8,
    "churn": 1.5,
    "depose": 1.5,
    "stale_patch": 1.0,
    "flush_config": 0.3,
    "min_isr": 0.7,
    "grow": 0.3,
}
"""Kinds of faults with their usual weight; each seed leaves some out and makes others frequent."""

EDGE_FAULTS: dict[str, float] = {
    "write_error": 2.0,
    "read_error": 2.0,
    "client_cut": 2.0,
    "client_delay": 1.0,
    "client_reset": 2.0,
    "api_reset": 1.5,
    "api_delay": 1.0,
    "api_reject": 1.5,
    "late_list": 1.0,
    "lagging_server": 1.5,
}
"""The same of `EdgeFaults`, which have streams of their own."""

SILENCES: dict[str, float] = {"unanswered": 3.0}
"""The same of `Silences`, which have a stream of their own as well."""

GROUP_TOPIC = "t0"
"""The topic that members of the group read; every history has it."""

READERS_MAX = 2
"""Consumers in a history."""

UNDONE = frozenset({"lose_topic", "remake_cluster", "restore"})
"""Faults after which users want back what brokers set aside."""

KINDS = frozenset({*FAULTS, *EDGE_FAULTS, *SILENCES, "scale", "remake_cluster", "restore"})
"""All of them: these three have a stream of their own in `draw`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """One topic."""

    name: str
    partitions: int
    replicas: int
    config: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The draw of one seed. Times in ms of virtual time unless they say otherwise.

    The chaos ends after `chaos_ms`, or when `events` have happened and enough faults have bitten: what more of the same
    cluster would show, another seed shows sooner. `racks` are those of brokers, by id, and `reader_racks` of consumers, by
    number; none without rack awareness (KIP-392). Consumers fetch with `fetch_version`; before 11 only leaders serve them.
    """

    brokers: int
    operators: int
    topics: tuple[TopicShape, ...]
    chaos_ms: float
    events: int
    network_ms: float
    fsync_ms: float
    tick_ms: float
    checkpoint_ms: float
    lag_time_max_ms: int
    fetch_wait_ms: float
    fetch_max_bytes: int
    sessions: bool
    partition_max_bytes: int
    request_timeout_ms: float
    tail_bytes: int
    disk_room: int
    reserve_bytes: int
    stray_deleted_retention_ms: int
    stray_unlisted_ms: float
    retention: bool
    producers: int
    pause_ms: float
    consumers: int
    members: int
    patience_ms: float
    fault_every_ms: float
    faults: dict[str, float] = field(default_factory=dict)
    clock_rate_spread: float = 0.0
    auto_balance_s: int = 300
    scales: bool = False
    in_flight: int = 1
    transfer_ms: float = 0.0
    renewal_ms: float = 0.0
    racks: tuple[str, ...] = ()
    reader_racks: tuple[str, ...] = ()
    fetch_version: int = 13

    def lines(self) -> list[str]:
        """For people."""
        return [f"  {item.name}: {getattr(self, item.name)}" for item in fields(self)]


def draw(seed: int) -> Shape:
    """The shape of a history."""
    chance = Random(f"{seed}/swarm")
    brokers = chance.choice((3, 3, 3, 3, 4, 4, 5, 5, 6, 7))
    topics = [_topic(chance, f"t{number}", brokers) for number in range(chance.choice((1, 1, 1, 2)))]
    faults = {kind: weight * chance.choice((0.0, 0.5, 1.0, 1.0, 3.0)) for kind, weight in FAULTS.items()}
    if not any(faults.values()):
        faults["crash"] = 1.0
    partitions = sum(topic.partitions for topic in topics)
    # A stream of its own: other histories stay what they were.
    scales = brokers >= 4 and Random(f"{seed}/scale").random() < 0.5
    if scales:
        faults["scale"] = 3.0
    if Random(f"{seed}/remake").random() < 0.2:
        faults["remake_cluster"] = 1.0
    if Random(f"{seed}/restore").random() < 0.15:
        faults["restore"] = 4.0  # every second one only takes the backup
    tidy = Random(f"{seed}/purge")
    for topic in topics:
        if tidy.random() < 0.6:
            topic.config["file.delete.delay.ms"] = str(tidy.choice((0, 500, 3_000)))
    hasty = Random(f"{seed}/strays").random()  # as if the history took hours
    if hasty < 0.25:
        # Who undoes a deletion, or the loss of a topic that some brokers took for one, has to do so in time.
        faults = {kind: weight for kind, weight in faults.items() if kind not in UNDONE} or {"crash": 1.0}
    elif hasty < 0.5:
        faults["disk_full"] = max(3.0, faults["disk_full"])
    edges = Random(f"{seed}/edges")
    faults |= {kind: weight * edges.choice((0.0, 0.5, 1.0, 1.0, 3.0)) for kind, weight in EDGE_FAULTS.items()}
    silences = Random(f"{seed}/silences")
    faults |= {kind: weight * silences.choice((0.0, 0.5, 1.0, 1.0, 3.0)) for kind, weight in SILENCES.items()}
    places = Random(f"{seed}/racks")
    racks, reader_racks = _racks(places, brokers)
    window = Random(f"{seed}/in_flight")
    return Shape(
        brokers=brokers,
        operators=chance.choice((1, 1, 2, 2, 3)),
        topics=tuple(topics),
        chaos_ms=chance.uniform(12_000.0, 36_000.0),
        events=chance.randrange(2_500, 6_000),
        network_ms=chance.choice((0.3, 1.0, 3.0)),
        fsync_ms=chance.choice((0.2, 1.0, 4.0)),
        tick_ms=chance.choice((200.0, 300.0, 500.0)),
        checkpoint_ms=chance.choice((1_000.0, 5_000.0)),
        lag_time_max_ms=chance.choice((500, 1_500, 4_000)),
        fetch_wait_ms=chance.choice((100.0, 500.0)),
        sessions=chance.random() < 0.6,
        fetch_max_bytes=chance.choice((600, 4_000, 100_000)),
        partition_max_bytes=chance.choice((300, 1_000, 100_000)),
        request_timeout_ms=chance.choice((1_500.0, 5_000.0)),
        tail_bytes=chance.choice((0, 3_000, 1_000_000, 1_000_000)),
        disk_room=8_000_000,
        reserve_bytes=Random(f"{seed}/reserve").choice((0, 4_096, 16_384)),
        retention=chance.random() < 0.2 or tidy.random() < 0.3,
        stray_deleted_retention_ms=3_000 if hasty < 0.25 else 3_600_000,
        stray_unlisted_ms=6_000.0 if hasty < 0.5 else UNLISTED_MS,
        producers=chance.choice((1, 2, 2, 3)),
        pause_ms=chance.uniform(0.5, 2.0) * 32.0 * partitions,
        consumers=chance.choice((1, 2)),
        members=chance.choice((0, 0, 0, 2, 3)),
        patience_ms=chance.choice((400.0, 2_500.0)),
        fault_every_ms=chance.choice((250.0, 400.0, 700.0)),
        faults={kind: weight for kind, weight in faults.items() if weight},
        clock_rate_spread=chance.choice((0.0, 0.0, 0.02, 0.3)),
        auto_balance_s=chance.choice((5, 20, 300)),
        scales=scales,
        in_flight=window.choice((1, 2, 3, 4, 5, 5, 5, 5)),
        transfer_ms=window.choice((0.0, 1.0, 4.0, 12.0)),
        renewal_ms=window.choice((0.0, 600.0, 2_000.0)),
        racks=racks,
        reader_racks=reader_racks,
        fetch_version=places.choice((10, 13, 13)),
    )


def _racks(chance: Random, brokers: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every second cluster has racks, of which a broker may know nothing; consumers are in one of them, or in none."""
    names = ("r0", "r1", "r2")[: chance.choice((0, 0, 2, 3))]
    if not names:
        return (), ()
    of_brokers = tuple(names[number % len(names)] if chance.random() < 0.9 else "" for number in range(brokers))
    return of_brokers, tuple(chance.choice(("", *names, *names)) for _ in range(READERS_MAX))


def _topic(chance: Random, name: str, brokers: int) -> TopicShape:
    replicas = min(brokers, chance.choice((1, 2, 3, 3, 3, 3, 3, 4, 5)))
    min_isr = max(1, min(replicas, chance.choice((1, 2, 2, 2, 2, 3)), replicas if chance.random() < 0.1 else 2))
    config = {"min.insync.replicas": str(min_isr)}
    if chance.random() < 0.3:
        config["segment.bytes"] = str(chance.choice((1_024, 4_096)))
    if chance.random() < 0.12:
        config["flush.messages"] = "1000"
    if chance.random() < 0.05:
        config["unclean.leader.election.enable"] = "true"
    return TopicShape(name=name, partitions=chance.choice((1, 1, 2, 3, 6)), replicas=replicas, config=config)
