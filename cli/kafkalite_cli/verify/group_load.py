"""A consumer group under test: member processes, an observer of the committed offsets, and the producers of `load`.

    with GroupLoad("127.0.0.1:9092", "orders", directory, members=6, producers=4, rate=400) as load:
        load.wait_stable(6, timeout_s=60)
        load.fault("SIGKILL broker 1", partitions_led_by_1)       # at the very instant of the kill
        member = load.start_member()                              # joins, or:
        load.kill_member(member)                                  # SIGKILL, or:
        load.leave_member(member)                                 # in order, or term_member: by SIGTERM, and
        load.wait_left()                                          # until it has
    verdict = load.verdict()                                      # the log's promises and the group's

Files in `directory`: log.jsonl (producers and consumers outside the group, docs/verify.md), group.jsonl (the driver and
the observer), member-N.jsonl.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite_cli.verify.checker import Report, check
from kafkalite_cli.verify.group_checker import check_group
from kafkalite_cli.verify.group_history import (
    GROUP_VERSION,
    NO_OFFSET,
    Assigned,
    GroupEvent,
    GroupHeader,
    GroupRecorder,
    Killed,
    Observed,
    Revoked,
    read_group_history,
)
from kafkalite_cli.verify.group_member import now_us
from kafkalite_cli.verify.group_report import GroupLimits, GroupReport  # noqa: TC001 - msgspec reads annotations
from kafkalite_cli.verify.history import Ack, Assign, Event, Fault, Foreign, Read, Unknown, Unnamed, read_history
from kafkalite_cli.verify.load import Load, LoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

OBSERVE_S = 0.25
ASK_TIMEOUT_S = 5.0
MEMBER_STOP_LIMIT_S = 30.0
MEMBERS_FROM = 100  # numbers of members as consumers of the log's history, above those of `load`


class GroupVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the log kept, and what the group did."""

    ok: bool
    log: Report
    group: GroupReport


class GroupLoad:
    """Producers on a topic and a group that reads it; everything that any of them sees is written down.

    Args:
        bootstrap: addresses of brokers.
        topic: must exist.
        directory: for the files of the run; it must exist.
        members: how many processes to start with.
        strategies: `partition.assignment.strategy` of the members in turn, such as ["range,roundrobin"].
        producers: idempotent ones, with acks=all.
        rate: records per second of all producers together.
        observe_s: as of `Load`: a client outside the group asks for the ends of all partitions as well.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        directory: Path,
        *,
        members: int = 6,
        strategies: Sequence[str] = ("range,roundrobin",),
        producers: int = 4,
        rate: float = 400,
        session_timeout_ms: int = 10_000,
        commit_ms: int = 500,
        observe_s: float = 0.0,
    ) -> None:
        self.bootstrap, self.topic, self.directory = bootstrap, topic, directory
        self.session_timeout_ms, self._commit_ms, self._strategies = session_timeout_ms, commit_ms, strategies
        self.log = Load(
            bootstrap, topic, rate, producers=producers, history=directory / "log.jsonl", observe_s=observe_s
        )
        self.group = f"verify-{self.log.run}"
        self._first_members = members
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self._leaving: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._recorder = GroupRecorder(directory / "group.jsonl")
        self._recording = threading.Lock()
        self._stop_observing = threading.Event()
        self._observer = threading.Thread(target=self._observe, name="verify-observer", daemon=True)
        self._last: dict[int, int] = {}  # partition -> committed offset as last observed
        self._stopped = False
        self._ended_us: int | None = None  # when all members were told to leave

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(timeout_s=1.0 if kind else 60.0)

    # --- life

    def start(self) -> None:
        """Begin to produce and start the members. Raises LoadError when there is no topic or no broker answers."""
        self._meet_coordinator()
        self.log.start()
        header = GroupHeader(
            GROUP_VERSION,
            self.log.run,
            self.topic,
            self.group,
            self.log.partitions,
            self.session_timeout_ms,
            time.time_ns() // 1_000_000,
        )
        self._record(header)
        self._observer.start()
        for _ in range(self._first_members):
            self.start_member()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop producing, let the group read and commit all there is (for `timeout_s`), then let every member leave.

        Raises LoadError when a member failed; everything is stopped all the same.
        """
        if self._stopped:
            return
        self._stopped = True
        try:
            self.log.stop(timeout_s)
            self._drain(timeout_s)
        finally:
            self._ended_us = now_us()
            failed = [number for number in list(self._leaving) if not self._left(number)]
            for number in list(self._members):
                self.leave_member(number)
                failed += [] if self._left(number) else [number]
            self._stop_observing.set()
            if self._observer.ident is not None:
                self._observer.join()
            self._recorder.close()
        if failed:
            raise LoadError(f"members {failed} failed or did not end; see {self.directory}/member-*.err")

    # --- members

    @property
    def members(self) -> list[int]:
        """Numbers of the members that were started and neither stopped nor killed."""
        return list(self._members)

    def start_member(self) -> int:
        """Start one more member; returns its number at once."""
        number = self._started
        self._started += 1
        command = [sys.executable, "-m", "kafkalite_cli.verify.group_member", "--bootstrap", self.bootstrap]
        command += ["--topic", self.topic, "--group", self.group, "--run", self.log.run, "--number", str(number)]
        command += ["--history", str(self._member_file(number)), "--session-ms", str(self.session_timeout_ms)]
        command += ["--strategy", self._strategies[number % len(self._strategies)], "--commit-ms", str(self._commit_ms)]
        with self._member_file(number).with_suffix(".err").open("wb") as errors:
            self._members[number] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, start_new_session=True
            )
        return number

    def leave_member(self, number: int) -> None:
        """Have one member leave the group in order; it closes its consumer within 0.1 s and is not waited for."""
        process = self._leaving[number] = self._members.pop(number)
        assert process.stdin is not None
        process.stdin.close()

    def term_member(self, number: int) -> None:
        """SIGTERM to one member, which leaves the group in order; it is not waited for."""
        process = self._leaving[number] = self._members.pop(number)
        process.terminate()

    @contextmanager
    def frozen_member(self, number: int) -> Iterator[None]:
        """SIGSTOP to one member for the body, then SIGCONT."""
        process = self._members[number]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def wait_left(self) -> None:
        """Wait until those who are to leave have left, for 30 s each. Raises LoadError when one failed."""
        failed = [number for number in list(self._leaving) if not self._left(number)]
        if failed:
            raise LoadError(f"members {failed} failed or did not end; see {self.directory}/member-*.err")

    def kill_member(self, number: int) -> None:
        """SIGKILL one member."""
        process = self._members.pop(number)
        self._record(Killed(number, now_us()))
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def _left(self, number: int) -> bool:
        process = self._leaving.pop(number)
        try:
            return process.wait(MEMBER_STOP_LIMIT_S) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        finally:
            assert process.stdin is not None
            process.stdin.close()

    def _member_file(self, number: int) -> Path:
        return self.directory / f"member-{number}.jsonl"

    def describe(self) -> Any:
        """What the coordinator says of the group. Raises KafkaException.

        By a new client: one that has been told NOT_COORDINATOR goes on asking the same broker (librdkafka 2.16).
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return admin.describe_consumer_groups([self.group], request_timeout=ASK_TIMEOUT_S)[self.group].result()

    def wait_stable(self, members: int, timeout_s: float) -> None:
        """Wait until the coordinator calls the group stable with so many members. Raises LoadError in the end."""
        limit, seen = time.monotonic() + timeout_s, ""
        while time.monotonic() < limit:
            try:
                described = self.describe()
            except KafkaException as error:
                seen = error.args[0].str() or error.args[0].name()
            else:
                seen = f"{described.state.name} with {len(described.members)} members"
                if described.state == ConsumerGroupState.STABLE and len(described.members) == members:
                    return
            failed = [number for number, process in self._members.items() if process.poll() is not None]
            if failed:
                raise LoadError(f"members {failed} ended by themselves; see {self.directory}/member-*.err")
            time.sleep(0.1)  # the coordinator offers no event for this
        raise LoadError(f"group {self.group} is not stable with {members} members after {timeout_s:.0f} s: {seen}")

    def wait_committed(self, timeout_s: float) -> None:
        """Wait until the observer saw a committed offset of every partition. Raises LoadError in the end.

        A member asks the log for a position where nothing is committed yet. If its partition is taken away before the
        answer has come, librdkafka (2.16) asks once more half a second later, and goes there with a later assignment
        too: a member that was stopped in that moment reads from the beginning, whatever was committed meanwhile.
        """
        limit = time.monotonic() + timeout_s
        while lacking := [number for number in range(self.log.partitions) if self._last.get(number, 0) <= 0]:
            if time.monotonic() > limit:
                raise LoadError(f"group {self.group} has committed nothing of partitions {lacking}")
            time.sleep(OBSERVE_S)

    # --- faults and observations

    def fault(self, name: str, partitions: Iterable[int]) -> float:
        """Note that the leader of these partitions is harmed now; returns the instant (time.monotonic seconds)."""
        numbers = list(partitions)
        instant = self.log.fault(name, numbers)
        self._record(Fault(name, numbers, round(instant * 1e6)))
        return instant

    def _record(self, event: GroupEvent) -> None:
        with self._recording:
            self._recorder.record(event)

    def _asking(self) -> Consumer:
        """A client that asks for the group's offsets without being a member."""
        return Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False, "log_level": 2}
        )

    def _meet_coordinator(self) -> None:
        """Have the offsets topic made, which the first request for any coordinator does."""
        consumer, limit = self._asking(), time.monotonic() + 60.0
        try:
            while True:
                try:
                    consumer.committed([TopicPartition(self.topic, 0)], timeout=ASK_TIMEOUT_S)
                except KafkaException as error:
                    if time.monotonic() > limit:
                        raise LoadError(f"no coordinator: {error.args[0].str()}") from error
                else:
                    return
        finally:
            consumer.close()

    def _observe(self) -> None:
        consumer = self._asking()
        asked = [TopicPartition(self.topic, partition) for partition in range(self.log.partitions)]
        try:
            while not self._stop_observing.wait(OBSERVE_S):
                invoked_us = now_us()
                try:
                    answers = consumer.committed(asked, timeout=ASK_TIMEOUT_S)
                except KafkaException:
                    continue  # a coordinator that is away tells nothing
                at_us = now_us()
                for answer in answers:
                    if answer.error is None:
                        offset = max(answer.offset, NO_OFFSET)
                        self._last[answer.partition] = offset
                        self._record(Observed(answer.partition, offset, invoked_us, at_us))
        finally:
            consumer.close()

    def _drain(self, timeout_s: float) -> None:
        """Wait until what was acknowledged is committed; what is not by then is judged as it is."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            if all(self._last.get(partition, 0) > offset for partition, offset in self.log.acks.highest.items()):
                return
            time.sleep(OBSERVE_S)

    # --- judgement

    def verdict(self, limits: GroupLimits | None = None) -> GroupVerdict:
        """Judge the files of the run; call it after `stop`."""
        assert self._stopped, "stop() first"
        outside = list(read_history(self.directory / "log.jsonl"))
        driver = read_group_history(self.directory / "group.jsonl")
        members = [read_group_history(self._member_file(number)) for number in range(self._started)]
        return judge(outside, driver, members, limits, self._ended_us)


def judge(
    outside: Sequence[Event],
    driver: Sequence[GroupEvent],
    members: Sequence[Sequence[GroupEvent]],
    limits: GroupLimits | None = None,
    ended_us: int | None = None,
) -> GroupVerdict:
    """Put the files of a run together: producers and consumers outside the group, the driver, and every member.

    Members that leave at `ended_us` (microseconds) or later do so because the run is over.
    """
    # What members read is also judged as what it is: reads of the log.
    log = check([*outside[:1], *_reads(members), *outside[1:]])
    sent = [event for event in outside if isinstance(event, Ack | Unknown | Assign)]
    group = check_group([*sent, *driver, *(event for file in members for event in file)], limits, ended_us)
    return GroupVerdict(ok=log.ok and group.ok, log=log, group=group)


def _reads(members: Sequence[Sequence[GroupEvent]]) -> list[Event]:
    """The members' reads as those of consumers of the log; an assignment begins wherever its first record is."""
    found: list[Event] = []
    for file in members:
        owned: set[int] = set()
        for event in file:
            if isinstance(event, Assigned):
                number = event.member + MEMBERS_FROM
                found += [Assign(number, p, -1, event.at_us) for p in event.partitions if p not in owned]
                owned = set(event.partitions)
            elif isinstance(event, Revoked):
                owned = set(event.partitions)
            elif isinstance(event, Read | Unnamed | Foreign):
                found.append(_as_outsider(event))
    return found


def _as_outsider(event: Read | Unnamed | Foreign) -> Event:
    values: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__}
    return type(event)(**{**values, "consumer": event.consumer + MEMBERS_FROM})
