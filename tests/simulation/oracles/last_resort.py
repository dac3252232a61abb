"""Nobody is elected uncleanly while the operator that decides it knows of a clean candidate that lives (R10, R14), and
nobody is asked to give up what a member of the newest ISR has (S10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.controller.actions import ChangePartitions, CreateTopicStatus
from kafkalite_core.controller.configs import relaxed_flush
from kafkalite_core.controller.store_recovery import StoreRecovery
from kafkalite_core.model.cluster import entry_counts
from tests.simulation.oracles.safety import counting_ids
from tests.simulation.platter import batches
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite_core.controller.actions import Action
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.cluster import Broker
    from kafkalite_core.model.topic import Holding, Stray
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.oracles.oracles import Oracles

NAME = "an unclean election is the last resort"
ASKED = "nobody is asked to give up what is there"


def decided(oracles: Oracles, snapshot: Snapshot, actions: Iterable[Action]) -> None:
    """What an operator has decided on a snapshot. Raises `Violation`.

    It is judged by what that operator knew: a candidate may come back while the patch is on its way. A recovery (S11)
    goes by what brokers report.
    """
    oracles.decided_on = snapshot.brokers
    for action in actions:
        if isinstance(action, CreateTopicStatus):
            _named(oracles, snapshot, action)
        if not isinstance(action, ChangePartitions):
            continue
        view = next(view for view in snapshot.topics.values() if view.topic.ref == action.topic)
        relaxed = relaxed_flush(snapshot, view)
        for number, change in action.changes.items():
            old, new = change.expected, change.proposed
            if new.leader == old.leader or not new.has_leader:
                continue
            clean = counting_ids(old, snapshot.brokers, relaxed=relaxed)
            living = sorted(i for i in clean if snapshot.brokers[i].alive)
            if new.leader in clean or not living:
                continue
            if StoreRecovery(snapshot).decide(view, number, old, min_isr=old.min_isr) is not None:
                continue
            raise Violation(NAME, f"{view.topic.ref.name}-{number}: {old} is to become {new}, but {living} could lead")


def _named(oracles: Oracles, snapshot: Snapshot, action: CreateTopicStatus) -> None:
    for number, entry in action.partitions.items():
        ledger = oracles.ledgers.get((action.topic_id, number))
        for member in () if ledger is None else entry.isr:
            assert ledger is not None
            broker = snapshot.brokers.get(member.id)
            strays = () if broker is None else broker.strays
            listed = any((stray.topic_id, stray.partition) == ledger.tag for stray in strays)
            ledger.named[member] = ledger.named.get(member, False) or listed


def lists_of(brokers: Mapping[int, Broker], topic_id: str) -> set[tuple[int, Stray | Holding]]:
    """What brokers list of a topic, with their ids."""
    return {
        (broker.id, each)
        for broker in brokers.values()
        for each in (*broker.strays, *broker.holdings)
        if each.topic_id == topic_id
    }


def asked(oracles: Oracles, topic_id: str) -> None:
    """A lost topic waits for somebody to accept that records are lost. Raises `Violation` if none is.

    Every partition that it had has to be listed by a member of its last ISR who has all that was committed, and who was
    in sync has to be known: what no disk has noted (a checkpoint is some seconds old), or a restore of the store took,
    is no reason to lose anything, but one to ask.
    """
    found = [each for each in oracles.ledgers.values() if each.tag[0] == topic_id and each.last is not None]
    if oracles.metadata.restored or not any(each.committed for each in found):
        return
    if all(each.entry is None and _is_kept(oracles, each) for each in found):
        raise Violation(
            ASKED, f"{found[0].topic} waits for consent, but all that was committed is there: {found[0].last}"
        )


def _is_kept(oracles: Oracles, ledger: Ledger) -> bool:
    assert ledger.last is not None
    listed = {
        broker.id: stray
        for broker in oracles.brokers.values()
        for stray in broker.strays
        if (stray.topic_id, stray.partition) == ledger.tag
    }
    if max((stray.isr_epoch for stray in listed.values()), default=-1) != ledger.last.partition_epoch:
        return False
    wanted = {mark[1:] for mark in ledger.committed if mark.next > ledger.deletable}
    whole = {host.id for host, _, directory in ledger.logs() if wanted <= {mark[1:] for mark in batches(directory)}}
    return any(
        member.id in listed and member.id in whole and entry_counts(member, oracles.brokers, relaxed_flush=False)
        for member in ledger.last.isr
    )
