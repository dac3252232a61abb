"""One member of a consumer group under test: a process of its own that writes down all that it sees.

    python -m kafkalite_cli.verify.group_member --bootstrap … --topic … --group … --run … --number 3 --history FILE

It reads, commits every `--commit-ms` and once more when partitions are taken away, and leaves the group in order when
its standard input ends or it gets SIGTERM: then also nobody is left behind when whoever started it dies. What it has
committed is in its file before the commit is sent, so that a killed member leaves nothing unexplained.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkalite_cli.verify.group_history import (
    Assigned,
    Commit,
    Committing,
    GroupRecorder,
    Joining,
    Leaving,
    Revoked,
    generation_of,
)
from kafkalite_cli.verify.history import Foreign, Read, Unnamed, UnnamedError, decode_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

POLL_S = 0.1
NO_ANSWER = "NO_ANSWER"
MAX_POLL_INTERVAL_MS = 60_000


def now_us() -> int:
    """Microseconds of the machine's monotonic clock, the same in all processes."""
    return time.monotonic_ns() // 1000


class Member:
    """A consumer of the group and its history.

    Args:
        options: bootstrap, topic, group, run, number, history, strategy (assignors, comma-separated), session_ms,
            commit_ms.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.number: int = options.number
        self._topic, self._run = options.topic, options.run
        self._strategies: list[str] = options.strategy.split(",")
        self._commit_s = options.commit_ms / 1000
        self._answer_limit_s = options.session_ms / 1000 + 5.0
        self._recorder = GroupRecorder(options.history)
        self._joined = -1
        self._owned: set[int] = set()
        self._positions: dict[int, int] = {}  # partition -> behind the last record read
        self._committed: dict[int, int] = {}
        self._pending: dict[int, Commit] = {}  # partition -> commit that waits for its answer
        self._pending_since = 0.0
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "client.id": f"member-{options.number}",
                "partition.assignment.strategy": options.strategy,
                "session.timeout.ms": options.session_ms,
                "heartbeat.interval.ms": max(200, options.session_ms // 10),
                "max.poll.interval.ms": max(MAX_POLL_INTERVAL_MS, options.session_ms),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "on_commit": self._on_commit,
                "error_cb": self._on_error,
                "log_level": 2,
            }
        )

    def run(self, stop: threading.Event) -> None:
        """Join, read and commit until `stop`, then leave. Raises KafkaException when the client cannot go on."""
        self._recorder.record(Joining(self.number, self._strategies, now_us()))
        self._recorder.flush()
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        next_commit_s = time.monotonic() + self._commit_s
        while not stop.is_set():
            message = self._consumer.poll(POLL_S)
            if message is not None:
                self._take(message)
            if time.monotonic() >= next_commit_s:
                self._commit_in_passing()
                next_commit_s = time.monotonic() + self._commit_s
        self._recorder.record(Leaving(self.number, now_us()))
        self._consumer.close()  # gives the partitions up, which commits
        self._recorder.close()

    # --- records

    def _take(self, message: Message) -> None:
        if (error := message.error()) is not None:
            self._on_error(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._recorder.record(self._event(message.value(), partition, offset))
        self._recorder.flush()  # also what a killed member read and did not commit is known
        self._positions[partition] = offset + 1

    def _event(self, value: Any, partition: int, offset: int) -> Read | Unnamed | Foreign:
        try:
            record = decode_value(value if isinstance(value, bytes) else None, self._run)
        except UnnamedError:
            return Unnamed(self.number, partition, offset, now_us())
        if record is None:
            return Foreign(self.number, partition, offset, now_us())
        return Read(self.number, partition, offset, *record, now_us())

    def _on_error(self, error: KafkaError) -> None:
        """What goes wrong with connections shows in the history by what comes late; a fatal error ends the member."""
        if error.fatal():
            raise KafkaException(error)

    # --- commits

    def _generation(self) -> int:
        """The generation that a request sent now would carry; while the consumer closes, the last one."""
        generation = generation_of(self._consumer.consumer_group_metadata())
        if generation >= 0:
            self._joined = generation
        return self._joined

    def _due(self, partitions: Iterable[int]) -> list[TopicPartition]:
        """The offsets that are to be committed now; they and what they cover are in the file from now on."""
        moved = {p: self._positions[p] for p in partitions if self._positions.get(p, -1) > self._committed.get(p, -1)}
        at_us = now_us()
        for partition, offset in moved.items():
            self._recorder.record(Committing(self.number, partition, offset, at_us))
        self._recorder.flush()
        return [TopicPartition(self._topic, partition, offset) for partition, offset in moved.items()]

    def _commit_in_passing(self) -> None:
        """Commit without waiting; one commit at a time, so that they have an order."""
        if self._pending:
            if time.monotonic() - self._pending_since > self._answer_limit_s:
                self._settle(NO_ANSWER, {})
            return
        due = self._due(self._owned)
        if not due:
            return
        generation, invoked_us = self._generation(), now_us()
        for item in due:
            commit = Commit(self.number, generation, item.partition, item.offset, "", invoked_us, 0)
            self._pending[item.partition] = commit
        self._pending_since = time.monotonic()
        try:
            self._consumer.commit(offsets=due, asynchronous=True)
        except KafkaException as error:
            self._settle(error.args[0].name(), {})

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition] | None) -> None:
        """The answer to the commit in passing; one that was given up may still be answered: it stays given up."""
        offsets = {item.partition: item.offset for item in partitions or ()}
        if offsets != {partition: commit.offset for partition, commit in self._pending.items()}:
            return
        self._settle(error.name() if error else "", _errors(partitions or []))

    def _settle(self, error: str, errors: dict[int, str]) -> None:
        """Note how the commit in passing ended."""
        generation, at_us = self._generation(), now_us()
        for partition, commit in self._pending.items():
            failed = error or errors.get(partition, "")
            self._note(commit, max(commit.generation, generation), failed, at_us)
        self._pending.clear()

    def _note(self, commit: Commit, generation: int, error: str, at_us: int) -> None:
        if not error:
            self._committed[commit.partition] = max(commit.offset, self._committed.get(commit.partition, -1))
        self._recorder.record(
            Commit(commit.member, generation, commit.partition, commit.offset, error, commit.invoked_us, at_us)
        )

    def _commit_and_wait(self, partitions: Iterable[int]) -> None:
        due = self._due(partitions)
        if not due:
            return
        generation, invoked_us = self._generation(), now_us()
        error, errors = "", {}
        try:
            done = self._consumer.commit(offsets=due, asynchronous=False)
            errors = _errors(done or [])
        except KafkaException as failed:
            error = failed.args[0].name()
        generation, at_us = max(generation, self._generation()), now_us()
        for item in due:
            commit = Commit(self.number, generation, item.partition, item.offset, "", invoked_us, 0)
            self._note(commit, generation, error or errors.get(item.partition, ""), at_us)

    # --- rebalances

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        del consumer
        added = {item.partition for item in partitions}
        for partition in added:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
        self._owned |= added
        self._recorder.record(Assigned(self.number, self._generation(), sorted(self._owned), now_us()))
        self._recorder.flush()

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        del consumer
        removed = {item.partition for item in partitions}
        self._commit_and_wait(removed)
        self._release(removed, lost=False)

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        del consumer
        self._release({item.partition for item in partitions}, lost=True)

    def _release(self, removed: set[int], *, lost: bool) -> None:
        self._owned -= removed
        for partition in removed:
            self._positions.pop(partition, None)
        self._recorder.record(Revoked(self.number, self._generation(), sorted(self._owned), lost, now_us()))
        self._recorder.flush()


def _errors(partitions: list[TopicPartition]) -> dict[int, str]:
    return {item.partition: item.error.name() for item in partitions if item.error is not None}


def main() -> int:
    """The command line; it is meant for programs, which hold the other end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "topic", "group", "run"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--strategy", default="range,roundrobin")
    parser.add_argument("--session-ms", type=int, default=10_000)
    parser.add_argument("--commit-ms", type=int, default=500)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # not by `sys.stdin`, whose lock would be held when the process ends
            pass
        stop.set()

    threading.Thread(target=wait, name="standard-input", daemon=True).start()
    Member(options).run(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
