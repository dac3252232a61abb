"""States of the whole cluster in numbers, their successors, and what must hold in each of them.

A state names its parts by number: (store, node 1, node 2, node 3, answer to 1, to 2, to 3, patches under way,
committed records, counters). What a step does to its parts depends on them alone, so the production code runs once for
each combination of parts that meet, however many states have it.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from tests.search import node as nodes
from tests.search import steps, symmetry
from tests.search.parts import NodeTable, Table, Violation
from tests.search.small_log import EMPTY
from tests.search.snapshot import BROKER_IDS
from tests.search.store import Store, first_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.search.configs import Config

State = tuple[int, ...]
Moves = list[tuple[State, str]]

STORE, NODE, ANSWER, COPIES, COMMITTED, COUNTERS = 0, 1, 4, 7, 8, 9

RECORDS, CRASHES, WIPES, FENCES, LOST, RETUNES, LEAVES = 0, 4, 8, 12, 16, 20, 24
COSTS = {
    "": -1,
    "crashes": CRASHES,
    "wipes": WIPES,
    "fences": FENCES,
    "lost": LOST,
    "retunes": RETUNES,
    "leaves": LEAVES,
}
"""Counters are four bits each; -1: nothing is counted."""
MASK = 15

REQUESTS_TOO = 2
"""As `Config.flight`."""

Remembered = tuple[str, int, int, tuple | None, int]
"""An outcome in numbers: words, node and store (0: as it is), copy, counter."""

Outcomes = tuple[list[tuple[str, int]], list[Remembered]]
"""Those that change a running node and nothing else, (words, node); and the others."""


def _with(state: State, slot: int, value: int) -> State:
    return (*state[:slot], value, *state[slot + 1 :])


def _move_copies(copies: steps.Copies, p: tuple) -> steps.Copies:
    moved = [
        (symmetry.partition(expected, p), symmetry.partition(proposed, p), by) for expected, proposed, by in copies
    ]
    return tuple(sorted(moved, key=repr))


def _move_store(store: Store, p: tuple) -> Store:
    past = tuple(symmetry.partition(entry, p) for entry in store.past)
    return Store(symmetry.partition(store.entry, p), symmetry.registrations(store.brokers, p), past)


class Cluster:
    """Successors and invariants within the bounds of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.stores = Table(_move_store)
        self.nodes = NodeTable()
        self.messages = Table(symmetry.message)
        self.copies = Table(_move_copies, ())
        self.committed = Table(lambda records, _: records, ())
        self._limit = {
            -1: MASK + 1, RECORDS: config.records, CRASHES: config.crashes, WIPES: config.wipes,
            FENCES: config.fences, LOST: config.lost_answers,
            RETUNES: config.retunes, LEAVES: config.leaves,
        }  # fmt: skip
        assert max(self._limit[cost] for cost in COSTS.values() if cost >= 0) < MASK
        self.doing = ""
        """Words for the step under way, for the case that it fails."""
        self.steps_run = 0
        """Steps that production code ran."""
        self._local: dict[int, Outcomes] = {}
        self._beside: dict[int, Outcomes] = {}
        self._controls: dict[int, Outcomes] = {}
        self._landed: dict[int, list[tuple[str, int, int]]] = {}
        self._produced: dict[int, int] = {}
        self._requests: dict[int, tuple[int, int]] = {}
        self._asked: dict[int, tuple[int, int]] = {}
        self._took: dict[int, int] = {}
        self._alive: dict[int, int] = {}

    # ------------------------------------------------------------------------------------------------------ begin

    def first(self) -> State:
        """All brokers run and have seen the first entry."""
        config = self.config
        store = first_store(isr=config.isr, min_isr=config.min_isr)
        started = []
        for broker_id in BROKER_IDS:
            process = nodes.started(nodes.Down(broker_id, EMPTY, 0), 1, 0)
            node = self._run(lambda *seen: steps.checked(nodes.metadata(*seen)), process, store.entry, store.brokers)
            started.append(self.nodes.number(node))
        return (self.stores.number(store), *started, 0, 0, 0, 0, 0, 0)

    # -------------------------------------------------------------------------------------------------- successors

    def successors(self, state: State) -> Moves:
        """Every state that one event leads to, with words for the event in which {1}, {2}, {3} are brokers."""
        moves: Moves = []
        store, copies = state[STORE], state[COPIES]
        for slot in (1, 2, 3):
            number = state[slot]
            facts = self.nodes.facts[number]
            head, tail = state[:slot], state[slot + 1 :]
            known = self._local.get(number)
            if known is None:
                known = self._local[number] = self._remember_local(number, slot)
            for words, node in known[0]:
                moves.append(((*head, node, *tail), words))
            for outcome in known[1]:
                self._add(moves, state, slot, outcome)
            key = number << 32 | store
            known = self._beside.get(key)
            if known is None:
                known = self._beside[key] = self._remember_beside(number, store, slot)
            for words, node in known[0]:
                moves.append(((*head, node, *tail), words))
            for outcome in known[1]:
                self._add(moves, state, slot, outcome)
            if facts.leads and state[COUNTERS] & MASK < self._limit[RECORDS]:
                self._add_record(moves, state, slot)
            if facts.up or state[ANSWER + slot - 1]:
                self._add_fetch(moves, state, slot)
        known = self._controls.get(store)
        if known is None:
            known = self._controls[store] = self._remember_controls(store)
        for outcome in known[1]:
            self._add(moves, state, 0, outcome)
        if copies:
            self._add_landed(moves, state)
        return moves

    def _add(self, moves: Moves, state: State, slot: int, outcome: Remembered) -> None:
        words, node, store, copy, cost = outcome
        moved = list(state)
        if cost >= 0:
            if (state[COUNTERS] >> cost) & MASK >= self._limit[cost]:
                return
            moved[COUNTERS] += 1 << cost
        if node:
            moved[slot] = node
            alive = self.nodes.facts[node].up and self.nodes.facts[state[slot]].up
            if not alive and isinstance(self.messages.values[state[ANSWER + slot - 1]], nodes.Response):
                # The connection is gone with the process; a request may still be read by the leader.
                moved[ANSWER + slot - 1] = 0
        if copy is not None:
            patches = self.copies.values[state[COPIES]]
            if copy not in patches:
                if len(patches) >= self.config.copies:
                    return
                moved[COPIES] = self.copies.number(tuple(sorted((*patches, copy), key=repr)))
        if store:
            moved[STORE] = store
        if moved[COPIES] and (store or copy is not None):
            moved[COPIES] = self._still_alive(moved[COPIES], moved[STORE])
        moves.append((tuple(moved), words))

    def _add_record(self, moves: Moves, state: State, slot: int) -> None:
        value = (state[COUNTERS] & MASK) + 1
        key = state[slot] << 4 | value
        after = self._produced.get(key)
        if after is None:
            self.doing = f"broker {{{slot}}} appends record {value}"
            node = self._run(steps.produced, self.nodes.values[state[slot]], value, self.config)
            after = self._produced[key] = self.nodes.number(node)
        moved = list(state)
        moved[slot] = after
        moved[COUNTERS] += 1
        moves.append((tuple(moved), f"broker {{{slot}}} appends record {value}"))

    def _add_fetch(self, moves: Moves, state: State, slot: int) -> None:
        """One fetch of a broker: at once, or by way of a request and an answer that are under way for a while."""
        number, on_its_way = state[slot], state[ANSWER + slot - 1]
        if on_its_way:
            self._add_on_its_way(moves, state, slot, on_its_way)
            return
        known = self._requests.get(number)
        if known is None:
            known = self._requests[number] = self._remember_request(number)
        request, at = known
        if not request:
            return
        if self.config.flight == REQUESTS_TOO:
            moves.append(
                (_with(state, ANSWER + slot - 1, request), f"broker {{{slot}}} sends a fetch to broker {{{at}}}")
            )
            return
        leader, response = self._answered(state[at], request, at, slot)
        if not response:
            return
        moved = _with(state, at, leader)
        if self.config.flight:
            moved = _with(moved, ANSWER + slot - 1, response)
            moves.append((moved, f"broker {{{at}}} answers the fetch of broker {{{slot}}}"))
            return
        after = self._took_answer(number, response, slot)
        if after != number:
            moves.append((_with(moved, slot, after), f"broker {{{slot}}} fetches from broker {{{at}}}"))
        if leader != state[at]:
            moves.append((moved, f"broker {{{slot}}} fetches from broker {{{at}}}, the answer is lost"))

    def _add_on_its_way(self, moves: Moves, state: State, slot: int, number: int) -> None:
        without = _with(state, ANSWER + slot - 1, 0)
        message = self.messages.values[number]
        if isinstance(message, nodes.Response):
            after = self._took_answer(state[slot], number, slot)
            moves.append((_with(without, slot, after), f"broker {{{slot}}} takes the fetch answer"))
            moves.append((without, f"the fetch answer to broker {{{slot}}} is lost"))
            return
        at = message.leader_id
        leader, response = self._answered(state[at], number, at, slot)
        if not response or not self._is_sender(state[slot], message):
            words = f"broker {{{at}}} takes the fetch of broker {{{slot}}}, which hears nothing"
            moves.append((_with(without, at, leader) if response else without, words))
            return
        moved = _with(_with(state, at, leader), ANSWER + slot - 1, response)
        moves.append((moved, f"broker {{{at}}} answers the fetch of broker {{{slot}}}"))

    def _is_sender(self, number: int, request: nodes.Request) -> bool:
        node = self.nodes.values[number]
        return isinstance(node, nodes.Up) and node.epoch == request.replica_epoch

    def _answered(self, leader: int, request: int, at: int, slot: int) -> tuple[int, int]:
        """(the leader after it, its answer), (0, 0) when there is none."""
        key = leader << 32 | request
        found = self._asked.get(key)
        if found is None:
            self.doing = f"broker {{{at}}} takes the fetch of broker {{{slot}}}"
            result = self._run(steps.asked, self.nodes.values[leader], self.messages.values[request])
            found = (0, 0) if result is None else (self.nodes.number(result[0]), self.messages.number(result[1]))
            self._asked[key] = found
        return found

    def _took_answer(self, number: int, answer: int, slot: int) -> int:
        key = number << 32 | answer
        after = self._took.get(key)
        if after is None:
            self.doing = f"broker {{{slot}}} takes the fetch answer"
            node = self._run(steps.took, self.nodes.values[number], self.messages.values[answer], self.config)
            after = self._took[key] = self.nodes.number(node)
        return after

    def _add_landed(self, moves: Moves, state: State) -> None:
        key = state[COPIES] << 32 | state[STORE]
        found = self._landed.get(key)
        if found is None:
            self.doing = "a late patch lands"
            landed = self._run(
                steps.lands, self.copies.values[state[COPIES]], self.stores.values[state[STORE]], self.config
            )
            found = self._landed[key] = [
                (words, self.copies.number(copies), self.stores.number(store)) for words, copies, store in landed
            ]
        for words, copies, store in found:
            moved = list(state)
            moved[COPIES], moved[STORE] = copies, store
            moves.append((tuple(moved), words))

    def _still_alive(self, copies: int, store: int) -> int:
        key = copies << 32 | store
        found = self._alive.get(key)
        if found is None:
            kept = steps.alive(self.copies.values[copies], self.stores.values[store])
            found = self._alive[key] = self.copies.number(kept)
        return found

    # ------------------------------------------------------------------------------------ production code, remembered

    def _run(self, step: Callable, *arguments: object) -> Any:
        """Run a step; whatever goes wrong inside the core is a violation."""
        self.steps_run += 1
        try:
            return step(*arguments)
        except Violation:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation("NoError", f"{type(error).__name__}: {error} ({where.name})") from error

    def _remember_local(self, number: int, slot: int) -> Outcomes:
        self.doing = f"broker {{{slot}}} does something of its own"
        return self._numbered(number, slot, self._run(steps.local, self.nodes.values[number], self.config))

    def _remember_beside(self, number: int, store: int, slot: int) -> Outcomes:
        node, there = self.nodes.values[number], self.stores.values[store]
        self.doing = f"broker {{{slot}}} sees the metadata"
        outcomes = self._run(steps.sees, node, there)
        self.doing = f"the patch of broker {{{slot}}} comes to its end"
        outcomes = outcomes + self._run(steps.swaps, node, there, self.config)
        self.doing = f"broker {{{slot}}} registers"
        outcomes = outcomes + self._run(steps.registers, node, there)
        return self._numbered(number, slot, outcomes)

    def _remember_controls(self, store: int) -> Outcomes:
        self.doing = "the controller acts"
        return self._numbered(0, 0, self._run(steps.controls, self.stores.values[store], self.config))

    def _remember_request(self, number: int) -> tuple[int, int]:
        request = self._run(nodes.fetch_request, self.nodes.values[number])
        return (0, 0) if request is None else (self.messages.number(request), request.leader_id)

    def _numbered(self, number: int, slot: int, outcomes: list[steps.Outcome]) -> Outcomes:
        alone: list[tuple[str, int]] = []
        others: list[Remembered] = []
        for words, node, store, copy, costs in outcomes:
            after = 0 if node is None else self.nodes.number(node)
            if after == number and store is None and copy is None:
                continue  # nothing happened
            said = words.replace("{i}", f"{{{slot}}}")
            if after and store is None and copy is None and not costs:
                alone.append((said, after))
            else:
                there = 0 if store is None else self.stores.number(store)
                others.append((said, after, there, copy, COSTS[costs]))
        return alone, others
