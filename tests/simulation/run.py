"""One history: set up, chaos, heal, liveness, final read."""

from __future__ import annotations

import gc
import re
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.topic import STORE_WENT_BACK
from kafkalite_core.protocol.errors import ErrorCode
from tests.simulation.cluster import SimCluster, object_name
from tests.simulation.faults import Faults
from tests.simulation.final import final_read
from tests.simulation.oracles import last_resort
from tests.simulation.oracles.safety import counting_ids
from tests.simulation.swarm import draw
from tests.simulation.world import LimitReached, Violation, World

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.swarm import Shape

SETUP_MS = 30_000.0
LIVENESS_MS = 90_000.0
STEP_MS = 500.0
FAULTS_WANTED, ACKED_WANTED = 8, 500


@dataclass(slots=True, kw_only=True)
class Result:
    """How a history went. With a `limit` it ended there: what had happened was judged, and nothing after it."""

    seed: int
    violation: dict[str, object] | None
    limit: str = ""
    events: int
    faults_bitten: dict[str, int]
    acked: int
    excused: int = 0
    given_up: int = 0
    virtual_ms: float
    wall_s: float
    cpu_s: float
    digest: int
    elections: int
    refusals: dict[int, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No invariant was broken."""
        return self.violation is None

    def line(self) -> dict[str, object]:
        """For a line of JSON."""
        return {
            "seed": self.seed,
            "ok": self.ok,
            "violation": self.violation,
            "limit": self.limit,
            "events": self.events,
            "faults_bitten": self.faults_bitten,
            "acked": self.acked,
            "excused": self.excused,
            "given_up": self.given_up,
            "virtual_ms": round(self.virtual_ms),
            "wall_s": round(self.wall_s, 4),
            "cpu_s": round(self.cpu_s, 4),
        }


def run_seed(seed: int, *, tracing: bool = False, shape: Shape | None = None) -> Result:
    """Run the history of a seed to its end, or to the first violation."""
    started, cpu_started = time.perf_counter(), time.process_time()
    world = World(seed, tracing=tracing)
    cluster = SimCluster(world, shape or draw(seed))
    violation: dict[str, object] | None = None
    limit = ""
    gc.disable()
    try:
        play(cluster)
    except Violation as found:
        world.trace("oracle", str(found))
        violation = {
            "invariant": found.invariant,
            "text": found.text,
            "event_index": world.events,
            "time_ms": round(world.now, 3),
        }
    except LimitReached as reached:
        world.trace("oracle", str(reached))
        limit = str(reached)
    except Exception as error:  # outside of all events: of the simulator itself; the histories after it go on
        text = "".join(traceback.format_exception(error)[-6:])
        violation = {"invariant": "no defect", "text": text, "event_index": world.events, "time_ms": world.now}
    finally:
        gc.enable()
    return Result(
        seed=seed,
        violation=violation,
        limit=limit,
        events=world.events,
        faults_bitten=dict(sorted(world.bitten.items())),
        acked=cluster.history.acked,
        excused=cluster.history.excused,
        given_up=cluster.history.given_up,
        virtual_ms=world.now,
        wall_s=time.perf_counter() - started,
        cpu_s=time.process_time() - cpu_started,
        digest=world.digest,
        elections=cluster.oracles.elections_seen,
        refusals=dict(cluster.history.refusals),
        trace=world.lines,
    )


def play(cluster: SimCluster) -> None:
    """All phases. Raises `Violation`, and `LimitReached` where nothing more is promised."""
    world, shape = cluster.world, cluster.shape
    cluster.begin()
    _until(cluster, SETUP_MS, "the cluster starts")
    faults = Faults(cluster)
    faults.begin()
    end = world.now + shape.chaos_ms
    while world.now < end and not _seen_enough(cluster):
        _pass(cluster, min(world.now + STEP_MS, end))
    world.trace("phase", "heal")
    faults.heal()
    for member in cluster.members:
        member.steady = True
    _until(cluster, LIVENESS_MS, "the cluster recovers")
    before = cluster.history.acked
    _until_acked(cluster, before)
    world.trace("phase", "final read")
    for producer in cluster.producers:
        producer.stopped = True
    _pass(cluster, world.now + 3_000.0)
    _until(cluster, LIVENESS_MS, "the cluster rests")  # a leadership may have moved meanwhile, to who hears late
    final_read(cluster)


def _pass(cluster: SimCluster, until_ms: float) -> None:
    """Let time go by, and look at what is kept."""
    cluster.world.run(until_ms)
    cluster.oracles.bounded.check(cluster)


def _seen_enough(cluster: SimCluster) -> bool:
    """Neither quiet nor idle: a history whose producers hardly get through goes on for a while."""
    world, events = cluster.world, cluster.shape.events
    if world.events < events or world.bitten.total() < FAULTS_WANTED:
        return False
    return cluster.history.acked >= ACKED_WANTED or world.events >= 1.5 * events


def _until(cluster: SimCluster, limit_ms: float, what: str) -> None:
    world = cluster.world
    deadline = world.now + limit_ms
    while True:
        problem = unhealthy(cluster)
        if not problem:
            return
        if world.now >= deadline:
            raise Violation("liveness", f"{what}: after {limit_ms / 1000:.0f} s {problem}")
        _pass(cluster, world.now + STEP_MS)


def _until_acked(cluster: SimCluster, before: int) -> None:
    world = cluster.world
    deadline = world.now + 20_000.0
    while cluster.history.acked == before:
        if world.now >= deadline:
            raise Violation("liveness", "nothing is acknowledged after everything was healed")
        _pass(cluster, world.now + STEP_MS)


def unhealthy(cluster: SimCluster) -> str:
    """What is not as it should be without faults; empty when all is well."""
    for host in cluster.host_list:
        broker = host.broker
        if broker is None or not broker.serving:
            return f"broker {host.id} does not run"
        known = cluster.oracles.brokers.get(host.id)
        if known is None or not known.alive or known.epoch != broker.broker_epoch:
            return f"broker {host.id} is not registered and alive: {known}"
        if not broker.link.knows_of_the_restore():
            # It goes by what the store does not show any more: all that looks well here is about to end.
            return f"broker {host.id} has not listed anew since the store went back in time"
    for topic in cluster.topics:
        obj = cluster.api.objects["topics"].get(object_name(topic.name))
        status = (obj or {}).get("status") or {}
        wanted = 0 if obj is None else obj["spec"]["partitions"]
        entries = status.get("partitions") or {}
        words = _without_disks(status)
        if words and not _is_asked_again(cluster, topic.name, words):
            return f"topic {topic.name} waits for consent"
        if obj is None or len(entries) < wanted:
            return f"topic {topic.name} has {len(entries)} partitions of {wanted}"
        for number, entry in sorted(entries.items()):
            if lost(cluster, status["topicId"], int(number)):
                cluster.consent(topic.name)
            if entry["leader"] < 0:
                return f"{topic.name}-{number} has no leader: {entry}"
            wish = obj["spec"].get("replicaAssignment", {}).get(number)
            wished = set(entry["replicas"]) == set(wish) if wish else len(entry["replicas"]) == obj["spec"]["replicas"]
            if entry.get("adding") or entry.get("removing") or not wished:
                return f"{topic.name}-{number} has not the replicas of {obj['spec']}: {entry}"
            least = int(obj["spec"]["config"].get("min.insync.replicas", "1"))
            if entry["minIsr"] != max(1, min(least, len(entry["replicas"]))):
                return f"{topic.name}-{number}: min ISR is to be {least}: {entry}"
            if len(entry["isr"]) < len(entry["replicas"]):
                return f"{topic.name}-{number} is not in sync: {entry}"
            broker = cluster.hosts[entry["leader"]].broker
            driver = None if broker is None else broker.driver(topic.name, int(number))
            if driver is None or not driver.is_leader or driver.ref.topic_id != status["topicId"]:
                return f"{topic.name}-{number}: broker {entry['leader']} does not lead it"
            if driver.replica.high_watermark < driver.ledger.committed_end:
                return f"{topic.name}-{number}: {driver.ledger.committed_end} is committed, less is shown"
            for host in cluster.host_list:
                if _knows_more(host, topic.name, int(number), entry):
                    return f"{topic.name}-{number}: broker {host.id} knows more than the store shows: {entry}"
    return _restless_group(cluster)


def _without_disks(status: dict[str, Any]) -> str:
    """What a topic says that waits for consent to a recovery (S11) or adoption (S10), since all that were in sync lost
    their disks; empty for one that does not.
    """
    told = [each for each in status.get("conditions") or [] if each["type"] in {"Ready", "Progressing"}]
    said = [each["message"] for each in told if each["reason"] in {STORE_WENT_BACK, "InSyncLost"}]
    return next((words for words in said if "without their data" in words), "")


def _is_asked_again(cluster: SimCluster, topic: str, words: str) -> bool:
    """The user consents to what he reads twice: a condition may be of before somebody listed what he has, and stands
    for as long as no operator works. So brokers have to list the same both times, and an operator has to know it.
    """
    asked_for = re.search(r"data of topic id (\S+),", words)
    listed = last_resort.lists_of(cluster.oracles.brokers, asked_for[1]) if asked_for else set()
    before = cluster.asked.get(topic)
    cluster.asked[topic] = words, listed
    if asked_for:
        if before != (words, listed) or last_resort.lists_of(cluster.oracles.decided_on, asked_for[1]) != listed:
            return False
        last_resort.asked(cluster.oracles, asked_for[1])
    cluster.consent_to_recover(topic)
    return True


def _knows_more(host: Host, topic: str, number: int, entry: dict[str, Any]) -> bool:
    """The store went back in time, whether that broker has heard of it or not, and the partition is to be recovered."""
    driver = None if host.broker is None else host.broker.driver(topic, number)
    if driver is None:
        return False
    holding = driver.replica.holding()
    shown: tuple[int, int] = entry["leaderEpoch"], entry["partitionEpoch"]
    return holding.leader_epoch > shown[0] or holding.partition_epoch > shown[1]


def _restless_group(cluster: SimCluster) -> str:
    members = cluster.members
    if not members:
        return ""
    owned = sorted(number for member in members for number in member.owned)
    if not all(member.stable for member in members) or owned != list(range(members[0].partitions)):
        return f"the group is not stable: {[(m.name, m.stable, m.generation, m.owned) for m in members]}"
    return ""


def lost(cluster: SimCluster, topic_id: str, number: int) -> bool:
    """The last candidate is gone, with a disk or by what nobody can prove: the partition waits for a person's consent."""
    oracles = cluster.oracles
    ledger = oracles.ledgers.get((topic_id, number))
    if ledger is None or ledger.entry is None or ledger.entry.has_leader:
        return False
    unnoted = any(cluster.hosts[i].unnoted for i in (*ledger.entry.isr_ids(), *ledger.entry.elr_ids()))
    if not (ledger.damaged or ledger.relaxed or unnoted):
        return False
    return not counting_ids(ledger.entry, oracles.brokers, relaxed=ledger.relaxed)


NAMES = {int(code): code.name for code in ErrorCode}
