"""A tiny deterministic cluster over the production `Replica`: list logs, a naive store, messages that the caller moves."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from kafkalite_core.model.cluster import Broker, BrokerState, Registration, entry_counts
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import IsrEntry, Partition, TopicRef
from kafkalite_core.protocol.record_batch import BatchHeader
from kafkalite_core.replica import events
from kafkalite_core.replica.replica import Replica
from kafkalite_core.storage.epoch_cache import EpochCache
from kafkalite_core.storage.errors import OutOfOrderSequence, UnexpectedAppendOffset
from kafkalite_core.storage.producer_state import Duplicate, New

HEAD = struct.Struct(">qii")  # base offset, leader epoch, length of the payload
STRICT = resolve_topic_config({})
RELAXED = resolve_topic_config({"flush.messages": "1000"})


def header(producer_id: int = -1, sequence: int = -1) -> BatchHeader:
    """The header of a batch of one record; only the producer's fields matter here."""
    return BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, producer_id, 0 if producer_id >= 0 else -1, sequence, 1)


@dataclass
class Entry:
    """A record, which is a batch of its own."""

    epoch: int
    value: str


@dataclass
class Appended:
    base_offset: int
    last_offset: int
    log_append_time: int = -1


@dataclass
class Ticket:
    generation: int
    end: int
    epochs: EpochCache


class ListProducers:
    """Idempotence by looking through the log. Values of idempotent producers are written `p<id>.<sequence>`."""

    def __init__(self, log: ListLog) -> None:
        self.log = log

    def check(self, head: BatchHeader) -> New | Duplicate:
        mine = [
            (int(entry.value[1:].split(".")[1]), offset)
            for offset, entry in self.log.records()
            if entry.value.startswith(f"p{head.producer_id}.")
        ]
        for sequence, offset in mine:
            if sequence == head.base_sequence:
                return Duplicate(offset, offset)
        if mine and head.base_sequence != mine[-1][0] + 1:
            raise OutOfOrderSequence(f"{head.base_sequence} does not follow {mine[-1][0]}")
        return New()


class ListLog:
    """`ReplicaLog` on a list. What was not flushed is lost in a crash."""

    def __init__(self, *, relaxed: bool = False) -> None:
        self.start_offset = 0
        self.first = 0  # offset of entries[0]; below start_offset after advance_start
        self.entries: list[Entry] = []
        self.on_disk = 0
        self.generation = 0
        self.epochs = EpochCache()
        self.durable_epochs = EpochCache()
        self.producers = ListProducers(self)
        self.relaxed = relaxed
        self.full = False

    @property
    def end_offset(self) -> int:
        return self.first + len(self.entries)

    @property
    def flushed_end(self) -> int:
        return self.end_offset if self.relaxed else self.on_disk

    def records(self):
        return [(self.first + slot, entry) for slot, entry in enumerate(self.entries)]

    def at(self, offset: int) -> Entry | None:
        slot = offset - self.first
        return self.entries[slot] if 0 <= slot < len(self.entries) else None

    def append_as_leader(self, batch, *, leader_epoch: int, now_ms: int) -> Appended:
        if self.full:
            raise StorageError("no space left on device")
        offset = self.end_offset
        self.entries.append(Entry(leader_epoch, bytes(batch).decode()))
        self.epochs.assign(leader_epoch, offset)
        return Appended(offset, offset)

    def append_as_follower(self, records, *, max_epoch: int, now_ms: int) -> int:
        if self.full:
            raise StorageError("no space left on device")
        position = 0
        data = bytes(records)
        while position < len(data):
            base, epoch, size = HEAD.unpack_from(data, position)
            value = data[position + HEAD.size : position + HEAD.size + size].decode()
            position += HEAD.size + size
            if epoch > max_epoch:
                break
            if base != self.end_offset:
                raise UnexpectedAppendOffset(base, base, self.end_offset)
            self.entries.append(Entry(epoch, value))
            self.epochs.assign(epoch, base)
        return self.end_offset

    def read(self, offset: int, end: int) -> bytes:
        out = bytearray()
        for position in range(offset, min(end, self.end_offset)):
            entry = self.entries[position - self.first]
            value = entry.value.encode()
            out += HEAD.pack(position, entry.epoch, len(value)) + value
        return bytes(out)

    def truncate_to(self, offset: int) -> None:
        del self.entries[max(offset - self.first, 0) :]
        self.epochs.truncate_from_end(offset)
        self.on_disk = min(self.on_disk, self.end_offset)
        self.generation += 1

    def reset_to(self, offset: int) -> None:
        self.entries.clear()
        self.first = self.start_offset = self.on_disk = offset
        self.epochs.clear()
        self.generation += 1

    def advance_start(self, offset: int) -> None:
        assert offset <= self.end_offset
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    def begin_flush(self) -> Ticket:
        return Ticket(self.generation, self.end_offset, EpochCache.decode(self.epochs.encode()))

    def complete_flush(self, ticket: Ticket) -> None:
        if ticket.generation == self.generation:
            self.on_disk = max(self.on_disk, ticket.end)
            self.durable_epochs = ticket.epochs

    def crash(self) -> None:
        """A power loss: the unflushed suffix is gone, the epoch cache is what was written and what the batches say."""
        del self.entries[max(self.on_disk - self.first, 0) :]
        self.start_offset = self.first  # the checkpoint of the log start may be old
        rebuilt = EpochCache()
        for offset, entry in self.records():
            rebuilt.assign(entry.epoch, offset)
        for epoch, start in self.durable_epochs.entries:
            if start <= self.end_offset:
                rebuilt.assign(epoch, max(start, self.end_offset) if epoch > rebuilt.latest_epoch else start)
        self.epochs = rebuilt
        self.generation += 1


@dataclass
class Store:
    """The API server: one partition entry and the brokers; a compare-and-swap with the fences of the design."""

    uid: str
    partition: Partition
    brokers: dict[int, Broker]
    history: list[Partition] = field(default_factory=list)

    def swap(self, uid: str, expected: Partition, proposed: Partition) -> bool:
        now = self.partition
        tests = (uid, expected.leader, expected.leader_epoch, expected.partition_epoch) == (
            self.uid,
            now.leader,
            now.leader_epoch,
            now.partition_epoch,
        )
        fences = (
            proposed.partition_epoch > now.partition_epoch
            and proposed.leader_epoch >= now.leader_epoch
            and (proposed.leader == now.leader or proposed.leader_epoch > now.leader_epoch)
            and (proposed.leader == -1 or proposed.leader in proposed.isr_ids())
            and set(proposed.isr_ids()) <= set(proposed.replicas)
        )
        if not (tests and fences):
            return False
        self.put(proposed)
        return True

    def put(self, partition: Partition) -> None:
        self.partition = partition
        self.history.append(partition)


@dataclass
class Node:
    id: int
    epoch: int
    log: ListLog
    replica: Replica
    dirty: bool = False


@dataclass
class Proposal:
    node: Node
    replica: Replica
    uid: str
    effect: events.ProposePartition


class Cluster:
    """Brokers 1..n with one partition. Nothing moves by itself: metadata, fetches, flushes and answers are calls."""

    LAG_MS = 1000

    def __init__(self, size: int = 3, *, min_isr: int = 2, relaxed: bool = False, isr: int | None = None) -> None:
        self.now = 10_000.0
        self.config = RELAXED if relaxed else STRICT
        self.relaxed = relaxed
        self.next_epoch = size + 1
        brokers = {number: self._registered(number, number, trusted=number) for number in range(1, size + 1)}
        first = Partition(
            leader=1,
            leader_epoch=1,
            partition_epoch=1,
            min_isr=min_isr,
            replicas=tuple(brokers),
            isr=tuple(IsrEntry(number, number) for number in list(brokers)[: isr or size]),
        )
        self.store = Store("uid-a", first, brokers, [first])
        self.nodes: dict[int, Node] = {}
        self.down: dict[int, ListLog] = {}
        self.proposals: list[Proposal] = []
        self.produced: dict[object, events.ProduceAnswered] = {}
        self.deleted: dict[object, events.DeleteRecordsAnswered] = {}
        self.answer: events.FetchAnswered | None = None
        self.tokens = 0
        for number in brokers:
            self.start(number, ListLog(relaxed=relaxed), number)

    @staticmethod
    def _registered(number: int, epoch: int, *, trusted: int, state: BrokerState = BrokerState.RUNNING) -> Broker:
        registration = Registration(
            broker_epoch=epoch, incarnation=f"i{epoch}", directory_id=f"d{trusted}", trusted_since=trusted,
            clean_since=trusted, host=f"b{number}", port=9092, state=state,
        )  # fmt: skip
        return Broker(id=number, registration=registration)

    @property
    def ref(self) -> TopicRef:
        return TopicRef("ns", "t", self.store.uid, "id-" + self.store.uid, "t")

    # ---------------------------------------------------------------- brokers

    def start(self, number: int, log: ListLog, epoch: int, high_watermark: int = 0) -> Node:
        replica = Replica(
            broker_id=number,
            number=0,
            ref=self.ref,
            log=log,
            high_watermark=high_watermark,
            lag_time_max_ms=self.LAG_MS,
        )
        node = self.nodes[number] = Node(number, epoch, log, replica)
        return node

    def crash(self, number: int) -> None:
        node = self.nodes.pop(number)
        node.log.crash()
        self.down[number] = node.log
        self.proposals = [proposal for proposal in self.proposals if proposal.node is not node]

    def restart(self, number: int, *, wiped: bool = False, high_watermark: int = 0) -> Node:
        """A new incarnation; with a wiped disk it can no longer vouch for what earlier ones reported (R9)."""
        log = self.down.pop(number)
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        old = self.store.brokers[number].registration
        assert old is not None
        if wiped:
            log = ListLog(relaxed=self.relaxed)
        self.store.brokers = dict(self.store.brokers)
        registered = self._registered(number, epoch, trusted=epoch if wiped else old.trusted_since)
        self.store.brokers[number] = replace(registered, fenced_epoch=self.store.brokers[number].fenced_epoch)
        return self.start(number, log, epoch, high_watermark)

    def fence(self, number: int) -> None:
        broker = self.store.brokers[number]
        self.store.brokers = dict(self.store.brokers)
        self.store.brokers[number] = replace(broker, fenced_epoch=broker.epoch)

    def set_state(self, number: int, state: BrokerState) -> None:
        broker = self.store.brokers[number]
        assert broker.registration is not None
        self.store.brokers = dict(self.store.brokers)
        self.store.brokers[number] = replace(broker, registration=replace(broker.registration, state=state))

    # ---------------------------------------------------------------- steps

    def step(self, number: int, event: events.Event) -> list[events.Effect]:
        node = self.nodes[number]
        effects = node.replica.step(self.now, event)
        for effect in effects:
            if isinstance(effect, events.FetchAnswered):
                self.answer = effect
            elif isinstance(effect, events.ProduceAnswered):
                assert effect.token not in self.produced, "a request was answered twice"
                self.produced[effect.token] = effect
            elif isinstance(effect, events.DeleteRecordsAnswered):
                assert effect.token not in self.deleted, "a deletion was answered twice"
                self.deleted[effect.token] = effect
            elif isinstance(effect, events.FlushWanted):
                node.dirty = True
            elif isinstance(effect, events.ProposePartition):
                self.proposals.append(Proposal(node, node.replica, node.replica._state.ref.uid, effect))
        return effects

    def metadata(self, number: int, partition: Partition | None = None) -> list[events.Effect]:
        node = self.nodes[number]
        return self.step(
            number,
            events.MetadataChanged(
                partition=partition or self.store.partition,
                brokers=self.store.brokers,
                broker_epoch=node.epoch,
                config=self.config,
            ),
        )

    def produce(self, number: int, value: str, acks: int = -1, *, timeout_ms: float = 5000.0) -> list[events.Effect]:
        head = header()
        if value.startswith("p") and "." in value:
            producer_id, sequence = value[1:].split(".")
            head = header(int(producer_id), int(sequence))
        self.tokens += 1
        return self.step(
            number,
            events.ProduceRequested(
                token=self.tokens, acks=acks, batch=bytearray(value.encode()), header=head,
                deadline_ms=self.now + timeout_ms, wall_ms=0,
            ),
        )  # fmt: skip

    def delete_records(self, number: int, offset: int, *, timeout_ms: float = 5000.0) -> list[events.Effect]:
        self.tokens += 1
        return self.step(
            number,
            events.DeleteRecordsRequested(token=self.tokens, offset=offset, deadline_ms=self.now + timeout_ms),
        )

    def ask(self, follower: int, leader: int) -> tuple[list[events.Effect], events.FetchResponded | None]:
        """A follower's fetch reaches the leader; returns the leader's effects and the answer on its way back."""
        position = self.nodes[follower].replica.fetch_position()
        if position is None:
            return [], None
        return self.ask_at(follower, leader, position, self.nodes[follower].epoch)

    def ask_at(self, follower: int, leader: int, position: events.FetchPosition, epoch: int):
        effects = self.step(
            leader,
            events.FetchRequested(
                token=0, replica_id=follower, replica_epoch=epoch, current_leader_epoch=position.current_leader_epoch,
                fetch_offset=position.fetch_offset, last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
            ),
        )  # fmt: skip
        answer, self.answer = self.answer, None
        assert answer is not None
        log = self.nodes[leader].log
        records = b"" if answer.diverging or answer.error_code else log.read(answer.read_from, answer.read_end)
        return effects, events.FetchResponded(
            leader_id=leader, leader_epoch=position.current_leader_epoch, fetch_offset=position.fetch_offset,
            error_code=answer.error_code, high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start_offset, diverging=answer.diverging, records=memoryview(records), wall_ms=0,
        )  # fmt: skip

    def consume(self, number: int, offset: int) -> list[events.Effect]:
        effects = self.step(
            number,
            events.FetchRequested(
                token=0, replica_id=events.CONSUMER_ID, replica_epoch=-1, current_leader_epoch=-1, fetch_offset=offset,
                last_fetched_epoch=-1,
            ),
        )  # fmt: skip
        self.answer = None
        return effects

    def flush(self, number: int) -> list[events.Effect]:
        log = self.nodes[number].log
        log.complete_flush(log.begin_flush())
        self.nodes[number].dirty = False
        return self.step(number, events.FlushCompleted())

    def answer_proposal(self, proposal: Proposal, outcome: events.CasOutcome, observed: Partition | None = None):
        if self.nodes.get(proposal.node.id) is not proposal.node or proposal.node.replica is not proposal.replica:
            return []
        return self.step(
            proposal.node.id,
            events.ProposalAnswered(proposal_id=proposal.effect.proposal_id, outcome=outcome, observed=observed),
        )

    # ---------------------------------------------------------------- the naive controller

    def candidates(self) -> list[int]:
        """Who may be elected: live members of the ISR whose entry counts (S2)."""
        return [
            entry.id
            for entry in self.store.partition.isr
            if self.store.brokers[entry.id].alive
            and entry_counts(entry, self.store.brokers, relaxed_flush=self.relaxed)
        ]

    def elect(self, number: int, isr: list[int] | None = None) -> None:
        """One compare-and-swap: the leader with its present epoch; fenced members leave."""
        now = self.store.partition
        members = tuple(
            IsrEntry(entry.id, self.store.brokers[entry.id].epoch) if entry.id == number else entry
            for entry in now.isr
            if (isr is None and not self.store.brokers[entry.id].fenced) or (isr is not None and entry.id in isr)
        )
        elected = replace(
            now, leader=number, leader_epoch=now.leader_epoch + 1, partition_epoch=now.partition_epoch + 1, isr=members
        )
        assert self.store.swap(self.store.uid, now, elected), "the fences refused the election"

    def recreate(self) -> None:
        """The topic is deleted and made again: another uid, the same name, epochs from the start (S12)."""
        first = replace(self.store.history[0])
        self.store = Store("uid-b", first, self.store.brokers, [first])
