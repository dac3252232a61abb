"""What can happen to one part, or between two: every step is run once by the production code, then remembered.

Each function returns a list of outcomes; an outcome begins with the words for the trace, in which {i} stands for the
broker at hand and {1}, {2}, {3} for brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.membership.settlement import Attempt
from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.replica.events import CasOutcome, Role
from tests.search import api_server
from tests.search import node as nodes
from tests.search import store as stores
from tests.search.node import Answer, Down, Node, Patch, Response, Stepped, Up
from tests.search.parts import REPLICA_ROLE, Facts, Violation, facts_of
from tests.search.small_log import EMPTY
from tests.search.snapshot import Brokers, isr_sorted
from tests.search.store import Store

if TYPE_CHECKING:
    from kafkalite_core.model.partition import Partition
    from tests.search.configs import Config

Copy = tuple["Partition", "Partition", bool]
"""A patch: the entry expected, the one proposed, and whether it is the controller's."""

Copies = tuple[Copy, ...]
"""Patches under way that nobody waits for any more."""


class Outcome(NamedTuple):
    """One thing that can happen; a part that is None stays as it is.

    Attributes:
        words: For the trace.
        node: The node after it.
        store: The store after it.
        copy: A patch that is now under way with nobody waiting.
        costs: Which counter it is counted by, or the empty string.
    """

    words: str
    node: Node | None = None
    store: Store | None = None
    copy: Copy | None = None
    costs: str = ""


def checked(stepped: Stepped, *, unchecked: int = 0) -> Up:
    """The node after a step, once what the step said to clients is known to be true."""
    node = stepped.node
    facts = facts_of(node)
    for answer in stepped.answers:
        if answer.error_code or answer.token == unchecked:
            continue
        offset = answer.base_offset
        if facts.high_watermark <= offset or facts.records[offset][1] != answer.token:
            raise Violation("AckedIsCommitted", f"offset {offset} acknowledged, high watermark {facts.high_watermark}")
    if facts.leads != (node.replica[0][REPLICA_ROLE] is Role.LEADER):
        raise Violation("RoleMatches", "role and leadership differ")
    if facts.leads:
        assert facts.entry is not None
        if facts.entry.leader != node.id or facts.entry.isr_epoch_of(node.id) != node.epoch:
            raise Violation(
                "OneLeaderPerEpoch",
                f"broker epoch {node.epoch} leads in leader epoch {facts.entry.leader_epoch}, "
                f"which was given to broker epoch {facts.entry.isr_epoch_of(node.id)}",
            )
        if facts.high_watermark > len(facts.records):
            raise Violation("HighWatermarkInLog", f"{facts.high_watermark} beyond {len(facts.records)}")
        if facts.high_watermark > stepped.high_watermark_before:
            _enough_in_sync(node, facts)
    return node


def _enough_in_sync(node: Up, facts: Facts) -> None:
    """Nothing is committed with fewer counting members of the ISR than the entry's min ISR (R4, S4, KIP-966)."""
    entry, brokers = facts.entry, facts.brokers.by_id
    counting = [
        one.epoch == node.epoch if one.id == node.id else entry_counts(one, brokers, relaxed_flush=False)
        for one in entry.isr
    ]
    if sum(counting) < entry.min_isr:
        raise Violation("CommittedByMinIsr", f"{sum(counting)} of the ISR count, min ISR is {entry.min_isr}")


def local(node: Node, config: Config) -> list[Outcome]:
    """What needs nobody else."""
    if isinstance(node, Down):
        return []
    outcomes = []
    records, on_disk, _ = node.log
    if on_disk < len(records):
        outcomes.append(Outcome("broker {i} flushes", checked(nodes.flushed(node))))
    facts = facts_of(node)
    if facts.leads:
        outcomes.append(Outcome("broker {i} looks at the clock", checked(nodes.ticked(node))))
        if config.lapses:
            outcomes += [
                Outcome(f"broker {{i}} finds that broker {{{follower}}} {how}", checked(stepped))
                for follower, how, stepped in nodes.lapses(node)
            ]
        if config.leaves:
            outcomes.append(Outcome("broker {i} wants to leave", checked(nodes.hands_over(node)), costs="leaves"))
        if facts.pending:
            again = nodes.metadata(node, facts.entry, facts.brokers)
            outcomes.append(Outcome("broker {i} sees the same metadata again", checked(again)))
    if isinstance(node.wire, Answer):
        words = f"broker {{i}} hears that its patch is {node.wire.outcome.value}"
        outcomes.append(Outcome(words, checked(nodes.cas_told(node))))
    if config.crashes:
        outcomes += [Outcome(_crash_words(down, node), down, costs="crashes") for down in nodes.crashes(node)]
    return outcomes


def _crash_words(down: Down, node: Up) -> str:
    lost = len(node.log[0]) - len(down.log[0])
    return f"broker {{i}} crashes{f', loses {lost} unflushed' if lost else ''}, checkpointed mark {down.high_watermark}"


def produced(node: Node, value: int, config: Config) -> Node | None:
    """A record is written to a leader; None when the broker does not lead."""
    if not isinstance(node, Up) or not facts_of(node).leads:
        return None
    stepped, acks = nodes.produced(node, value)
    after = checked(stepped, unchecked=value if acks == 0 else 0)
    return after if config.flushes else checked(nodes.flushed(after))


def sees(node: Node, store: Store) -> list[Outcome]:
    """The broker's watches show it something new."""
    if isinstance(node, Down):
        return []
    facts = facts_of(node)
    shown = [("metadata", store.entry, store.brokers)]
    if facts.entry != store.entry and facts.brokers != store.brokers:
        shown.append(("entry", store.entry, facts.brokers))
        shown.append(("registrations", facts.entry, store.brokers))
    elif facts.entry == store.entry and facts.brokers == store.brokers:
        shown.clear()
    shown += [
        (f"entry of partitionEpoch {entry.partition_epoch}", entry, facts.brokers)
        for entry in store.past
        if _is_newer(entry, facts.entry)
    ]
    return [
        Outcome(f"broker {{i}} sees the {what}", checked(nodes.metadata(node, entry, brokers)))
        for what, entry, brokers in shown
    ]


def _is_newer(entry: Partition, known: Partition | None) -> bool:
    return known is None or entry.partition_epoch > known.partition_epoch


def asked(leader: Node, request: nodes.Request) -> tuple[Node, Response] | None:
    """A fetch reaches the broker that it is for; None when there is no process or it refuses."""
    if isinstance(leader, Down):
        return None
    stepped = nodes.answered_fetch(leader, request)
    assert stepped.response is not None
    if stepped.response.error_code:
        return None
    return checked(stepped), stepped.response


def took(node: Node, response: Response, config: Config) -> Node:
    """A follower takes an answer."""
    assert isinstance(node, Up)
    after = checked(nodes.took_response(node, response))
    if not config.flushes and after.log[1] < len(after.log[0]):
        after = checked(nodes.flushed(after))
    return after


def swaps(node: Node, store: Store, config: Config) -> list[Outcome]:
    """The patch that a broker sent comes to its end, one way or another."""
    if not isinstance(node, Up) or not isinstance(node.wire, Patch):
        return []
    patch = node.wire
    outcomes = []
    after = commit(store, (patch.expected, patch.proposed, False), config)
    if after is not OUT_OF_BOUNDS:
        if after is None:
            ended = nodes.cas_ended(node, Attempt.REFUSED, store.entry)
            outcomes.append(_told("the patch of broker {i} is refused", ended, None, config))
        else:
            ended = nodes.cas_ended(node, Attempt.APPLIED)
            outcomes.append(_told("the patch of broker {i} is applied", ended, after, config))
    return outcomes + _unheard(node, after, config) if config.lost_answers else outcomes


def _unheard(node: Up, after: Store | None, config: Config) -> list[Outcome]:
    """The broker does not hear what became of its patch: it was applied, will be or never is, or was not even sent."""
    assert isinstance(node.wire, Patch)
    outcomes = []
    ambiguous = nodes.cas_ended(node, Attempt.AMBIGUOUS)
    if after is not None and after is not OUT_OF_BOUNDS:
        words = "the patch of broker {i} is applied, its answer lost"
        outcomes.append(_told(words, ambiguous, after, config, costs="lost"))
    copy = (node.wire.expected, node.wire.proposed, False)
    outcomes.append(_told("the patch of broker {i} is late", ambiguous, None, config, copy=copy, costs="lost"))
    unsent = nodes.cas_ended(node, Attempt.NOT_APPLIED)
    outcomes.append(_told("the patch of broker {i} is not sent", unsent, None, config, costs="lost"))
    return outcomes


def _told(
    words: str,
    node: Up,
    store: Store | None,
    config: Config,
    *,
    copy: Copy | None = None,
    costs: str = "",
) -> Outcome:
    """The answer reaches the broker now, or later."""
    if not config.late_answers:
        assert isinstance(node.wire, Answer)
        if node.wire.outcome is not CasOutcome.APPLIED:
            words += f" ({node.wire.outcome.value})"
        node = checked(nodes.cas_told(node))
    return Outcome(words, node, store, copy, costs)


OUT_OF_BOUNDS = Store(None, Brokers.of(()))  # type: ignore[arg-type]


def commit(store: Store, copy: Copy, config: Config) -> Store | None:
    """The compare-and-swap; None when it is refused, `OUT_OF_BOUNDS` when the search ends here.

    The fences of the API server would refuse what the tests let through; here it is a violation.
    """
    expected, proposed, by_controller = copy
    before = store.entry
    entry = api_server.patched(before, api_server.operations(expected, proposed, by_controller=by_controller))
    if entry is None:
        return None
    entry = isr_sorted(entry)
    if entry.partition_epoch > 1 + config.changes or entry.leader_epoch > config.leader_epochs:
        return OUT_OF_BOUNDS
    if broken := api_server.broken_fence(before, entry):
        raise Violation("FencesHold", f"{broken}: {before} became {entry}")
    return Store(entry, store.brokers, (before, *store.past)[: config.watch_lags])


def lands(copies: Copies, store: Store, config: Config) -> list[tuple[str, Copies, Store]]:
    """A patch that nobody waits for is applied after all."""
    outcomes = []
    for slot, copy in enumerate(copies):
        after = commit(store, copy, config)
        if after is not None and after is not OUT_OF_BOUNDS:
            outcomes.append(("a late patch lands", alive(copies[:slot] + copies[slot + 1 :], after), after))
    return outcomes


def alive(copies: Copies, store: Store) -> Copies:
    """The patches that may still be applied: one that is refused for an entry of the past is refused for ever."""
    return tuple(sorted((one for one in copies if not _is_past(one, store)), key=repr))


def _is_past(copy: Copy, store: Store) -> bool:
    expected, proposed, by_controller = copy
    if expected.partition_epoch >= store.entry.partition_epoch:
        return False
    patch = api_server.operations(expected, proposed, by_controller=by_controller)
    return api_server.patched(store.entry, patch) is None


def controls(store: Store, config: Config) -> list[Outcome]:
    """What the controller does: one patch, or a fence."""
    outcomes = []
    for min_isr in (store.entry.min_isr, *(one for one in config.min_isr_other if one != store.entry.min_isr)):
        costs = "" if min_isr == store.entry.min_isr else "retunes"
        for words, proposed in stores.decisions(store, min_isr, any_order=not config.leaves):
            if words == "prefers" and (costs or not config.preferred):
                continue
            outcomes += _controller_patch(store, words, proposed, costs, config)
    if config.fences:
        outcomes += [
            Outcome(f"broker {{{broker.id}}} is fenced", store=stores.fence(store, broker.id), costs="fences")
            for broker in store.brokers
            if not broker.fenced
        ]
    return outcomes


def _controller_patch(store: Store, words: str, proposed: Partition, costs: str, config: Config) -> list[Outcome]:
    copy = (store.entry, proposed, True)
    after = commit(store, copy, config)
    if after is None:
        raise Violation("TestsHold", f"a fresh patch of the controller is refused: {proposed}")
    if after is OUT_OF_BOUNDS:
        return []
    text = f"the controller {words}"
    if words != "changes the members":
        leader = f"broker {{{proposed.leader}}}" if proposed.has_leader else "nobody"
        text += f": {leader} leads epoch {proposed.leader_epoch}"
    if costs:
        text += f", min.insync.replicas {proposed.min_isr}"
    outcomes = [Outcome(text, store=after, costs=costs)]
    if config.operator_lags:
        outcomes.append(Outcome(f"{text}; the patch is late", copy=copy, costs=costs))
    return outcomes


def registers(node: Node, store: Store) -> list[Outcome]:
    """A process starts on a disk, or one that was fenced registers anew."""
    broker = store.broker(node.id)
    if isinstance(node, Up):
        if not broker.fenced or broker.epoch != node.epoch:
            return []
        identity = stores.identity_of(broker, new_directory=False, same_process=True)
        registered = stores.register(store, node.id, identity, known=node.epoch)
        assert registered is not None
        after, epoch = registered
        seen = nodes.metadata(node, after.entry, after.brokers, epoch)
        return [Outcome("broker {i} registers anew", checked(seen), after)]
    outcomes = []
    for wiped in (False, True):
        registered = stores.register(store, node.id, stores.identity_of(broker, new_directory=wiped))
        if registered is None:
            continue
        after, epoch = registered
        process = nodes.started(node, epoch, 0 if wiped else node.high_watermark, EMPTY if wiped else None)
        seen = nodes.metadata(process, after.entry, after.brokers)
        words = "broker {i} starts " + ("with an empty disk" if wiped else "again")
        outcomes.append(Outcome(words, checked(seen), after, costs="wipes" if wiped else ""))
    return outcomes
