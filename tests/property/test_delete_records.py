"""Deletions of records (KIP-107) among fetches, elections and fenced brokers: few rules, so that schedules get deep.

What holds: only committed records go, by the leader alone; a deletion succeeds when no live replica has the records; a
log start never falls; every request is answered exactly once.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalite_core.replica import events
from tests.scripted.cluster import Cluster

BROKERS = st.integers(1, 3)


class DeletionMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(3, min_isr=1)
        for number in (1, 2, 3):
            self.cluster.metadata(number)
        self.waiting: dict[int, tuple[int, object]] = {}
        self.starts: dict[object, int] = {}
        self.count = 0

    def leader(self):
        return self.cluster.nodes[self.cluster.store.partition.leader]

    @rule(flushed=st.booleans())
    def produce(self, flushed: bool) -> None:
        number = self.cluster.store.partition.leader
        self.count += 1
        self.cluster.produce(number, f"v{self.count}", 1)
        if flushed:
            self.cluster.flush(number)

    @rule(number=BROKERS)
    def fetch(self, number: int) -> None:
        node = self.cluster.nodes[number]
        self.cluster.flush(number)
        if node.replica.leader_id == self.cluster.store.partition.leader != number:
            _, answer = self.cluster.ask(number, node.replica.leader_id)
            if answer is not None:
                self.cluster.step(number, answer)

    @rule(where=st.sampled_from(["leader", "leader", "leader", "any"]), number=BROKERS,
          distance=st.sampled_from([None, 0, -1, 1, 2, -99]))  # fmt: skip
    def delete(self, where: str, number: int, distance: int | None) -> None:
        node = self.leader() if where == "leader" else self.cluster.nodes[number]
        start, mark = node.log.start_offset, node.replica.high_watermark
        asked = -1 if distance is None else max(mark + distance, -2)
        self.cluster.delete_records(node.id, asked, timeout_ms=500.0)
        offset = mark if asked == -1 else asked
        answer = self.cluster.deleted.get(self.cluster.tokens)
        if node.replica.is_leader and 0 <= offset <= mark:
            assert node.log.start_offset == max(start, offset)
            self.waiting[self.cluster.tokens] = (offset, node)
        else:
            assert answer is not None
            assert answer.error_code
            assert node.log.start_offset == start, "a refused deletion deletes nothing"

    @rule(number=BROKERS)
    def fence_or_return(self, number: int) -> None:
        """A fenced broker stays away; one that comes back registers anew and keeps its log."""
        partition = self.cluster.store.partition
        if not self.cluster.store.brokers[number].fenced:
            if [entry.id for entry in partition.isr] == [number]:
                return
            self.cluster.fence(number)
            survivor = next(candidate for candidate in self.cluster.candidates() if candidate != number)
            self.cluster.elect(partition.leader if partition.leader != number else survivor)
        else:
            self.cluster.crash(number)
            node = self.cluster.restart(number)
            self.starts.pop(node.log, None)
        for each in sorted(self.cluster.nodes):
            self.cluster.metadata(each)

    @rule()
    def tick(self) -> None:
        self.cluster.now += 300
        for number in sorted(self.cluster.nodes):
            self.cluster.step(number, events.Tick())
        proposals, self.cluster.proposals = self.cluster.proposals, []
        for proposal in proposals:
            applied = self.cluster.store.swap(proposal.uid, proposal.effect.expected, proposal.effect.proposed)
            outcome = events.CasOutcome.APPLIED if applied else events.CasOutcome.REJECTED
            self.cluster.answer_proposal(proposal, outcome)
        for number in sorted(self.cluster.nodes):
            self.cluster.metadata(number)

    @invariant()
    def success_means_that_no_live_replica_has_the_records(self) -> None:
        for token, (offset, leader) in list(self.waiting.items()):
            answer = self.cluster.deleted.get(token)
            if answer is None:
                assert leader.replica.is_leader, "a request waits for a leadership that is over"
                continue
            del self.waiting[token]
            if answer.error_code:
                continue
            assert answer.low_watermark >= offset
            for number, node in self.cluster.nodes.items():
                if self.cluster.store.brokers[number].alive:
                    log = node.log
                    assert log.start_offset >= offset or log.start_offset == log.end_offset, f"{number} has them still"

    @invariant()
    def a_log_start_never_falls_and_never_passes_what_is_committed(self) -> None:
        for node in self.cluster.nodes.values():
            log = node.log
            assert log.start_offset >= self.starts.get(log, 0) or log.start_offset == log.end_offset
            self.starts[log] = log.start_offset
            assert log.start_offset <= node.replica.high_watermark <= log.end_offset

    def teardown(self) -> None:
        for number in sorted(self.cluster.nodes):
            if self.cluster.store.brokers[number].fenced:
                self.fence_or_return(number)
        for _ in range(6):
            self.tick()
            for number in (1, 2, 3):
                self.fetch(number)
        self.success_means_that_no_live_replica_has_the_records()
        assert not self.waiting, "requests without an answer"
        start = self.leader().log.start_offset
        assert {node.log.start_offset for node in self.cluster.nodes.values()} == {start}


DeletionMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestDeletionMachine = DeletionMachine.TestCase
