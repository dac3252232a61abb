"""Fetch sessions against what they stand for: after each exchange both sides know what a full request would have said."""

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import FetchPosition
from kafkalite_core.replica.fetch_session import FULL_LOOK_INTERVAL_MS, FollowerSession, LeaderSession

KEYS = ["a-0", "a-1", "b-0"]


class Partition:
    """The leader's partition: its end, its high watermark, its log start."""

    def __init__(self):
        self.end = self.high_watermark = self.start = 0


class FetchSessions(RuleBasedStateMachine):
    """One follower and one leader that talk in sessions; the connection may break between any two exchanges."""

    @initialize()
    def connect(self):
        self.now_ms = 0.0
        self.serial = 0
        self.partitions = {key: Partition() for key in KEYS}
        self.offsets = dict.fromkeys(KEYS, 0)
        self.bounds = {}
        self.followed = set(KEYS)
        self.looked_ms = {}
        self.broken()

    @rule()
    def broken(self):
        """The connection is lost: the leader's session with it."""
        self.follower = FollowerSession()
        self.leader = None

    @rule()
    def leader_forgets(self):
        """A leader may end a session whenever it likes; it refuses what refers to it."""
        self.leader = None

    @rule(key=st.sampled_from(KEYS), size=st.integers(1, 3))
    def append(self, key, size):
        self.partitions[key].end += size
        if self.leader is not None:
            self.leader.note(key)

    @rule(key=st.sampled_from(KEYS))
    def commit(self, key):
        partition = self.partitions[key]
        if partition.high_watermark < partition.end:
            partition.high_watermark = partition.end
            if self.leader is not None:
                self.leader.note(key)

    @rule(key=st.sampled_from(KEYS))
    def delete_records(self, key):
        """Nobody notes it: the follower hears of it when all partitions are looked at."""
        partition = self.partitions[key]
        partition.end += 1
        partition.high_watermark = partition.end
        if self.leader is not None:
            self.leader.note(key)
        self.exchange(len(KEYS))
        self.exchange(len(KEYS))
        partition.start = partition.high_watermark

    @rule(key=st.sampled_from(KEYS))
    def follow_or_not(self, key):
        self.followed ^= {key}

    @rule(ms=st.sampled_from([1.0, 200.0, FULL_LOOK_INTERVAL_MS]))
    def wait(self, ms):
        self.now_ms += ms

    @rule(room=st.integers(0, 4))
    def exchange(self, room):
        """One request and its answer; `room` partitions with records have room in it."""
        positions = {
            key: FetchPosition(
                leader=0,
                current_leader_epoch=0,
                fetch_offset=self.offsets[key],
                last_fetched_epoch=0,
                log_start_offset=0,
            )
            for key in KEYS
            if key in self.followed
        }
        request = self.follower.request(positions)
        if request.session_id == 0:
            self.serial += 1
            self.leader = LeaderSession(self.serial, len(KEYS))
            assert request.named == positions
            event("full")
        elif self.leader is None:
            # FETCH_SESSION_ID_NOT_FOUND: the follower drops the connection.
            self.broken()
            return
        else:
            event(f"incremental, {len(request.named)} named")
            named = [key for key in request.named if self.leader.get(key) is None]
            code = self.leader.check(request.session_id, request.session_epoch, len(named) - len(request.forgotten))
            assert code is ErrorCode.NONE
        self.bounds = {key: bounds for key, bounds in self.bounds.items() if key in positions}
        self.leader.take(request.named.items(), request.forgotten)
        assert {key: self.leader.get(key) for key in KEYS if self.leader.get(key)} == positions
        looked_at = self.leader.look(self.now_ms)
        if len(looked_at) == len(positions):
            self.looked_ms = dict.fromkeys(positions, self.now_ms)
        self.answer(positions, looked_at, room)
        self.follower.answered(self.leader.session_id)

    def answer(self, positions, looked_at, room):
        keys = {id(position): key for key, position in positions.items()}
        keys.update({id(self.leader.get(key)): key for key in KEYS if self.leader.get(key) is not None})
        for position in looked_at:
            key = keys[id(position)]
            partition = self.partitions[key]
            records = position.fetch_offset < partition.end
            sent = records and room > 0
            room -= sent
            if records and not sent:
                self.leader.note(key)
            told = self.leader.is_news(
                key, high_watermark=partition.high_watermark, log_start_offset=partition.start, urgent=sent
            )
            if told:
                self.bounds[key] = (partition.high_watermark, partition.start)
                if sent:
                    self.offsets[key] = partition.end

    @rule()
    def at_rest_everything_is_known(self):
        """With room for all and no news, two full looks later the follower has what the leader has."""
        for _ in range(4):
            self.now_ms += FULL_LOOK_INTERVAL_MS
            self.exchange(len(KEYS))
        for key in self.followed:
            partition = self.partitions[key]
            assert self.offsets[key] == partition.end
            assert self.bounds[key] == (partition.high_watermark, partition.start)

    @rule()
    def what_moved_is_known_after_one_exchange(self):
        """Without waiting for the look at all partitions: whatever was noted is told with the next answer."""
        if self.leader is None:
            return
        before = {key: self.bounds.get(key, (0, 0))[1] for key in self.followed}
        self.exchange(len(KEYS))
        if self.leader is None:
            return
        for key in self.followed:
            assert self.offsets[key] == self.partitions[key].end
            assert self.bounds[key][0] == self.partitions[key].high_watermark
            assert self.bounds[key][1] >= before[key]

    @invariant()
    def the_leader_knows_no_more_than_it_was_told(self):
        if getattr(self, "leader", None) is not None:
            assert len(self.leader) <= len(KEYS)


TestFetchSessions = FetchSessions.TestCase
TestFetchSessions.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
