"""Random lives of a consumer group against a naive model.

Consumers (eager and cooperative ones, dynamic and static ones) join, synchronise, heartbeat, commit, stall, crash, come
back and leave. Appends are committed late, reported out of order, refused, or left in doubt. The coordinator moves: the
next one has the committed records and some of those in doubt.

Promises: one owner per partition and generation; a generation that anyone works in never comes again; committed offsets
never go back; a consumer that does its duty in time is never turned out; nobody waits for ever; no request is answered
twice (`Driver`); what a new coordinator knows is what the records say; and once things are calm, all consumers share all
partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalite_core.groups import events
from kafkalite_core.groups.metadata_budget import said_bytes
from kafkalite_core.protocol.errors import ErrorCode
from tests.property.groups_world import (
    CLIENTS,
    COMMITTED,
    DOUBTFUL,
    OPEN,
    PACE_MS,
    PARTITIONS,
    PLACES,
    REBALANCE_MS,
    REFUSED,
    SESSION_MS,
    Client,
    Entry,
    LogDriver,
    check_group,
    replay,
)

if TYPE_CHECKING:
    from kafkalite_core.groups.group import Group


class GroupsMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(delay=st.sampled_from([0, 3_000]), static=st.lists(st.booleans(), max_size=3))
    def begin(self, delay: int, static: list[bool]) -> None:
        self.delay = delay
        self.incarnation = 0
        self.driver = self._driver([], 0.0)
        self.clients: list[Client] = []
        self.made = 0
        self.count = 0
        self.commits: dict[tuple[int, int], tuple[tuple[str, int], int]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.visible: dict[tuple[str, int], int] = {}
        self.owners: dict[tuple[int, int], str] = {}
        self.worked = 0
        self.generation = 0
        for each in static:
            self.start(each, False, 9)

    def teardown(self) -> None:
        """Every life ends well, whatever came before."""
        if hasattr(self, "driver"):
            self.calm()
            self.silence()

    def _driver(self, records, now: float) -> LogDriver:
        driver = LogDriver.__new__(LogDriver)
        driver.entries = []
        LogDriver.__init__(
            driver,
            commits=False,
            records=records,
            now=now,
            initial_rebalance_delay_ms=self.delay,
            retention_check_interval_ms=10**12,
        )
        return driver

    # ---------------------------------------------------------------- the log

    def _tell(self, entry: Entry) -> None:
        entry.told = True
        if entry.fate == COMMITTED:
            self.driver.step(events.Appended(append_id=entry.append_id))
        else:
            refused, doubtful = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT
            code = refused if entry.fate == REFUSED else doubtful
            self.driver.step(events.AppendFailed(append_id=entry.append_id, error_code=code))
        self._read_answers()

    def _open(self, told: bool = False) -> list[Entry]:
        return [entry for entry in self.driver.entries if entry.told is told and (told or entry.fate != DOUBTFUL)]

    def _commit_up_to(self, last: Entry) -> None:
        """The high watermark passes an entry: all before it that are in the log are committed as well."""
        for entry in self.driver.entries:
            if entry.append_id <= last.append_id and entry.fate in {OPEN, DOUBTFUL}:
                entry.fate = COMMITTED if not entry.told else DOUBTFUL
                entry.committed = True

    @precondition(lambda self: self._open())
    @rule(pick=st.integers(0, 5))
    def commit(self, pick: int) -> None:
        """An append is committed and reported, perhaps before those in front of it."""
        waiting = self._open()
        entry = waiting[pick % len(waiting)]
        if entry.fate == OPEN:
            self._commit_up_to(entry)
        self._tell(entry)

    @rule()
    def commit_all(self) -> None:
        while waiting := self._open():
            if waiting[0].fate == OPEN:
                self._commit_up_to(waiting[0])
            self._tell(waiting[0])

    @precondition(lambda self: len(self._open()) > 1)
    @rule()
    def commit_backwards(self) -> None:
        """All are committed, and the last one is reported first."""
        for entry in reversed(self._open()):
            if entry.fate == OPEN:
                self._commit_up_to(entry)
            self._tell(entry)
            self.offsets_are_those_of_the_log_and_never_go_back()

    @rule(ms=st.sampled_from([2_000, 3_000, 4_000]), doubt=st.booleans())
    def lose_while_they_work(self, ms: int, doubt: bool) -> None:
        """The consumers go on for a while; then all that they wrote is lost."""
        self._pass(ms)
        while any(entry.fate == OPEN for entry in self._open()):
            self.lose(0, doubt)

    @precondition(lambda self: any(entry.fate == OPEN for entry in self._open()))
    @rule(pick=st.integers(0, 5), doubt=st.booleans())
    def lose(self, pick: int, doubt: bool) -> None:
        """An append is refused, or its time is over while it is in the log."""
        waiting = [entry for entry in self._open() if entry.fate == OPEN]
        entry = waiting[pick % len(waiting)]
        entry.fate = DOUBTFUL if doubt else REFUSED
        self._tell(entry)

    @rule(kept=st.integers(0, 4))
    def fail_over(self, kept: int) -> None:
        """Another broker leads: it has all that was committed, and some of the rest."""
        entries = [entry for entry in self.driver.entries if entry.fate != REFUSED]
        sure = [index for index, entry in enumerate(entries) if entry.committed]
        end = max(sure, default=-1) + 1
        log = self.driver.log + [record for entry in entries[: end + kept] for record in entry.records]
        self.driver.resign()
        self._read_answers()
        assert set(self.driver.answers) == set(self.driver.requests), "someone still waits for a coordinator that left"
        self.incarnation += 1
        self.generation = 0
        self.driver = self._driver(log, self.driver.now)
        for client in self.clients:
            client.token = None
        self._check_loaded()

    # ---------------------------------------------------------------- consumers

    @precondition(lambda self: sum(client.alive for client in self.clients) < CLIENTS)
    @rule(static=st.booleans(), cooperative=st.booleans(), version=st.sampled_from([3, 5, 8, 9, 9]))
    def start(self, static: bool, cooperative: bool, version: int) -> None:
        self.made += 1
        instance = None
        if static and version >= 5:
            taken = {client.instance for client in self.clients if client.alive}
            instance = next(f"i{number}" for number in range(CLIENTS + 1) if f"i{number}" not in taken)
        self.clients.append(Client(f"c{self.made}", instance, cooperative, version))

    @precondition(lambda self: self._living())
    @rule(pick=st.integers(0, 9))
    def crash(self, pick: int) -> None:
        client = self._living()[pick % len(self._living())]
        client.alive = False

    @precondition(lambda self: any(client.instance for client in self._living()))
    @rule(pick=st.integers(0, 9), ms=st.sampled_from([10, 3_000, SESSION_MS + 500]), doubt=st.booleans())
    def restart_in_vain(self, pick: int, ms: int, doubt: bool) -> None:
        """A static consumer comes back, once all is well; its new id is lost, perhaps later than its session ends."""
        self.calm()
        static = [client for client in self._living() if client.instance]
        before = static[pick % len(static)]
        before.alive = False
        after = Client(before.name, before.instance, before.cooperative, before.version)
        self.clients.append(after)
        self._act(after)
        self._pass(ms)
        while any(entry.fate == OPEN for entry in self._open()):
            self.lose(0, doubt)

    @precondition(lambda self: self._living())
    @rule(pick=st.integers(0, 9))
    def leave(self, pick: int) -> None:
        client = self._living()[pick % len(self._living())]
        client.alive = False
        if client.member_id:
            self.driver.leave((client.member_id, client.instance))
            self._read_answers()

    @precondition(lambda self: self._living())
    @rule(pick=st.integers(0, 9), times=st.integers(1, 4))
    def act(self, pick: int, times: int) -> None:
        for _ in range(times):
            self._act(self._living()[pick % len(self._living())])

    @rule(ms=st.sampled_from([10, 700, 3_000, 6_500, 20_000]), stall=st.sets(st.integers(0, CLIENTS - 1), max_size=3))
    def pass_time(self, ms: int, stall: set[int]) -> None:
        """Time goes by; consumers do their duty, but for those that stall."""
        stalled = [client for index, client in enumerate(self._living()) if index in stall]
        before = [client.diligent for client in stalled]
        for client in stalled:
            client.diligent = client.diligent and ms < PACE_MS
        self._pass(ms, stalled)
        for client, diligent in zip(stalled, before, strict=True):
            # It may have got its id while it stalled: that does not make it a member that does its duty.
            client.diligent = client.diligent and diligent and ms < PACE_MS

    @precondition(lambda self: self._living())
    @rule(pick=st.integers(0, 9), places=st.sets(st.sampled_from(PLACES), min_size=1))
    def commit_offsets(self, pick: int, places: set[tuple[str, int]]) -> None:
        client = self._living()[pick % len(self._living())]
        if client.phase != "stable":
            return
        self._commit_offsets(places, member=client.member_id, generation=client.generation, instance=client.instance)

    @rule(places=st.sets(st.sampled_from(PLACES), min_size=1))
    def commit_without_membership(self, places: set[tuple[str, int]]) -> None:
        self._commit_offsets(places)

    def _commit_offsets(self, places, **more) -> None:
        for place in sorted(places):
            self.count += 1
            token = self.driver.commit_offsets({place: self.count}, **more)
            self.commits[self.incarnation, token] = (place, self.count)
        self._read_answers()

    def _living(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    def _act(self, client: Client) -> None:
        """The next thing that a consumer does."""
        driver = self.driver
        if client.token is not None:
            return
        if client.phase == "join":
            client.token = driver.join(
                client.member_id,
                protocols=client.protocols,
                version=client.version,
                instance=client.instance,
                session=SESSION_MS,
                rebalance=REBALANCE_MS,
                client_id=client.name,
            )
        elif client.phase == "sync":
            encoded = {member: bytes(sorted(indexes)) for member, indexes in client.plan.items()}
            client.token = driver.sync(
                client.member_id, client.generation, encoded, instance=client.instance, version=min(client.version, 5)
            )
        else:
            self._heartbeat(client)
        self._read_answers()

    def _heartbeat(self, client: Client) -> None:
        code = self.driver.heartbeat(client.member_id, client.generation, instance=client.instance)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            client.phase = "join"
        elif code:
            self._failed(client, code)

    def _failed(self, client: Client, code: int) -> None:
        """The consumer's answer to an error: join again, under a new id if the old one is not known."""
        client.phase = "join"
        client.owned = set()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise AssertionError("only one consumer of each name lives")
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            assert not client.diligent or client.incarnation != self.incarnation, f"{client} was turned out"
            client.member_id = ""
            client.generation = -1

    def _read_answers(self) -> None:
        for client in self.clients:
            answer = self.driver.answers.get(client.token) if client.token is not None else None
            if answer is None:
                continue
            client.token = None
            if client.alive:
                self._read(client, answer)
        for key in [key for key in self.commits if key[0] == self.incarnation]:
            answer = self.driver.answers.get(key[1])
            if answer is not None:
                place, offset = self.commits.pop(key)
                if not answer.topics[0].partitions[0].error_code:
                    self.acknowledged[place] = max(offset, self.acknowledged.get(place, 0))

    def _read(self, client: Client, answer) -> None:
        if client.phase == "join":
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id, client.incarnation, client.diligent = answer.member_id, self.incarnation, True
            elif answer.error_code:
                self._failed(client, answer.error_code)
            else:
                self._joined(client, answer)
        elif answer.error_code:
            self._failed(client, answer.error_code)
        else:
            self._synced(client, answer)

    def _joined(self, client: Client, answer) -> None:
        if client.member_id != answer.member_id:
            client.diligent = True
        client.member_id, client.incarnation = answer.member_id, self.incarnation
        assert answer.generation_id >= self.worked, "a generation came again"
        assert answer.generation_id >= self.generation, "a generation came again"
        self.generation = answer.generation_id
        client.generation = answer.generation_id
        client.phase = "sync"
        client.plan = {}
        if answer.leader == answer.member_id and not answer.skip_assignment:
            members = [member.member_id for member in answer.members]
            client.plan = {member: set() for member in members}
            for index in range(PARTITIONS):
                client.plan[members[(index + client.generation) % len(members)]].add(index)

    def _synced(self, client: Client, answer) -> None:
        client.phase = "stable"
        client.owned = set(answer.assignment)
        self.worked = max(self.worked, client.generation)
        for index in client.owned:
            owner = self.owners.setdefault((client.generation, index), client.slot)
            assert owner == client.slot, f"{owner} and {client.slot} own {index} in generation {client.generation}"

    def _pass(self, ms: int, stalled=()) -> None:
        end = self.driver.now + ms
        while self.driver.now < end:
            for client in self._living():
                if client not in stalled:
                    self._act(client)
            self.driver.advance(min(PACE_MS, end - self.driver.now))
            self._read_answers()

    # ---------------------------------------------------------------- promises

    @rule()
    def calm(self) -> None:
        """Nothing fails for a while: then all consumers work in one generation and share all partitions."""
        for _ in range(3 * (SESSION_MS + REBALANCE_MS) // PACE_MS):
            self.commit_all()
            self._pass(PACE_MS)
        self.commit_all()
        living = self._living()
        if not living:
            assert self.driver.state() in {"Empty", "Dead"}
            return
        assert self.driver.state() == "Stable"
        assert {client.phase for client in living} == {"stable"}, living
        assert {client.generation for client in living} == {self.worked}
        assert sorted(index for client in living for index in client.owned) == list(range(PARTITIONS))

    @rule()
    def silence(self) -> None:
        """All consumers stall, for good: everyone is answered, and the group is empty."""
        for client in self._living():
            client.alive = False
        for _ in range(4 * (SESSION_MS + REBALANCE_MS) // PACE_MS):
            self.commit_all()
            self.driver.advance(PACE_MS)
        self.commit_all()
        assert set(self.driver.answers) == set(self.driver.requests), "someone waits for ever"
        assert self.driver.state() in {"Empty", "Dead"}

    @invariant()
    def offsets_are_those_of_the_log_and_never_go_back(self) -> None:
        if not hasattr(self, "driver"):
            return
        seen = self.driver.offsets()
        for place, offset in self.acknowledged.items():
            assert seen.get(place, 0) >= offset, f"{place}: {offset} was acknowledged, {seen.get(place)} is seen"
        for place, offset in self.visible.items():
            assert seen.get(place, 0) >= offset, f"{place} went back from {offset} to {seen.get(place)}"
        self.visible = seen
        assert seen == self._model_of_offsets()

    def _model_of_offsets(self) -> dict[tuple[str, int], int]:
        """The records that the coordinator can know to be committed."""
        known = list(self.driver.log)
        doubtful: list = []
        for entry in self.driver.entries:
            if not entry.told:
                break
            if entry.fate == COMMITTED:
                known += doubtful + entry.records
                doubtful = []
            elif entry.fate == DOUBTFUL:
                doubtful += entry.records
        return replay(known)[0]

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self._group()
        said = sum(said_bytes(member.protocols) for member in group.members.values()) if group is not None else 0
        if hasattr(self, "driver"):
            assert self.driver.coordinator._context.metadata._budget.used_bytes == said
        if group is None:
            return
        check_group(group)

    def _group(self) -> Group | None:
        return self.driver.coordinator._groups.get("g") if hasattr(self, "driver") else None

    def _check_loaded(self) -> None:
        """A new coordinator knows what the records say, and nothing else."""
        offsets, groups = replay(self.driver.log)
        assert self.driver.offsets() == offsets
        value = groups.get("g")
        group = self._group()
        if value is None:
            assert group is None or (group.generation, group.members) == (0, {})
            return
        assert group is not None
        assert group.generation == value.generation >= self.worked
        described = self.driver.describe()
        assert described.group_state == ("Stable" if value.members else "Empty")
        assert [(each.member_id, each.member_metadata, each.member_assignment) for each in described.members] == [
            (each.member_id, each.subscription, each.assignment) for each in value.members
        ]


TestGroups = GroupsMachine.TestCase
TestGroups.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
