"""Random schedules of coordinators on replicas: answered commits neither vanish nor go back, whoever leads (M21).

Three brokers replicate the groups' partition. Fetches are delayed and repeated, flushes come late, brokers crash with
the loss of what they had not flushed, elections move the coordinator while the old one goes on without knowing it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalite_core.groups.records import OffsetKey, decode_key, decode_offset
from kafkalite_core.replica import events
from kafkalite_core.replica.events import CasOutcome
from tests.scripted.groups import GroupCluster, Led, commit_request, fetch_request, fetched, unpack_records

BROKERS = st.integers(1, 3)


class ReplicatedGroupsMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(min_isr=st.integers(1, 2))
    def begin(self, min_isr: int) -> None:
        self.cluster = GroupCluster(3, min_isr=min_isr)
        for number in (1, 2, 3):
            self.cluster.metadata(number)
        self.count = 0
        self.commits: dict[int, tuple[int, int]] = {}
        self.acknowledged: set[tuple[int, int]] = set()
        self.late: list[tuple[object, int, events.FetchResponded]] = []

    # ---------------------------------------------------------------- groups

    @precondition(lambda self: self.cluster.coordinators)
    @rule(pick=st.integers(0, 2), partition=st.integers(0, 1))
    def commit(self, pick: int, partition: int) -> None:
        """Any broker that coordinates is asked, a zombie as well."""
        numbers = sorted(self.cluster.coordinators)
        self.count += 1
        request = commit_request({partition: self.count})
        token = self.cluster.ask_group(numbers[pick % len(numbers)], request, 9)
        self.commits[token] = (partition, self.count)

    @rule(partition=st.integers(0, 1), followers=st.sets(BROKERS, min_size=1), rounds=st.integers(1, 3))
    def commit_and_copy(self, partition: int, followers: set[int], rounds: int) -> None:
        """The usual case: the leader is asked, and its followers fetch."""
        numbers = sorted(self.cluster.coordinators)
        leader = self.cluster.store.partition.leader
        if leader in numbers:
            self.commit(numbers.index(leader), partition)
        self.copy(followers, rounds)

    # ---------------------------------------------------------------- replication

    @rule(followers=st.sets(BROKERS, min_size=1), rounds=st.integers(1, 3))
    def copy(self, followers: set[int], rounds: int) -> None:
        for _ in range(rounds):
            for number in (1, 2, 3):
                self.flush(number)
            for number in sorted(followers):
                self.replicate(number, True)

    @rule(number=BROKERS, flush=st.booleans())
    def replicate(self, number: int, flush: bool) -> None:
        answer = self._ask(number)
        if answer is not None:
            self.cluster.step(number, answer)
            if flush:
                self.cluster.flush(number)

    @rule(number=BROKERS)
    def fetch_late(self, number: int) -> None:
        answer = self._ask(number)
        if answer is not None:
            self.late.append((self.cluster.nodes[number], number, answer))

    @precondition(lambda self: self.late)
    @rule(pick=st.integers(0, 5), again=st.booleans())
    def deliver(self, pick: int, again: bool) -> None:
        node, number, answer = self.late[pick % len(self.late)]
        if not again:
            self.late.remove((node, number, answer))
        if self.cluster.nodes.get(number) is node:
            self.cluster.step(number, answer)

    def _ask(self, number: int) -> events.FetchResponded | None:
        node = self.cluster.nodes.get(number)
        position = None if node is None else node.replica.fetch_position()
        if position is None or position.leader not in self.cluster.nodes:
            return None
        return self.cluster.ask_at(number, position.leader, position, node.epoch)[1]

    @rule(number=BROKERS)
    def flush(self, number: int) -> None:
        if number in self.cluster.nodes:
            self.cluster.flush(number)

    @rule(number=BROKERS)
    def learn(self, number: int) -> None:
        if number in self.cluster.nodes:
            self.cluster.metadata(number)

    @precondition(lambda self: self.cluster.proposals)
    @rule(outcome=st.sampled_from([CasOutcome.APPLIED, CasOutcome.APPLIED, CasOutcome.UNKNOWN]), applied=st.booleans())
    def answer_proposal(self, outcome: CasOutcome, applied: bool) -> None:
        proposal = self.cluster.proposals.pop(0)
        swapped = False
        if outcome is CasOutcome.APPLIED or applied:
            effect = proposal.effect
            swapped = self.cluster.store.swap(proposal.uid, effect.expected, effect.proposed)
        if outcome is CasOutcome.APPLIED and not swapped:
            outcome = CasOutcome.REJECTED
        self.cluster.answer_proposal(proposal, outcome)

    # ---------------------------------------------------------------- failures

    @rule(number=BROKERS)
    def crash(self, number: int) -> None:
        """One at a time, lest nothing be left to look at."""
        if number in self.cluster.nodes and not self.cluster.down:
            self.cluster.crash(number)
            self.cluster.fence(number)

    @rule(number=BROKERS)
    def restart(self, number: int) -> None:
        if number in self.cluster.down:
            self.cluster.restart(number)
            self.cluster.metadata(number)

    @rule(pick=st.integers(0, 2), fence=st.booleans(), tell=st.sets(BROKERS))
    def elect(self, pick: int, fence: bool, tell: set[int]) -> None:
        """Another leader; the old one may be fenced, and may not hear of it."""
        leader = self.cluster.store.partition.leader
        others = [number for number in self.cluster.candidates() if number != leader and number in self.cluster.nodes]
        if not others:
            return
        if fence:
            self.cluster.fence(leader)
        self.cluster.elect(others[pick % len(others)])
        for number in sorted(tell):
            self.learn(number)

    @rule(ms=st.sampled_from([10, 600, 2_000, 6_000]))
    def pass_time(self, ms: int) -> None:
        self.cluster.now += ms
        for number in sorted(self.cluster.nodes):
            self.cluster.step(number, events.Tick())
            self.cluster.tick_groups(number)

    # ---------------------------------------------------------------- promises

    @rule()
    def settle(self) -> None:
        """All brokers are back and hear everything: then the leader serves, and nobody waits any more."""
        for number in (1, 2, 3):
            self.crash(number)
            self.restart(number)
        candidates = self.cluster.candidates()
        if not candidates:
            return
        self.cluster.elect(candidates[0])
        for _ in range(8):
            for number in (1, 2, 3):
                self.learn(number)
            self.copy({1, 2, 3}, 1)
            while self.cluster.proposals:
                self.answer_proposal(CasOutcome.APPLIED, False)
        self.pass_time(6_000)
        assert self._leader() is not None, "the leader does not serve"
        self.offsets_are_safe()
        open_tokens = set(self.cluster.requests) - set(self.cluster.answers) - self.cluster.lost
        assert not open_tokens, "someone waits for ever"

    def _leader(self) -> Led | None:
        partition = self.cluster.store.partition
        led = self.cluster.coordinators.get(partition.leader)
        return led if led is not None and led.loaded and led.epoch == partition.leader_epoch else None

    @invariant()
    def offsets_are_safe(self) -> None:
        if not hasattr(self, "cluster"):
            return
        for token in [token for token in self.commits if token in self.cluster.answers]:
            response = self.cluster.answers[token]
            partition, offset = self.commits.pop(token)
            if response is not None and not response.topics[0].partitions[0].error_code:
                self.acknowledged.add((partition, offset))
        led = self._leader()
        if led is None:
            return
        token = self.cluster.ask_group(led.node.id, fetch_request(), 9)
        seen = fetched(self.cluster.answers[token])
        order = self._order(led)
        for partition, offset in self.acknowledged:
            assert (partition, offset) in order, f"{offset} was answered, and is gone"
            assert order[partition, seen[partition]] >= order[partition, offset], (
                f"{offset} was answered, then went back"
            )
        for each in seen.items():
            assert order[each] < led.node.replica.high_watermark, "an offset is shown that is not committed"

    @staticmethod
    def _order(led: Led) -> dict[tuple[int, int], int]:
        """Where each commit stands in the leader's log."""
        places = {}
        for at, entry in led.node.log.records():
            for encoded, value in unpack_records(entry.value):
                key = decode_key(encoded)
                if isinstance(key, OffsetKey) and value is not None:
                    places[key.partition, decode_offset(value).offset] = at
        return places


TestReplicatedGroups = ReplicatedGroupsMachine.TestCase
TestReplicatedGroups.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
