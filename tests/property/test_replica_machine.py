"""Random schedules against the promises of the replication core (R1-R8, R11, S1, S3, S5, S8).

Three brokers, one partition. Messages are delayed, lost and repeated; patches are applied late or never while the
leader hears nothing; brokers crash with the loss of what they had not flushed, and come back with or without their
disk; a naive controller elects any live member of the ISR whose entry counts, or else of the ELR (KIP-966).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalite_core.model.cluster import entry_counts
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CasOutcome, Role
from tests.scripted.cluster import Cluster, ListLog

BROKERS = st.integers(1, 3)
PICK = st.integers(0, 7)


class ReplicaMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(3)
        self.requests: list[tuple[object, int, int, events.FetchPosition]] = []
        self.responses: list[tuple[object, int, events.FetchResponded]] = []
        self.tickets: list[tuple[object, int, object]] = []
        self.delayed: list[tuple[str, events.ProposePartition]] = []
        self.values: dict[object, tuple[int, str]] = {}
        self.committed: dict[int, tuple[int, str]] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.seen: dict[tuple[int, int], str] = {}
        self.count = 0
        self.wiped = 0
        self.known_marks: dict[int, int] = {}
        self.deletions: dict[object, tuple[int, object]] = {}
        self.deleted_to = 0

    @initialize(isr=st.integers(1, 3), min_isr=st.integers(1, 2))
    def begin(self, isr: int, min_isr: int) -> None:
        self.cluster = Cluster(3, min_isr=min_isr, isr=isr)
        for number in (1, 2, 3):
            self.cluster.metadata(number)

    # ---------------------------------------------------------------- clients

    @rule(number=st.sampled_from([0, 0, 0, 1, 2, 3]), acks=st.sampled_from([-1, -1, 1]), again=st.booleans())
    def produce(self, number: int, acks: int, again: bool) -> None:
        number = number or self.cluster.store.partition.leader
        node = self.cluster.nodes.get(number)
        if node is None or not node.replica.is_leader:
            return
        if not again or not self.count:
            self.count += 1
        offset = node.log.end_offset
        before = node.log.end_offset
        value = f"p1.{self.count}"
        self.cluster.produce(number, value, acks)
        if node.log.end_offset == before:
            offset = next((at for at, entry in node.log.records() if entry.value == value), -1)
        entry = node.log.at(offset)
        if acks == -1 and entry is not None:
            self.values[self.cluster.tokens] = (entry.epoch, value)

    @rule(number=st.sampled_from([0, 0, 0, 1, 2, 3]), distance=st.sampled_from([None, None, 0, 1, -1, -9]))
    def delete_records(self, number: int, distance: int | None) -> None:
        """Deletion up to an offset, not always by the leader, and not always of what may be deleted (KIP-107)."""
        number = number or self.cluster.store.partition.leader
        node = self.cluster.nodes.get(number)
        if node is None:
            return
        start, mark = node.log.start_offset, node.replica.high_watermark
        wanted = mark + (distance or 0)
        self.cluster.delete_records(number, -1 if distance is None else wanted, timeout_ms=1000.0)
        if distance is not None and wanted == -1:
            wanted = mark
        answer = self.cluster.deleted.get(self.cluster.tokens)
        if not node.replica.is_leader or not 0 <= wanted <= mark:
            assert answer is not None
            assert answer.error_code
            assert node.log.start_offset == start, "a refused deletion deletes nothing"
            return
        assert node.log.start_offset == max(start, wanted)
        self.deleted_to = max(self.deleted_to, wanted)
        self.deletions[self.cluster.tokens] = (wanted, node)

    # ---------------------------------------------------------------- replication

    @rule(number=BROKERS)
    def send_fetch(self, number: int) -> None:
        node = self.cluster.nodes.get(number)
        position = None if node is None else node.replica.fetch_position()
        if position is not None:
            self.requests.append((node, number, node.epoch, position))
            del self.requests[:-8]

    @precondition(lambda self: self.requests)
    @rule(pick=PICK, keep=st.booleans())
    def deliver_request(self, pick: int, keep: bool) -> None:
        slot = pick % len(self.requests)
        node, number, epoch, position = self.requests[slot] if keep else self.requests.pop(slot)
        if position.leader in self.cluster.nodes:
            _, answer = self.cluster.ask_at(number, position.leader, position, epoch)
            self.responses.append((node, number, answer))
            del self.responses[:-8]

    @precondition(lambda self: self.responses)
    @rule(pick=PICK, keep=st.booleans())
    def deliver_response(self, pick: int, keep: bool) -> None:
        slot = pick % len(self.responses)
        node, number, answer = self.responses[slot] if keep else self.responses.pop(slot)
        if self.cluster.nodes.get(number) is node:
            self.cluster.step(number, answer)

    @rule(number=BROKERS, rounds=st.integers(1, 2))
    def replicate(self, number: int, rounds: int) -> None:
        """Fetches and flushes that meet no trouble."""
        for _ in range(rounds):
            node = self.cluster.nodes.get(number)
            if node is None or node.replica.leader_id not in self.cluster.nodes:
                return
            self.cluster.flush(node.replica.leader_id)
            self.cluster.flush(number)
            _, answer = self.cluster.ask(number, node.replica.leader_id)
            if answer is not None:
                self.cluster.step(number, answer)

    @rule(number=BROKERS)
    def begin_flush(self, number: int) -> None:
        node = self.cluster.nodes.get(number)
        if node is not None:
            self.tickets.append((node, number, node.log.begin_flush()))

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK)
    def end_flush(self, pick: int) -> None:
        node, number, ticket = self.tickets.pop(pick % len(self.tickets))
        if self.cluster.nodes.get(number) is node:
            node.log.complete_flush(ticket)
            self.cluster.step(number, events.FlushCompleted())

    # ---------------------------------------------------------------- metadata and the store

    @rule(number=BROKERS)
    def metadata(self, number: int) -> None:
        if number in self.cluster.nodes:
            self.cluster.metadata(number)

    @rule(number=BROKERS, pick=PICK)
    def stale_metadata(self, number: int, pick: int) -> None:
        if number in self.cluster.nodes:
            history = self.cluster.store.history
            self.cluster.metadata(number, history[-1 - pick % len(history)])

    @precondition(lambda self: self.cluster.proposals)
    @rule(how=st.sampled_from(["swap", "swap", "applied unheard", "delayed", "lost", "not attempted"]))
    def answer(self, how: str) -> None:
        proposal = self.cluster.proposals.pop(0)
        effect, store = proposal.effect, self.cluster.store
        outcome = CasOutcome.UNKNOWN
        if how == "swap":
            applied = store.swap(proposal.uid, effect.expected, effect.proposed)
            outcome = CasOutcome.APPLIED if applied else CasOutcome.REJECTED
        elif how == "applied unheard":
            store.swap(proposal.uid, effect.expected, effect.proposed)
        elif how == "delayed":
            self.delayed.append((proposal.uid, effect))
        elif how == "not attempted" and not any(other.proposal_id == effect.proposal_id for _, other in self.delayed):
            outcome = CasOutcome.NOT_ATTEMPTED
        self.cluster.answer_proposal(proposal, outcome)

    @precondition(lambda self: self.delayed)
    @rule(pick=PICK)
    def delayed_patch_lands(self, pick: int) -> None:
        uid, effect = self.delayed.pop(pick % len(self.delayed))
        self.cluster.store.swap(uid, effect.expected, effect.proposed)

    @rule(ms=st.sampled_from([50, 200, 1500]))
    def time(self, ms: int) -> None:
        self.cluster.now += ms
        for number in sorted(self.cluster.nodes):
            self.cluster.step(number, events.Tick())

    # ---------------------------------------------------------------- faults and the controller

    @rule(pick=PICK)
    def elect(self, pick: int) -> None:
        candidates = self.cluster.candidates()
        if candidates:
            self.cluster.elect(candidates[pick % len(candidates)])

    @rule(number=BROKERS)
    def fence(self, number: int) -> None:
        partition = self.cluster.store.partition
        self.cluster.fence(number)
        if partition.leader == number and self.cluster.candidates():
            self.cluster.elect(self.cluster.candidates()[0])

    @rule(value=st.integers(1, 3))
    def min_isr(self, value: int) -> None:
        """The controller writes another min ISR, and in the same change what it makes of the ELR (S4)."""
        self.cluster.set_min_isr(value)

    @rule(number=BROKERS)
    def crash(self, number: int) -> None:
        if number in self.cluster.nodes:
            self.known_marks[number] = self.cluster.nodes[number].replica.high_watermark
            self.cluster.crash(number)

    @rule(number=BROKERS, wiped=st.sampled_from([False, False, True]), high_watermark=st.integers(0, 4))
    def restart(self, number: int, wiped: bool, high_watermark: int) -> None:
        if number in self.cluster.down:
            self.wiped += wiped
            # A checkpoint may be old; it never says more than the broker knew.
            mark = min(high_watermark, self.known_marks.get(number, 0))
            self.cluster.restart(number, wiped=wiped, high_watermark=mark)
            self.cluster.metadata(number)

    @rule(number=BROKERS)
    def hand_over(self, number: int) -> None:
        if number in self.cluster.nodes:
            self.cluster.step(number, events.HandOver(reason="shutdown"))

    # ---------------------------------------------------------------- long stretches, so that schedules get somewhere

    def settle_proposals(self) -> None:
        """A replica that fetches no more may join and leave by turns while no time goes by, so there is an end to it."""
        for _ in range(20):
            if self.cluster.proposals:
                self.answer("swap")

    @rule(omitted=st.integers(0, 3))
    def calm(self, omitted: int) -> None:
        """Everything works, except that one broker takes no part."""
        present = [number for number in sorted(self.cluster.nodes) if number != omitted]
        for number in present:
            self.cluster.metadata(number)
        for number in present * 2:
            if self.cluster.nodes[number].replica.leader_id != omitted:
                self.replicate(number, 2)
        self.settle_proposals()

    @rule(number=BROKERS, wiped=st.sampled_from([False, False, False, True]), high_watermark=st.integers(0, 2))
    def power_cycle(self, number: int, wiped: bool, high_watermark: int) -> None:
        self.crash(number)
        self.restart(number, wiped, high_watermark)

    @rule(pick=PICK, informed=BROKERS, lost=st.booleans())
    def fail_over(self, pick: int, informed: int, lost: bool) -> None:
        leader = self.cluster.store.partition.leader
        if lost:
            self.crash(leader)
            self.cluster.fence(leader)
        self.elect(pick)
        self.metadata(self.cluster.store.partition.leader)
        self.metadata(informed)

    # ---------------------------------------------------------------- what must hold

    def log_of(self, number: int) -> ListLog:
        node = self.cluster.nodes.get(number)
        return self.cluster.down[number] if node is None else node.log

    @invariant()
    def acknowledged_records_are_on_every_possible_leader(self) -> None:
        for token, (epoch, value) in list(self.values.items()):
            answer = self.cluster.produced.get(token)
            if answer is not None:
                del self.values[token]
                if not answer.error_code:
                    self.committed[answer.base_offset] = (epoch, value)
                    self.is_on_enough_disks(answer.base_offset, value)
        for number in self.cluster.candidates():
            log = self.log_of(number)
            for offset, record in self.committed.items():
                if offset < max(self.deleted_to, log.first):
                    assert offset < self.deleted_to, f"candidate {number} lost offset {offset} without a deletion"
                    continue
                entry = log.at(offset)
                assert entry is not None, f"candidate {number} lacks acknowledged offset {offset}"
                assert (entry.epoch, entry.value) == record
                assert log.on_disk > offset, f"candidate {number} has acknowledged offset {offset} in memory only"

    def is_on_enough_disks(self, offset: int, value: str) -> None:
        """Acknowledged with acks=all: flushed by at least min ISR brokers, some of which may have lost it since."""
        logs = [self.log_of(number) for number in (1, 2, 3)]
        holders = [log for log in logs if log.on_disk > offset and log.at(offset).value == value]
        assert len(holders) + self.wiped >= min(entry.min_isr for entry in self.cluster.store.history)

    @invariant()
    def deletions_are_answered_when_no_live_replica_has_the_records(self) -> None:
        for token, (offset, leader) in list(self.deletions.items()):
            answer = self.cluster.deleted.get(token)
            if answer is None:
                continue
            del self.deletions[token]
            if answer.error_code:
                continue
            assert answer.low_watermark >= offset
            assert leader.log.start_offset >= offset
            known = leader.replica._state
            for number, node in self.cluster.nodes.items():
                if known.alive(number) and known.registered_epoch(number) == node.epoch:
                    log = node.log
                    assert log.start_offset >= offset or log.start_offset == log.end_offset, f"{number} has it still"

    @invariant()
    def nothing_is_deleted_that_is_not_committed(self) -> None:
        for node in self.cluster.nodes.values():
            assert node.log.start_offset <= max(node.replica.high_watermark, node.log.first)
            assert node.log.start_offset <= node.log.end_offset

    @invariant()
    def one_leader_per_epoch(self) -> None:
        for number, node in self.cluster.nodes.items():
            replica = node.replica
            if replica.role is Role.LEADER:
                leader = self.leaders.setdefault(replica.leader_epoch, (number, node.epoch))
                assert leader == (number, node.epoch), f"epoch {replica.leader_epoch} has two leaders"

    @invariant()
    def high_watermark_rises_and_is_on_every_disk(self) -> None:
        partition = self.cluster.store.partition
        for node in self.cluster.nodes.values():
            replica = node.replica
            if replica.role is not Role.LEADER:
                continue
            key = (replica.leader_epoch, node.epoch)
            assert replica.high_watermark >= self.high_watermarks.get(key, 0)
            self.high_watermarks[key] = replica.high_watermark
            assert replica.high_watermark <= node.log.end_offset
            if replica.leader_epoch != partition.leader_epoch:
                continue
            assert set(partition.isr) <= set(replica.maximal_isr) or replica.partition != partition
            for entry in (*partition.isr, *partition.elr):
                if entry_counts(entry, self.cluster.store.brokers, relaxed_flush=False):
                    assert self.log_of(entry.id).on_disk >= replica.high_watermark, f"{entry} lacks committed records"

    @invariant()
    def logs_match(self) -> None:
        for number in (1, 2, 3):
            for offset, entry in self.log_of(number).records():
                assert self.seen.setdefault((offset, entry.epoch), entry.value) == entry.value

    # ---------------------------------------------------------------- and once the faults are over, progress

    def teardown(self) -> None:
        cluster = self.cluster
        for number in (1, 2, 3):
            if number not in cluster.nodes:
                cluster.restart(number)
            elif cluster.store.brokers[number].fenced:
                cluster.crash(number)
                cluster.restart(number)
        if not cluster.candidates():
            return
        cluster.elect(cluster.candidates()[0])
        for _ in range(40):
            cluster.now += 300
            for number in (1, 2, 3):
                cluster.metadata(number)
                cluster.step(number, events.Tick())
                self.replicate(number, 2)
            self.settle_proposals()
            self.acknowledged_records_are_on_every_possible_leader()
            self.high_watermark_rises_and_is_on_every_disk()
            self.logs_match()
        partition = cluster.store.partition
        present = {IsrEntry(number, cluster.nodes[number].epoch) for number in (1, 2, 3)}
        assert set(partition.isr) == present, f"the ISR does not become whole: {partition.isr}"
        kept = max(self.log_of(number).first for number in (1, 2, 3))
        assert len({tuple(self.log_of(number).read(kept, 999)) for number in (1, 2, 3)}) == 1
        leader = cluster.nodes[partition.leader]
        assert leader.replica.high_watermark == leader.log.end_offset


ReplicaMachine.TestCase.settings = settings(
    max_examples=250, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestReplicaMachine = ReplicaMachine.TestCase
