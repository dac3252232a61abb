"""Judges the history of the cluster's objects: what may become of a partition entry, and what of a broker. Pure.

For every partition, (old, new) being neighbours in the store's order:

    leaderEpoch never falls, partitionEpoch rises by one with every change         leader-epoch-fell |
                                                       partition-epoch-fell | two-changes | skipped-epoch
    a leader has a leader epoch of its own, for ever and whatever object holds it  leader-without-epoch | two-leaders
    leader in isr, isr within replicas, isr never empty, elr disjoint and within   leader-outside-isr |
                                                       isr-outside-replicas | empty-isr | elr-wrong
    an elected leader was in the old isr or elr and had lost nothing (S2), unless
    an unclean election is allowed                                                 unclean-election
    its pair holds the broker epoch that it is registered with (S1)                wrong-broker-epoch
    it was not fenced (R15)                                                        fenced-leader
    who comes into the isr is registered with that broker epoch (R7)               never-registered
    who comes into the elr was in isr or elr (R10)                                 elr-from-nowhere

and for objects: controllerEpoch and broker epochs never fall (controller-epoch-fell, broker-epoch-fell, fence-fell), no
two incarnations of a cluster share a broker epoch (broker-epoch-reused), topicId and partitions stay (topic-id-changed,
partition-vanished).

Partition and broker are different objects: a broker may be registered anew or fenced between the look at it and the
compare-and-swap of the partition. That is an anomaly only when it is older than `RACE_MS`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kafkalite_cli.verify.metadata_brokers import RACE_MS, BrokerHistory
from kafkalite_cli.verify.metadata_history import Change, JsonObject, in_store_order, read_changes
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources.brokers import cluster_of_broker, parse_broker
from kafkalite_core.resources.naming import ANNOTATION_ELECT_UNCLEAN
from kafkalite_core.resources.topic_objects import parse_election
from kafkalite_core.resources.topics import parse_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from kafkalite_core.model.partition import Partition, Topic

__all__ = ["RACE_MS", "MetadataAnomaly", "MetadataChecker", "MetadataReport", "check_changes", "check_metadata"]

_ClusterKey = tuple[str, str]  # namespace, name
EXAMPLES_MAX = 20  # per kind; the counts are exact
UNCLEAN_KEY = "unclean.leader.election.enable"


class MetadataAnomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule: `name` is `topic-partition` or the name of the object."""

    kind: str
    name: str
    version: int
    at_us: int
    text: str


class MetadataReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict. `ok` iff there is no anomaly but of allowed kinds.

    Attributes:
        changes: Changes of objects that were looked at.
        partition_changes: Changes of partition entries.
        elections: A leader, or none, was chosen anew.
        unclean_elections: By a leader that may lack acknowledged records, allowed or not.
        isr_shrinks: Changes of an ISR that lost a member.
        isr_expands: Changes of an ISR that gained one.
        unjudged: Elections whose previous state may have been missed.
        gaps: How often the watch broke.
        brokers: Brokers whose registrations were seen; 0: the rules about them were not judged.
    """

    ok: bool
    changes: int
    partition_changes: int
    elections: int
    unclean_elections: int
    isr_shrinks: int
    isr_expands: int
    unjudged: int
    gaps: int
    brokers: int
    counts: dict[str, int]
    examples: list[MetadataAnomaly]


class _TopicRules(NamedTuple):
    """What is allowed and promised for a topic at the time of a change, and by whose brokers it is judged."""

    brokers: BrokerHistory
    unclean_allowed: Collection[int]  # partitions
    relaxed_flush: bool


class _TopicState:
    """One object as it was last seen."""

    __slots__ = ("gap", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.gap = False  # changes after this one may have been missed


class MetadataChecker:
    """Feed it every change in the store's order, then ask for the report."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = frozenset(allowed)
        self._topics: dict[str, _TopicState] = {}
        self._brokers: dict[_ClusterKey, BrokerHistory] = {}
        self._controllers: dict[str, int] = {}  # uid of cluster -> controller epoch
        self._leaders: dict[tuple[str, int], dict[int, int]] = {}  # (topic id, partition) -> leader epoch -> leader
        self._cluster_configs: dict[_ClusterKey, dict[str, str]] = {}
        self._counts: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()
        self._examples: list[MetadataAnomaly] = []
        self._now: Change | None = None

    def feed(self, changes: Iterable[Change]) -> MetadataChecker:
        """Take in changes; returns self. Raises HistoryError or ResourceError for objects that make no sense."""
        for change in changes:
            self._now = change
            if change.object is None:
                self._tally["gaps"] += 1
                for state in self._topics.values():
                    state.gap = True
                for brokers in self._brokers.values():
                    brokers.gap()
                continue
            self._tally["changes"] += 1
            match change.kind:
                case "KafkaLiteTopic":
                    self._topic(change, change.object)
                case "KafkaLiteBroker":
                    broker, cluster = parse_broker(change.object), cluster_of_broker(change.object)
                    namespace = str(change.object["metadata"].get("namespace", ""))
                    self._brokers_of((namespace, cluster)).see(broker, change)
                case "KafkaLiteCluster":
                    self._cluster(change.object)
                case _:
                    pass
        return self

    def report(self) -> MetadataReport:
        """The verdict on what was fed."""
        return MetadataReport(
            ok=not set(self._counts) - self._allowed,
            changes=self._tally["changes"],
            partition_changes=self._tally["partition_changes"],
            elections=self._tally["elections"],
            unclean_elections=self._tally["unclean"],
            isr_shrinks=self._tally["shrinks"],
            isr_expands=self._tally["expands"],
            unjudged=self._tally["unjudged"],
            gaps=self._tally["gaps"],
            brokers=sum(brokers.count for brokers in self._brokers.values()),
            counts=dict(self._counts),
            examples=self._examples,
        )

    def _found(self, kind: str, name: str, text: str) -> None:
        assert self._now is not None
        self._counts[kind] += 1
        if self._counts[kind] <= EXAMPLES_MAX:
            where = {"version": self._now.version, "at_us": self._now.at_us}
            self._examples.append(MetadataAnomaly(kind=kind, name=name, text=text, **where))

    # --- objects

    def _cluster(self, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        uid, name = str(metadata.get("uid", "")), str(metadata["name"])
        config = (obj.get("spec") or {}).get("config") or {}
        self._cluster_configs[str(metadata.get("namespace", "")), name] = config
        epoch = int(((obj.get("status") or {}).get("controller") or {}).get("epoch") or 0)
        before = self._controllers.get(uid, 0)
        if epoch < before:
            self._found("controller-epoch-fell", name, f"the controller's epoch {epoch} came after {before}")
        self._controllers[uid] = max(before, epoch)

    def _topic(self, change: Change, obj: JsonObject) -> None:
        topic = parse_topic(obj)
        state = self._topics.get(topic.ref.uid)
        if change.type == "DELETED":
            self._topics.pop(topic.ref.uid, None)
            return
        if state is not None and topic.resource_version == state.topic.resource_version:
            return  # listed once more
        before = state.topic if state is not None else None
        if before is not None:
            self._object_rules(before, topic)
        rules = self._rules(topic, obj["metadata"].get("annotations") or {})
        for number, entry in topic.partitions.items():
            old = before.partitions.get(number) if before is not None else None
            if entry != old:
                name = f"{topic.ref.name}-{number}"
                self._entry_rules(name, topic, number, entry)
                if old is not None:
                    change_of_entry = _EntryChange(
                        self, name, old, entry, rules, unclean=number in rules.unclean_allowed
                    )
                    change_of_entry.judge(gap=state is not None and state.gap)
        self._topics[topic.ref.uid] = _TopicState(topic)

    def _brokers_of(self, cluster: _ClusterKey) -> BrokerHistory:
        found = self._brokers.get(cluster)
        if found is None:
            found = self._brokers[cluster] = BrokerHistory(self._found)
        return found

    def _rules(self, topic: Topic, annotations: JsonObject) -> _TopicRules:
        cluster = (topic.ref.namespace, topic.cluster)
        config = {**self._cluster_configs.get(cluster, {}), **topic.config}
        requested = parse_election(str(annotations.get(ANNOTATION_ELECT_UNCLEAN, "")), topic.partitions)
        return _TopicRules(
            brokers=self._brokers_of(cluster),
            unclean_allowed=topic.partitions if config.get(UNCLEAN_KEY) == "true" else requested,
            relaxed_flush=topic.flush_lag_known,
        )

    def _object_rules(self, before: Topic, topic: Topic) -> None:
        name = topic.ref.name
        if topic.controller_epoch < before.controller_epoch:
            text = f"controllerEpoch {topic.controller_epoch} came after {before.controller_epoch}"
            self._found("controller-epoch-fell", name, text)
        if before.ref.topic_id and topic.ref.topic_id != before.ref.topic_id:
            self._found("topic-id-changed", name, f"from {before.ref.topic_id} to {topic.ref.topic_id or 'none'}")
        if gone := before.partitions.keys() - topic.partitions.keys():
            self._found("partition-vanished", name, f"partitions {sorted(gone)} are gone")

    def _entry_rules(self, name: str, topic: Topic, number: int, entry: Partition) -> None:
        """What holds for any entry by itself, and against all that were ever seen of its partition."""
        isr, elr, replicas = set(entry.isr_ids()), {member.id for member in entry.elr}, set(entry.replicas)
        if entry.has_leader and entry.leader not in isr:
            self._found("leader-outside-isr", name, f"leader {entry.leader}, ISR {sorted(isr)}")
        if not isr <= replicas:
            self._found("isr-outside-replicas", name, f"ISR {sorted(isr)}, replicas {sorted(replicas)}")
        if not isr:
            self._found("empty-isr", name, "the ISR is empty")
        if elr & isr or not elr <= replicas:
            self._found("elr-wrong", name, f"ELR {sorted(elr)}, ISR {sorted(isr)}, replicas {sorted(replicas)}")
        if entry.has_leader and topic.ref.topic_id:
            leaders = self._leaders.setdefault((topic.ref.topic_id, number), {})
            known = leaders.setdefault(entry.leader_epoch, entry.leader)
            if known != entry.leader:
                text = f"brokers {known} and {entry.leader} both lead in leader epoch {entry.leader_epoch}"
                self._found("two-leaders", name, text)

    # --- what an entry's judgement asks for and reports to

    @property
    def now_us(self) -> int:
        """Time of the change that is judged."""
        assert self._now is not None
        return self._now.at_us

    def found(self, kind: str, name: str, text: str) -> None:
        """Note an anomaly."""
        self._found(kind, name, text)

    def tally(self, what: str) -> None:
        """Count something."""
        self._tally[what] += 1


class _EntryChange:
    """One change of one partition entry."""

    def __init__(
        self,
        checker: MetadataChecker,
        name: str,
        old: Partition,
        new: Partition,
        rules: _TopicRules,
        *,
        unclean: bool,
    ) -> None:
        self._checker, self._name, self._old, self._new = checker, name, old, new
        self._brokers, self._relaxed_flush, self._unclean_allowed = rules.brokers, rules.relaxed_flush, unclean

    def judge(self, *, gap: bool) -> None:
        """`gap`: `_old` may not be what `_new` replaced."""
        checker, old, new = self._checker, self._old, self._new
        checker.tally("partition_changes")
        self._epochs(gap=gap)
        old_isr, new_isr = set(old.isr_ids()), set(new.isr_ids())
        for kind, moved in (("shrinks", old_isr - new_isr), ("expands", new_isr - old_isr)):
            if moved:
                checker.tally(kind)
        for member in new.isr:
            if member not in old.isr and not self._brokers.may_have_had(member):
                text = f"broker {member.id} is in the ISR with broker epoch {member.epoch}, which it never had"
                self._found("never-registered", text)
        if not gap:
            origin = {member.id for member in (*old.isr, *old.elr)}
            if strangers := {member.id for member in new.elr} - origin:
                self._found(
                    "elr-from-nowhere", f"ELR members {sorted(strangers)} were neither in the ISR nor in the ELR"
                )
        if new.leader_epoch > old.leader_epoch:
            checker.tally("elections")
            if new.has_leader:
                self._election(gap=gap)

    def _found(self, kind: str, text: str) -> None:
        self._checker.found(kind, self._name, text)

    def _epochs(self, *, gap: bool) -> None:
        old, new = self._old, self._new
        if new.leader_epoch < old.leader_epoch:
            self._found("leader-epoch-fell", f"leaderEpoch {new.leader_epoch} came after {old.leader_epoch}")
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            text = f"from leader {old.leader} to {new.leader} in leaderEpoch {new.leader_epoch}"
            self._found("leader-without-epoch", text)
        step = new.partition_epoch - old.partition_epoch
        if step < 0:
            self._found(
                "partition-epoch-fell", f"partitionEpoch {new.partition_epoch} came after {old.partition_epoch}"
            )
        elif step == 0:
            self._found("two-changes", f"two entries with partitionEpoch {new.partition_epoch}: {old} and {new}")
        elif step > 1 and not gap:
            self._found("skipped-epoch", f"from partitionEpoch {old.partition_epoch} to {new.partition_epoch}")

    def _election(self, *, gap: bool) -> None:
        """Rules of a leader that was chosen anew."""
        checker, leader, brokers = self._checker, self._new.leader, self._brokers
        elected = IsrEntry(leader, epoch) if (epoch := self._new.isr_epoch_of(leader)) is not None else None
        if gap:
            checker.tally("unjudged")
        elif why := self._why_not(elected):
            checker.tally("unclean")
            if not self._unclean_allowed:
                self._found("unclean-election", f"broker {leader} was elected: {why}")
        if elected is None:
            return  # an anomaly of its own
        if not brokers.had_lately(elected, checker.now_us):
            text = f"broker {leader} was elected with broker epoch {elected.epoch}; it has {brokers.epoch_of(leader)}"
            self._found("wrong-broker-epoch", text)
        if brokers.long_fenced(elected, checker.now_us):
            self._found("fenced-leader", f"broker {leader} was elected with broker epoch {elected.epoch}, long fenced")

    def _why_not(self, elected: IsrEntry | None) -> str:
        """Why the new leader may lack acknowledged records; empty when it surely has them."""
        old = self._old
        former = [member for member in (*old.isr, *old.elr) if member.id == self._new.leader]
        if not former:
            return f"it was neither in the ISR {list(old.isr_ids())} nor in the ELR {[m.id for m in old.elr]}"
        if elected is None:
            return ""
        # What the registration says with which it was elected is what the electing one knew.
        brokers, relaxed = self._brokers, self._relaxed_flush
        since = brokers.trusted_since(elected, relaxed_flush=relaxed)
        if all(
            member.epoch < since and not brokers.adopts(elected, member, relaxed_flush=relaxed) for member in former
        ):
            return f"its entry had broker epoch {former[0].epoch}, and its disk has lost data before epoch {since}"
        return ""


def check_changes(changes: Iterable[Change], allowed: Collection[str] = ()) -> MetadataReport:
    """Judge changes in any order that keeps each kind's."""
    return MetadataChecker(allowed).feed(in_store_order(changes)).report()


def check_metadata(path: Path, allowed: Collection[str] = ()) -> MetadataReport:
    """Judge a recorded file; anomalies of `allowed` kinds do not spoil it. Raises HistoryError, ResourceError."""
    return check_changes(read_changes(path), allowed)
