"""Runs one cell on a cluster: the members come, records flow, members and coordinators are killed, all of it is noted."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.integration.cluster import running
from tests.integration.coordinators import coordinator_of
from tests.integration.group_matrix.cells import AT_ONCE
from tests.integration.group_matrix.history import Acked, Assembled, Fault, Observed, Owns, Read
from tests.integration.group_matrix.judge import Limits, judge
from tests.integration.group_matrix.members import SESSION_MS, Member, command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cluster import Cluster
    from tests.integration.group_matrix.cells import Cell
    from tests.integration.group_matrix.history import Event
    from tests.integration.group_matrix.judge import Verdict

PARTITIONS = 6
BURST = 3  # records of each partition
BURST_S = 0.25
LOOK_S = 0.1
STEP_LIMIT_S = 60.0
"""When the next step of a cell does not come about at all: it is given up, and has failed."""

STUCK_S = SESSION_MS / 1000 + 2
STRICT = Limits(waiting_s=STUCK_S, joining_s=STUCK_S + 3, delivery_s=2 * SESSION_MS / 1000)
"""A member counts as stuck after its session time-out + 2 s; a new process has 3 s more, for starting up."""

GENEROUS = Limits(waiting_s=4 * STUCK_S, joining_s=5 * STUCK_S, delivery_s=5 * STUCK_S)
"""For machines that do other things meanwhile."""


class Stuck(Exception):
    """A step of a cell did not come about."""


class CellRun:
    """One cell.

    Args:
        cluster: Runs; its coordinators have no initial delay.
        cell: What to do.
        directory: For what the members print besides; it is there.
        seed: Chooses the victims.
    """

    def __init__(self, cluster: Cluster, cell: Cell, directory: Path, seed: int) -> None:
        self.cluster, self.cell, self.directory = cluster, cell, directory
        self.chance = random.Random(f"{seed} {cell.name}")
        self.topic = self.group = f"matrix-{cell.name}-{seed}"
        self.history: list[Event] = []
        self.members: list[Member] = []
        self._started = 0
        self._done = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()

    def run(self, limits: Limits) -> Verdict:
        """Everything, and the verdict."""
        self.cluster.create_topic(self.topic, partitions=PARTITIONS, min_insync_replicas="2")
        producing, observing = (threading.Thread(target=work, daemon=True) for work in (self._produce, self._observe))
        problem = ""
        try:
            producing.start()
            observing.start()
            self._experiment()
            self._flowing.clear()
            producing.join(STEP_LIMIT_S)
            self._read_to_the_end()
        except (Stuck, AssertionError) as error:
            problem = str(error)
        finally:
            self._flowing.clear()
            self._done.set()
            producing.join(STEP_LIMIT_S)
            observing.join(STEP_LIMIT_S)
            for member in self.members:
                member.kill()
            self.cluster.delete_topic(self.topic)
        # Threads add to it; each takes the time right before, so that neighbours may have changed places.
        verdict = judge(sorted(self.history, key=lambda event: event.at_s), limits)
        if problem:
            verdict.problems.insert(0, problem)
        return verdict

    def _experiment(self) -> None:
        for _ in range(self.cell.members):
            self._start_member()
        self._settled()
        self.history.append(Assembled(time.monotonic()))
        self._caught_up()
        if self.cell.harm == AT_ONCE:
            self._healed()
            self._kill_coordinator()
            self._kill_member()
            if not self.members:
                self._start_member()
            self._settled()
            self._caught_up()
            self._start_if_missing()
        else:
            self._kill_member()
            self._start_member()
            self._settled()
            self._caught_up()
            self._healed()
            self._kill_coordinator()
        self._caught_up()
        self._settled()

    def _read_to_the_end(self) -> None:
        self._wait(lambda: not (gone := self._missing()) or f"{len(gone)} records are not read: {sorted(gone)[:3]}")
        self._wait(lambda: self._committed_everything() or "what was read is not committed")

    # ------------------------------------------------------------------------------------------------ harm

    def _start_member(self) -> None:
        self._started += 1
        cell = self.cell
        line = command(cell.client, cell.strategy, self.cluster.bootstrap, self.group, self.topic, self.directory)
        name = f"member-{self._started}"
        self.members.append(Member(name, cell.client, line, self.directory, self.history.append))

    def _start_if_missing(self) -> None:
        if len(self.members) < self.cell.members:
            self._start_member()
            self._settled()

    def _kill_member(self) -> None:
        victim = self.members.pop(self.chance.randrange(len(self.members)))
        self.history.append(Fault(time.monotonic(), f"SIGKILL {victim.name}"))
        victim.kill()

    def _kill_coordinator(self) -> None:
        broker = coordinator_of(self.cluster, self.group)
        self.history.append(Fault(time.monotonic(), f"SIGKILL broker {broker}, the coordinator"))
        self.cluster.signal(broker, signal.SIGKILL)

    # ------------------------------------------------------------------------------------------------ waiting

    def _wait(self, condition: Callable[[], bool | str]) -> None:
        """Until the condition returns True; else it says in words what is missing."""
        end = time.monotonic() + STEP_LIMIT_S
        while (missing := condition()) is not True:
            if time.monotonic() > end:
                raise Stuck(f"gave up after {STEP_LIMIT_S:.0f} s: {missing}")
            time.sleep(0.05)

    def _settled(self) -> None:
        """Every partition belongs to just one of the members, and each of them has one at least."""

        def settled() -> bool | str:
            held = [sorted(member.owned) for member in self.members]
            owned = sorted(itertools.chain.from_iterable(held))
            return (owned == list(range(PARTITIONS)) and all(held)) or f"not settled: {held}"

        self._wait(settled)

    def _caught_up(self) -> None:
        """What was acknowledged by now is read; and something was."""
        now = len(self.history)
        self._wait(lambda: any(isinstance(event, Acked) for event in self.history[now:]) or "no acknowledgement")
        wanted = self._acked()
        self._wait(lambda: not (gone := wanted - self._read()) or f"{len(gone)} records are not read")

    def _healed(self) -> None:
        """Every broker runs, and every replica of this topic and of the offsets is in sync."""
        for number in range(3):
            self.cluster.wait_broker(number, running, STEP_LIMIT_S)
        self.cluster.wait_healed(STEP_LIMIT_S)

    def _acked(self) -> set[tuple[int, int]]:
        return {(event.partition, event.offset) for event in list(self.history) if isinstance(event, Acked)}

    def _read(self) -> set[tuple[int, int]]:
        return {(event.partition, event.offset) for event in list(self.history) if isinstance(event, Read)}

    def _missing(self) -> set[tuple[int, int]]:
        return self._acked() - self._read()

    def _committed_everything(self) -> bool:
        last = next((event.offsets for event in reversed(self.history) if isinstance(event, Observed)), {})
        ends: dict[int, int] = {}
        for partition, offset in self._acked():
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return last == ends

    # ------------------------------------------------------------------------------------------------ threads

    def _produce(self) -> None:
        """Bursts, so that every client finds a moment for committing."""
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )

        def delivered(error: object, message: object) -> None:
            if error is None:
                self.history.append(Acked(time.monotonic(), message.partition(), message.offset()))

        number = 0
        while self._flowing.is_set():
            for partition in list(range(PARTITIONS)) * BURST:
                producer.produce(self.topic, b"%d" % (number := number + 1), partition=partition, on_delivery=delivered)
            end = time.monotonic() + BURST_S
            while (left := end - time.monotonic()) > 0:
                producer.poll(left)
        producer.flush(30)

    def _observe(self) -> None:
        """Asks for the committed offsets all the time, and is never a member."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group, "log_level": 0})
        asked = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        while not self._done.is_set():
            began_s = time.monotonic()
            try:
                found = consumer.committed(asked, timeout=3)
            except KafkaException:
                found = []
            if found and not any(entry.error for entry in found):
                offsets = {entry.partition: entry.offset for entry in found if entry.offset >= 0}
                self.history.append(Observed(time.monotonic(), offsets))
            self._done.wait(max(0.0, LOOK_S - (time.monotonic() - began_s)))
        consumer.close()


def last_words(history: list[Event]) -> list[str]:
    """The members' assignments and the harm, in order: what one wants to see of a cell that failed."""
    began_s = history[0].at_s if history else 0.0
    lines = []
    for event in history:
        if isinstance(event, Owns):
            lines.append(f"{event.at_s - began_s:7.2f} {event.member} owns {sorted(event.partitions)}")
        elif isinstance(event, Fault):
            lines.append(f"{event.at_s - began_s:7.2f} {event.text}")
    return lines
