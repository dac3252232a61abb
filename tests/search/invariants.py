"""What must hold in every state, and the form in which a state is counted once."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from kafkalite_core.model.cluster import entry_counts, entry_lost
from tests.search.cluster import ANSWER, COMMITTED, COPIES, NODE, STORE
from tests.search.parts import Violation, store_signatures
from tests.search.snapshot import BROKER_IDS
from tests.search.symmetry import PERMUTATIONS

if TYPE_CHECKING:
    from tests.search.cluster import Cluster, State

BROKER_SLOTS = (NODE, NODE + 1, NODE + 2)


class Canonical:
    """Of the six numberings of the brokers, one: the same for all six."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_store: dict[int, tuple[int, int, int]] = {}
        self._numbers: dict[tuple, int] = {}
        self._interchangeable = not cluster.config.leaves
        self._slots = {p: slot for slot, p in enumerate(PERMUTATIONS)}

    def _store_keys(self, store: int) -> tuple[int, int, int]:
        found = self._of_store.get(store)
        if found is None:
            signatures = store_signatures(self._cluster.stores.values[store])
            found = self._of_store[store] = tuple(
                self._numbers.setdefault(one, len(self._numbers)) << 24 for one in signatures
            )  # type: ignore[assignment]
        return found

    def form(self, state: State) -> State:
        """The state under its one numbering."""
        if not self._interchangeable:
            return state
        keys = self._of_store.get(state[STORE]) or self._store_keys(state[STORE])
        signatures = self._cluster.nodes.signatures
        two = keys[1] | signatures[state[2]]
        if keys[0] | signatures[state[1]] < two < keys[2] | signatures[state[3]]:
            return state
        return self.of(state)[0]

    def of(self, state: State) -> tuple[State, tuple[int, ...]]:
        """The state under its one numbering, and the permutation that leads there (new id by old id)."""
        if not self._interchangeable:
            return state, BROKER_IDS
        keys = self._of_store.get(state[STORE]) or self._store_keys(state[STORE])
        signatures = self._cluster.nodes.signatures
        one = keys[0] | signatures[state[1]]
        two = keys[1] | signatures[state[2]]
        three = keys[2] | signatures[state[3]]
        if one < two < three:
            return state, BROKER_IDS
        ranked = sorted(((one, 1), (two, 2), (three, 3)))
        if ranked[0][0] != ranked[1][0] != ranked[2][0]:
            p = [0, 0, 0]
            for rank, (_, broker_id) in enumerate(ranked, 1):
                p[broker_id - 1] = rank
            return self.moved(state, tuple(p)), tuple(p)
        return self._least(state, ranked)

    def _least(self, state: State, ranked: list[tuple[int, int]]) -> tuple[State, tuple[int, ...]]:
        """Brokers that look alike: the least of the states that they may be put into."""
        best: tuple[State, tuple[int, ...]] | None = None
        for order in permutations(ranked):
            if [key for key, _ in order] != [key for key, _ in ranked]:
                continue
            p = [0, 0, 0]
            for rank, (_, broker_id) in enumerate(order, 1):
                p[broker_id - 1] = rank
            moved = self.moved(state, tuple(p)), tuple(p)
            if best is None or moved < best:
                best = moved
        assert best is not None
        return best

    def moved(self, state: State, p: tuple[int, ...]) -> State:
        """The state with the brokers renumbered."""
        slot = self._slots[p]
        if slot == 0:
            return state
        cluster = self._cluster
        moved = list(state)
        moved[STORE] = cluster.stores.moved(state[STORE], slot)
        for broker_slot in BROKER_SLOTS:
            moved[p[broker_slot - 1]] = cluster.nodes.moved(state[broker_slot], slot)
            answer = state[ANSWER + broker_slot - 1]
            moved[ANSWER + p[broker_slot - 1] - 1] = cluster.messages.moved(answer, slot) if answer else 0
        if state[COPIES]:
            moved[COPIES] = cluster.copies.moved(state[COPIES], slot)
        return tuple(moved)


class Invariants:
    """Checks; each raises `Violation`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._extended: dict[int, int] = {}
        self._holds: dict[int, bool] = {}
        self._candidates: dict[int, tuple[int, ...]] = {}
        self._superset: dict[int, bool] = {}
        self._match: dict[int, bool] = {}

    def committed(self, state: State) -> State:
        """What consumers may see by now is committed: it is remembered, and never becomes something else."""
        committed = before = state[COMMITTED]
        extended = self._extended.get
        if (
            extended(state[1] << 32 | before) == before
            and extended(state[2] << 32 | before) == before
            and extended(state[3] << 32 | before) == before
        ):
            return state
        facts = self._cluster.nodes.facts
        # Leaders come first: their followers know no more than they.
        for slot in sorted(BROKER_SLOTS, key=lambda one: not facts[state[one]].leads):
            key = state[slot] << 32 | committed
            after = extended(key)
            if after is None:
                after = self._extended[key] = self._extend(state[slot], committed, slot)
            if after != committed:
                self._on_enough_disks(state, after, slot)
            committed = after
        return state if committed == before else (*state[:COMMITTED], committed, *state[COMMITTED + 1 :])

    def _extend(self, number: int, committed: int, slot: int) -> int:
        facts = self._cluster.nodes.facts[number]
        known = self._cluster.committed.values[committed]
        for offset in range(min(facts.high_watermark, len(known), len(facts.records))):
            if facts.records[offset] != known[offset]:
                raise Violation(
                    "CommittedNeverChanges",
                    f"offset {offset} was {_record(known[offset])}, broker {{{slot}}} shows {_record(facts.records[offset])}",
                )
        if facts.high_watermark <= len(known):
            return committed
        if not facts.leads:
            raise Violation(
                "FollowerBehindLeader",
                f"broker {{{slot}}} has high watermark {facts.high_watermark}, no leader ever had",
            )
        return self._cluster.committed.number(facts.records[: facts.high_watermark])

    def _on_enough_disks(self, state: State, committed: int, slot: int) -> None:
        """What a leader commits under min ISR m is on m disks of the ISR and ELR that it goes by (R4, R10, R11).

        By the entry that the leader knows: a later one may ask for fewer, and have dropped members with their ELR. A disk
        that was wiped since counts for its member, as the leader could not know.
        """
        entry, brokers = self._cluster.nodes.facts[state[slot]].entry, self._cluster.stores.values[state[STORE]].brokers
        holders = [
            one.id
            for one in {*entry.isr, *entry.elr}
            if self._holds_all(state[one.id], committed) or entry_lost(one, brokers.by_id, relaxed_flush=False)
        ]
        if len(holders) < entry.min_isr:
            known = self._cluster.committed.values[committed]
            raise Violation(
                "AckedOnMinIsrDisks",
                f"broker {{{slot}}} has committed {_log(known)} under min ISR {entry.min_isr}; of its ISR and ELR "
                f"{_brokers(tuple(sorted(holders))) or 'nobody'} has that on disk",
            )

    def _holds_all(self, number: int, committed: int) -> bool:
        key = self._cluster.nodes.disks[number] << 32 | committed
        found = self._holds.get(key)
        if found is None:
            facts = self._cluster.nodes.facts[number]
            known = self._cluster.committed.values[committed]
            found = self._holds[key] = facts.records[: facts.flushed][: len(known)] == known
        return found

    def check(self, state: State) -> None:
        """Everything that can be said of a state alone."""
        store, committed = state[STORE], state[COMMITTED]
        candidates = self._candidates.get(store)
        if candidates is None:
            candidates = self._candidates[store] = self._possible_leaders(store)
        for slot in candidates:
            if committed and not self._holds_all(state[slot], committed):
                known = self._cluster.committed.values[committed]
                facts = self._cluster.nodes.facts[state[slot]]
                raise Violation(
                    "NoCommittedRecordLost",
                    f"broker {{{slot}}} may lead and has {_log(facts.records)} with {facts.flushed} on disk; committed "
                    f"is {_log(known)}",
                )
        self._logs_match(state)
        for slot in BROKER_SLOTS:
            key = state[slot] << 32 | store
            known_good = self._superset.get(key)
            if known_good is None:
                self._superset[key] = self._is_superset(state[slot], store, slot)

    def _possible_leaders(self, store: int) -> tuple[int, ...]:
        there = self._cluster.stores.values[store]
        brokers = {broker.id: broker for broker in there.brokers}
        members = (*there.entry.isr, *there.entry.elr)
        return tuple(sorted({one.id for one in members if entry_counts(one, brokers, relaxed_flush=False)}))

    def _logs_match(self, state: State) -> None:
        """Two logs with a record of one epoch at one offset are the same up to there."""
        logs = self._cluster.nodes.logs
        for one, other in ((1, 2), (1, 3), (2, 3)):
            key = logs[state[one]] << 32 | logs[state[other]]
            if key in self._match:
                continue
            left, right = self._cluster.nodes.facts[state[one]].records, self._cluster.nodes.facts[state[other]].records
            for offset in reversed(range(min(len(left), len(right)))):
                if left[offset][0] == right[offset][0]:
                    if left[: offset + 1] != right[: offset + 1]:
                        raise Violation(
                            "LogsMatch", f"broker {{{one}}} has {_log(left)}, broker {{{other}}} has {_log(right)}"
                        )
                    break
            self._match[key] = True

    def _is_superset(self, number: int, store: int, slot: int) -> bool:
        """The high watermark of the newest leader waits for everybody who may be elected (R4, R10, S3)."""
        facts, entry = self._cluster.nodes.facts[number], self._cluster.stores.values[store].entry
        if not facts.leads or entry.leader != slot or facts.entry.leader_epoch != entry.leader_epoch:
            return True
        missing = set(self._possible_leaders(store)) - set(facts.holders) - {slot}
        if missing:
            raise Violation(
                "HighWatermarkWaitsForAll",
                f"broker {{{slot}}} waits for {_brokers(facts.holders)}, in ISR or ELR there are "
                f"{_brokers(self._possible_leaders(store))}",
            )
        return True


def _brokers(ids: tuple[int, ...]) -> str:
    return ", ".join(f"{{{broker_id}}}" for broker_id in ids)


def _record(record: tuple[int, int]) -> str:
    return f"{record[1]} of epoch {record[0]}"


def _log(records: tuple[tuple[int, int], ...]) -> str:
    return "[" + ", ".join(f"{value}@{epoch}" for epoch, value in records) + "]"
