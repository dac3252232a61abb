"""What the doctor says, and what it looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite_cli.pasting import Commands
from kafkalite_cli.snapshot import topic_name
from kafkalite_cli.topics.objects import cluster_of

if TYPE_CHECKING:
    from kafkalite_cli.brokers.operator_lease import Leases
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.partition import Topic

JsonObject = dict[str, Any]
PROBLEM, NOTE = "problem", "note"
LISTED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong (`problem`), or worth knowing (`note`).

    Attributes:
        code: One word, for machines.
        about: The object, as `kind/name`.
        what: A sentence: what is.
        why: Why it is, as far as it can be told; may be empty.
        todo: What to do about it; may be empty.
        items: Everything that it is about (partitions, topics), where that is more than one.
    """

    code: str
    about: str
    what: str
    why: str = ""
    todo: str = ""
    items: tuple[str, ...] = ()
    severity: str = PROBLEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything of one cluster that could be read. None: that kind may not be read.

    Attributes:
        silent: `namespace/name` of Leases that did not change while they were looked at.
        broken: Objects that cannot be understood, and why.
        now: Wall clock, in seconds.
        say: The commands that are offered.
    """

    namespace: str
    cluster: JsonObject
    brokers: dict[int, Broker] = field(default_factory=dict)
    broker_objects: dict[int, JsonObject] = field(default_factory=dict)
    topics: list[JsonObject] = field(default_factory=list)
    parsed: dict[str, Topic] = field(default_factory=dict)
    leases: Leases | None = None
    silent: frozenset[str] = frozenset()
    pods: dict[str, JsonObject] | None = None
    stateful_sets: dict[str, JsonObject] | None = None
    claims: dict[str, JsonObject] | None = None
    warnings: dict[tuple[str, str], JsonObject] | None = None
    broken: dict[str, str] = field(default_factory=dict)
    now: float = 0.0
    say: Commands = field(default_factory=Commands)

    @property
    def name(self) -> str:
        """`metadata.name` of the cluster."""
        return str(self.cluster["metadata"]["name"])

    @property
    def replicas(self) -> int:
        """Brokers that are wanted."""
        return int(self.cluster["spec"].get("replicas", 3))

    def kubectl(self, words: str) -> str:
        """A command about an object of the cluster's namespace."""
        return self.say.kubectl(self.namespace, words)

    def warning(self, kind: str, name: str) -> str:
        """The newest Warning about an object, as `Reason: message`; empty when there is none."""
        event = (self.warnings or {}).get((kind, name))
        return f"{event.get('reason')}: {event.get('message')}" if event else ""


def listed(items: list[str] | tuple[str, ...]) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(items) - LISTED_MAX:,} more" if len(items) > LISTED_MAX else ""
    return ", ".join(items[:LISTED_MAX]) + more


def count(number: int, noun: str) -> str:
    """`1 partition`, `1,200 partitions`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def belongs(topic: JsonObject, evidence: Evidence) -> bool:
    """Whether the topic is of this cluster."""
    return cluster_of(topic) == evidence.name


def label(topic: JsonObject) -> str:
    """Kafka's name."""
    return topic_name(topic)
