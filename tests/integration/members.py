"""Members of a group as the tests see them: processes that run `group_member.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).with_name("group_member.py")


class Member:
    """One process; use as a context manager."""

    def __init__(self, cluster, client: str, group: str, topic: str, **options: object) -> None:
        self.assigned: list[int] = []
        self.assignments: list[list[int]] = []
        self.records: list[tuple[int, int]] = []
        self.committed = 0
        self.left = False
        self._leaving_s = 0.0
        self._log = cluster.home / f"member-{group}-{time.monotonic_ns()}.err"
        self._changed = threading.Condition()
        with self._log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), client, cluster.bootstrap, group, topic,
                 json.dumps({key.replace("_", "."): value for key, value in options.items()})],
                stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        for line in self.process.stdout:
            word, *numbers = line.split()
            with self._changed:
                if word == "assigned":
                    self.assigned = [int(number) for number in numbers]
                    self.assignments.append(self.assigned)
                elif word == "record":
                    self.records.append((int(numbers[0]), int(numbers[1])))
                elif word == "committed":
                    self.committed = len(self.records)
                elif word == "leaving":
                    self._leaving_s = time.monotonic()
                elif word == "left":
                    self.left = True
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait(self, condition: Callable[[Member], bool], timeout: float = 30) -> float:
        """Wait until the member's words make the condition true; returns the seconds that it took."""
        began = time.monotonic()
        with self._changed:
            fulfilled = self._changed.wait_for(lambda: condition(self), timeout)
        assert fulfilled, (
            f"not within {timeout} s: assigned {self.assigned}, {len(self.records)} records, {self.committed} committed, "
            f"exit code {self.process.poll()}: {self._log.read_text()[-2000:]}"
        )
        return time.monotonic() - began

    def leave(self, timeout: float = 20) -> float:
        """Close in order; the seconds that closing took, without the poll that it was in."""
        self.process.terminate()
        self.wait(lambda member: member.left, timeout)
        seconds = time.monotonic() - self._leaving_s
        self.process.wait(timeout)
        return seconds

    def kill(self) -> None:
        """SIGKILL: the group hears nothing of it."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        self.process.stdout.close()


def settled(members: list[Member], partitions: int, timeout: float = 30) -> float:
    """Wait until every partition belongs to just one of the members and none has nothing; returns the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < timeout:
        held = [partition for member in members for partition in member.assigned]
        if sorted(held) == list(range(partitions)) and all(member.assigned for member in members):
            return time.monotonic() - began
        time.sleep(0.02)
    raise AssertionError(f"not settled within {timeout} s: {[member.assigned for member in members]}")


def all_read(members: list[Member], wanted: set[tuple[int, int]], timeout: float = 30) -> None:
    """Wait until the members together have read, and committed, those records."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        read = {record for member in members for record in member.records}
        if wanted <= read and all(member.committed == len(member.records) for member in members):
            return
        time.sleep(0.02)
    raise AssertionError(f"not read within {timeout} s: {sorted(wanted - read)}")
