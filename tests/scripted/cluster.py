"""A tiny deterministic cluster over the production `Replica`: list logs, a naive store, messages that the caller moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafkalite_core.model.cluster import Broker, BrokerState, Registration, entry_counts, entry_lost
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.eligible import with_eligible
from kafkalite_core.model.partition import NOTHING_SEEN, IsrEntry, Partition, Seen, TopicRef
from kafkalite_core.protocol.record_batch import BatchHeader
from kafkalite_core.replica import events
from kafkalite_core.replica.replica import Replica
from tests.scripted.list_log import ListLog

STRICT = resolve_topic_config({})
RELAXED = resolve_topic_config({"flush.messages": "1000"})


def header(producer_id: int = -1, sequence: int = -1) -> BatchHeader:
    """The header of a batch of one record; only the producer's fields matter here."""
    return BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, producer_id, 0 if producer_id >= 0 else -1, sequence, 1)


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
            and set(proposed.elr_ids()) <= set(proposed.replicas) - set(proposed.isr_ids())
            and set(proposed.elr) <= {*now.isr, *now.elr}
            and (not proposed.recovering or len(proposed.isr) == 1)
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
    behind: bool = False


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
        self.flush_lag_known = False
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
        self.seen: dict[int, Seen] = {}
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

    def start(self, number: int, log: ListLog, epoch: int, high_watermark: int = 0, seen: Seen = NOTHING_SEEN) -> Node:
        replica = Replica(
            broker_id=number,
            number=0,
            ref=self.ref,
            log=log,
            high_watermark=high_watermark,
            lag_time_max_ms=self.LAG_MS,
            seen=seen,
        )
        node = self.nodes[number] = Node(number, epoch, log, replica)
        return node

    def crash(self, number: int) -> None:
        node = self.nodes.pop(number)
        node.log.crash()
        self.down[number] = node.log
        self.seen[number] = node.replica.seen
        self.proposals = [proposal for proposal in self.proposals if proposal.node is not node]

    def restart(self, number: int, *, wiped: bool = False, high_watermark: int = 0, remembers: bool = False) -> Node:
        """A new incarnation; with a wiped disk it can no longer vouch for what earlier ones reported (R9).

        `remembers`: its disk still knows the highest epochs that were seen (S11).
        """
        log = self.down.pop(number)
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        old = self.store.brokers[number].registration
        assert old is not None
        if wiped:
            log = ListLog(relaxed=self.relaxed)
        self.store.brokers = dict(self.store.brokers)
        registered = self._registered(number, epoch, trusted=epoch if wiped else old.trusted_since)
        self.store.brokers[number] = replace(registered, fenced_epoch=self.store.brokers[number].fenced_epoch)
        return self.start(number, log, epoch, high_watermark, self.seen[number] if remembers else NOTHING_SEEN)

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
                went_back=node.behind,
                flush_lag_known=self.flush_lag_known,
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
                received_ms=self.now, deadline_ms=self.now + timeout_ms, wall_ms=0,
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
            last_fetched_epoch=position.last_fetched_epoch, error_code=answer.error_code, high_watermark=answer.high_watermark,
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

    def counts(self, entry: IsrEntry) -> bool:
        """Whether an entry stands for data (S2)."""
        return entry_counts(entry, self.store.brokers, relaxed_flush=self.relaxed)

    def is_lost(self, entry: IsrEntry) -> bool:
        """Whether an entry is known to stand for nothing any more."""
        return entry_lost(entry, self.store.brokers, relaxed_flush=self.relaxed)

    def candidates(self) -> list[int]:
        """Who may be elected: live members of the ISR whose entry counts (S2), else of the ELR (R10)."""
        now = self.store.partition
        for entries in (now.isr, now.elr):
            live = [entry.id for entry in entries if self.store.brokers[entry.id].alive and self.counts(entry)]
            if live:
                return live
        return []

    def elect(self, number: int, isr: list[int] | None = None, *, unclean: bool = False) -> None:
        """One compare-and-swap: the leader with its present epoch; fenced members leave, for the ELR if need be."""
        now = self.store.partition
        named = IsrEntry(number, self.store.brokers[number].epoch)
        members = tuple(
            named if entry.id == number else entry
            for entry in now.isr
            if (isr is None and not self.store.brokers[entry.id].fenced) or (isr is not None and entry.id in isr)
        )
        if number not in now.isr_ids():
            members = (named,)
        elected = replace(
            now, leader=number, leader_epoch=now.leader_epoch + 1, partition_epoch=now.partition_epoch + 1, isr=members
        )
        if unclean:
            elected = replace(elected, elr=(), recovering=True)
        else:
            elected = with_eligible(now, elected, self.counts, self.is_lost)
        assert self.store.swap(self.store.uid, now, elected), "the fences refused the election"

    def set_min_isr(self, value: int) -> None:
        """The controller writes another effective min ISR, and what it makes of the ELR (S4)."""
        now = self.store.partition
        changed = replace(now, min_isr=value, partition_epoch=now.partition_epoch + 1)
        assert self.store.swap(self.store.uid, now, with_eligible(now, changed, self.counts, self.is_lost))

    def restore(self, index: int) -> None:
        """The store goes back to the entry of that index, as from a backup (S11)."""
        self.store.partition = self.store.history[index]

    def recover(self) -> None:
        """The controller goes on with the holders of the greatest (epoch, end) (S11)."""
        held = {number: node.replica.holding() for number, node in self.nodes.items()}
        best = max((holding.log_epoch, holding.end_offset) for holding in held.values())
        isr = tuple(
            IsrEntry(number, self.store.brokers[number].epoch)
            for number, holding in held.items()
            if (holding.log_epoch, holding.end_offset) == best
        )
        for node in self.nodes.values():
            node.behind = False
        now = self.store.partition
        self.store.put(
            replace(
                now,
                leader=isr[0].id,
                leader_epoch=max(now.leader_epoch, *(holding.leader_epoch for holding in held.values())) + 1,
                partition_epoch=max(now.partition_epoch, *(holding.partition_epoch for holding in held.values())) + 1,
                isr=isr,
                elr=(),
            )
        )

    def recreate(self) -> None:
        """The topic is deleted and made again: another uid, the same name, epochs from the start (S12)."""
        first = replace(self.store.history[0])
        self.store = Store("uid-b", first, self.store.brokers, [first])
