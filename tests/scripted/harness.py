"""Readable traces of the replication core: a script's commands, and below each block everything that they caused.

    command
    ----
    expected trace

Run with `KAFKALITE_REWRITE=1` to write the actual traces into the scripts; read the difference before committing.

Commands (brokers are numbers; `*` is every running broker):
    cluster N [min=M] [isr=K] [relaxed]    start; broker epochs are 1..N, broker 1 leads in epoch 1
    metadata B...                          the store's state reaches these brokers
    produce B VALUE [acks=all|1|0]         a batch of one record; `p7.0` is producer 7's sequence 0
    fetch F<-L [times]                     a fetch, its answer, and nothing else
    ask F<-L NAME, deliver F NAME          the same in two halves; the answer is kept under NAME
    ask F<-L NAME epoch=E broker_epoch=B   the same with another leader epoch or incarnation in the request
    copy F<-L ...                          fetch and flush on both until nothing moves
    flush B...                             a flush of the whole log completes
    begin-flush B NAME, end-flush B NAME   the same in two halves
    consume B OFFSET, offsets B, epoch-end B EPOCH    what clients see
    answer OUTCOME [keep=NAME]             the oldest proposal: `swap` asks the store; rejected, not-attempted, unknown,
                                           unknown-applied (the store has it, the leader is not told)
    answer-again                           the answer of the last `swap` a second time
    land NAME                              a patch kept with `keep=NAME` reaches the store after all
    smuggle F<-L NAME                      an answer to the fetch of F with all that L's log holds, whatever its epoch
    elect B [isr=..] [uncleanly], fence B, stop B, restart B [wiped] [remembers] [hw=N], shutting-down B, hand-over B, full B, space B
    delete B OFFSET                        DeleteRecords up to the offset; -1 is the high watermark
    time MS, tick B..., raise-start B OFFSET, stale-metadata B N (the store's N-th entry), recreate, forget B,
    host-again B
    restore N, list B..., holdings, recover    the store goes back to its N-th entry, brokers list it, the controller goes on
    min N                                  the controller writes another effective min ISR
    state                                  logs, watermarks and the store
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import structs

from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CasOutcome
from tests.scripted.cluster import Cluster, ListLog, Proposal

if TYPE_CHECKING:
    from pathlib import Path

REWRITE = os.environ.get("KAFKALITE_REWRITE") == "1"
SEPARATOR = "----"


def entries(isr) -> str:
    return " ".join(f"{entry.id}@{entry.epoch}" for entry in isr) or "nobody"


def eligible(partition) -> str:
    """The ELR and the recovery state, where there is something to be said."""
    return (f" elr {entries(partition.elr)}" if partition.elr else "") + (" recovering" if partition.recovering else "")


def show(effect: events.Effect, nodes_log: ListLog) -> str | None:
    """One line for an effect; None for what only repeats others."""
    match effect:
        case events.ProduceAnswered():
            result = f"offset {effect.base_offset}" if not effect.error_code else ErrorCode(effect.error_code).name
            return f"produce #{effect.token} answered: {result}"
        case events.DeleteRecordsAnswered():
            if effect.error_code:
                return f"delete #{effect.token} answered: {ErrorCode(effect.error_code).name}"
            return f"delete #{effect.token} answered: low watermark {effect.low_watermark}"
        case events.FetchAnswered():
            if effect.error_code:
                return f"fetch answered: {ErrorCode(effect.error_code).name}"
            if effect.diverging is not None:
                return f"fetch answered: diverging at epoch {effect.diverging[0]} end {effect.diverging[1]}"
            return f"fetch answered: [{effect.read_from}, {effect.read_end}) high watermark {effect.high_watermark}"
        case events.FlushWanted():
            return "flush wanted"
        case events.HighWatermarkAdvanced():
            return "high watermark advanced"
        case events.RoleChanged():
            return f"{effect.role.value} of epoch {effect.leader_epoch}, leader {effect.leader}"
        case events.ProposePartition():
            new, old = effect.proposed, effect.expected
            leader = f" leader {new.leader} epoch {new.leader_epoch}" if new.leader != old.leader else ""
            return (
                f"propose #{effect.proposal_id}{leader} isr {entries(old.isr)} -> {entries(new.isr)}{eligible(new)}, "
                f"partition epoch {new.partition_epoch}: {effect.reason}"
            )
        case events.IsrChanged():
            return f"isr changed: out {list(effect.shrunk)} in {list(effect.expanded)}"
        case events.Decided() if effect.event != "replica_role":
            facts = " ".join(f"{name}={value}" for name, value in effect.facts.items())
            return f"{effect.event}: {facts}"
    return None


class Script:
    """Runs one file of commands against one cluster."""

    cluster_type = Cluster

    def __init__(self) -> None:
        self.cluster = self.cluster_type()
        self.out: list[str] = []
        self.kept: dict[str, object] = {}

    # ---------------------------------------------------------------- running

    def run(self, line: str) -> None:
        words = line.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        arguments = [word for word in words[1:] if "=" not in word]
        getattr(self, "do_" + words[0].replace("-", "_"))(*arguments, **options)

    def note(self, number: int, effects: list[events.Effect]) -> None:
        node = self.cluster.nodes.get(number)
        for effect in effects:
            text = show(effect, node.log if node else ListLog())
            if text is not None:
                self.out.append(f"{number}: {text}")

    def brokers(self, names: tuple[str, ...]) -> list[int]:
        return sorted(self.cluster.nodes) if "*" in names else [int(name) for name in names]

    # ---------------------------------------------------------------- commands

    def do_cluster(self, size, *flags, isr=None, **options):
        self.cluster = self.cluster_type(
            int(size), min_isr=int(options.get("min", 2)), relaxed="relaxed" in flags, isr=int(isr) if isr else None
        )
        self.do_metadata("*")

    def do_metadata(self, *names):
        for number in self.brokers(names):
            self.note(number, self.cluster.metadata(number))

    def do_restore(self, index):
        self.cluster.restore(int(index))

    def do_list(self, *names):
        """A consistent list that shows less than the brokers know: they keep what they knew, and stand still."""
        for number in self.brokers(names):
            node = self.cluster.nodes[number]
            node.behind = True
            self.note(number, self.cluster.metadata(number, node.replica.partition))

    def do_holdings(self):
        for number, node in sorted(self.cluster.nodes.items()):
            held = node.replica.holding()
            self.out.append(
                f"{number}: knows epochs {held.leader_epoch}, {held.partition_epoch}; log up to {held.end_offset} of "
                f"epoch {held.log_epoch}"
            )

    def do_recover(self):
        self.cluster.recover()
        now = self.cluster.store.partition
        self.out.append(f"controller: leader {now.leader} epoch {now.leader_epoch} isr {entries(now.isr)}")

    def do_stale_metadata(self, number, index):
        self.note(int(number), self.cluster.metadata(int(number), self.cluster.store.history[int(index)]))

    def do_produce(self, number, *values, acks="all"):
        for value in values:
            self.note(int(number), self.cluster.produce(int(number), value, -1 if acks == "all" else int(acks)))

    def do_delete(self, number, offset):
        self.note(int(number), self.cluster.delete_records(int(number), int(offset)))

    def do_fetch(self, arrow, times="1"):
        for _ in range(int(times)):
            follower, leader = map(int, arrow.split("<-"))
            effects, answer = self.cluster.ask(follower, leader)
            self.note(leader, effects)
            if answer is None:
                self.out.append(f"{follower}: waits for its flush")
            else:
                self.note(follower, self.cluster.step(follower, answer))

    def do_ask(self, arrow, name, epoch=None, broker_epoch=None, offset=None):
        follower, leader = map(int, arrow.split("<-"))
        position = self.cluster.nodes[follower].replica.fetch_position()
        assert position is not None
        if epoch is not None:
            position = structs.replace(position, current_leader_epoch=int(epoch))
        if offset is not None:
            position = structs.replace(position, fetch_offset=int(offset))
        incarnation = int(broker_epoch) if broker_epoch else self.cluster.nodes[follower].epoch
        effects, self.kept[name] = self.cluster.ask_at(follower, leader, position, incarnation)
        self.note(leader, effects)

    def do_deliver(self, number, name):
        before = self.log_of(int(number))
        self.note(int(number), self.cluster.step(int(number), self.kept[name]))
        if self.log_of(int(number)) == before:
            self.out.append(f"{number}: log unchanged")

    def do_smuggle(self, arrow, name):
        follower, leader = map(int, arrow.split("<-"))
        position = self.cluster.nodes[follower].replica.fetch_position()
        log = self.cluster.nodes[leader].log
        self.kept[name] = events.FetchResponded(
            leader_id=position.leader, leader_epoch=position.current_leader_epoch, fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch, error_code=0, high_watermark=0, log_start_offset=0,
            diverging=None, wall_ms=0,
            records=memoryview(log.read(position.fetch_offset, log.end_offset)),
        )  # fmt: skip

    def do_copy(self, *arrows):
        for _ in range(3):
            for arrow in arrows:
                follower, leader = map(int, arrow.split("<-"))
                self.do_flush(str(leader))
                self.do_fetch(arrow)
                self.do_flush(str(follower))

    def do_flush(self, *names):
        for number in self.brokers(names):
            self.note(number, self.cluster.flush(number))

    def do_begin_flush(self, number, name):
        self.kept[name] = self.cluster.nodes[int(number)].log.begin_flush()

    def do_end_flush(self, number, name):
        self.cluster.nodes[int(number)].log.complete_flush(self.kept[name])
        self.note(int(number), self.cluster.step(int(number), events.FlushCompleted()))

    def do_consume(self, number, offset):
        self.note(int(number), self.cluster.consume(int(number), int(offset)))

    def do_offsets(self, number, epoch="-1"):
        try:
            end = self.cluster.nodes[int(number)].replica.list_offset_bounds(int(epoch), False)
            self.out.append(f"{number}: latest is {end}")
        except BrokerError as error:
            self.out.append(f"{number}: latest refused: {ErrorCode(error.error_code).name}")

    def do_epoch_end(self, number, epoch, current="-1"):
        try:
            found = self.cluster.nodes[int(number)].replica.end_offset_for_epoch(int(current), int(epoch))
            self.out.append(f"{number}: epoch {found[0]} ends at {found[1]}")
        except BrokerError as error:
            self.out.append(f"{number}: refused: {ErrorCode(error.error_code).name}")

    def do_answer(self, outcome, keep=None):
        proposal: Proposal = self.cluster.proposals.pop(0)
        effect, store = proposal.effect, self.cluster.store
        if keep is not None:
            self.kept[keep] = proposal
        result, observed = CasOutcome.UNKNOWN, None
        if outcome in {"swap", "unknown-applied"}:
            swapped = store.swap(proposal.uid, effect.expected, effect.proposed)
            if outcome == "swap":
                result = CasOutcome.APPLIED if swapped else CasOutcome.REJECTED
                self.out.append("store: applied" if swapped else "store: refused")
        elif outcome == "rejected":
            result = CasOutcome.REJECTED
        elif outcome == "not-attempted":
            result = CasOutcome.NOT_ATTEMPTED
        self.note(proposal.node.id, self.cluster.answer_proposal(proposal, result, observed))
        if outcome == "swap" and result is CasOutcome.APPLIED:
            self.kept["last"] = proposal

    def do_answer_again(self):
        proposal = self.kept["last"]
        self.note(proposal.node.id, self.cluster.answer_proposal(proposal, CasOutcome.APPLIED))

    def do_land(self, name):
        proposal = self.kept[name]
        landed = self.cluster.store.swap(proposal.uid, proposal.effect.expected, proposal.effect.proposed)
        self.out.append("store: the delayed patch is " + ("applied" if landed else "refused"))

    def do_elect(self, number, *flags, isr=None):
        if isr is None and not flags and int(number) not in self.cluster.candidates():
            self.out.append(f"controller: broker {number} is no candidate")
            return
        members = [int(name) for name in isr.split(",")] if isr else None
        self.cluster.elect(int(number), members, unclean="uncleanly" in flags)
        now = self.cluster.store.partition
        text = f"controller: leader {now.leader} epoch {now.leader_epoch} isr {entries(now.isr)}{eligible(now)}"
        self.out.append(text)

    def do_min(self, value):
        self.cluster.set_min_isr(int(value))

    def do_fence(self, number):
        self.cluster.fence(int(number))

    def do_stop(self, number):
        self.cluster.crash(int(number))

    def do_restart(self, number, *flags, hw="0"):
        node = self.cluster.restart(
            int(number), wiped="wiped" in flags, high_watermark=int(hw), remembers="remembers" in flags
        )
        self.out.append(f"{number}: registered as epoch {node.epoch}")

    def do_shutting_down(self, number):
        self.cluster.set_state(int(number), BrokerState.SHUTTING_DOWN)

    def do_hand_over(self, number):
        self.note(int(number), self.cluster.step(int(number), events.HandOver(reason="shutdown")))

    def do_full(self, number):
        self.cluster.nodes[int(number)].log.full = True

    def do_space(self, number):
        self.cluster.nodes[int(number)].log.full = False

    def do_time(self, ms):
        self.cluster.now += float(ms)

    def do_tick(self, *names):
        for number in self.brokers(names):
            self.note(number, self.cluster.step(number, events.Tick()))

    def do_raise_start(self, number, offset):
        self.cluster.nodes[int(number)].log.advance_start(int(offset))

    def do_forget(self, number):
        node = self.cluster.nodes[int(number)]
        gone = events.MetadataChanged(
            partition=None, brokers=self.cluster.store.brokers, broker_epoch=node.epoch, config=self.cluster.config
        )
        self.note(int(number), self.cluster.step(int(number), gone))

    def do_recreate(self):
        self.cluster.recreate()

    def do_host_again(self, number):
        node = self.cluster.nodes[int(number)]
        self.cluster.start(int(number), ListLog(), node.epoch)

    def log_of(self, number: int) -> str:
        log = self.cluster.nodes[number].log
        return " ".join(f"{offset}:{entry.value}@{entry.epoch}" for offset, entry in log.records()) or "empty"

    def do_state(self):
        for number, node in sorted(self.cluster.nodes.items()):
            log, replica = node.log, node.replica
            self.out.append(
                f"{number}: {replica.role.value} high watermark {replica.high_watermark} "
                f"log [{log.start_offset}, {log.end_offset}) flushed {log.flushed_end}: {self.log_of(number)}"
            )
            if replica.is_leader:
                self.out.append(f"{number}: maximal isr {entries(replica.maximal_isr)}")
        now = self.cluster.store.partition
        self.out.append(
            f"store: leader {now.leader} epoch {now.leader_epoch} partition epoch {now.partition_epoch} "
            f"isr {entries(now.isr)}{eligible(now)}"
        )


def run_file(path: Path, script_type: type[Script] = Script) -> tuple[str, str]:
    """(what the file says, what it should say)."""
    text = path.read_text()
    script, rewritten = script_type(), []
    for block in text.rstrip("\n").split("\n\n"):
        lines = block.split("\n")
        body = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
        commands = [line for line in body if line and not line.startswith("#")]
        if not commands:
            rewritten.append("\n".join(body))
            continue
        script.out = []
        for command in commands:
            script.run(command)
        rewritten.append("\n".join([*body, SEPARATOR, *(script.out or ["nothing happens"])]))
    return text, "\n\n".join(rewritten) + "\n"
