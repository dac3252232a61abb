"""Follows topics, brokers and pods at the API server, writes down what changes, and counts what it means.

The counts are the evidence that a fault bit: elections, members that left the ISR, incarnations, restarts. The file is
the metadata history (docs/verify.md): one line per change, in the order in which one watch per kind delivered them.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.chaos.api import ApiRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.api import Api

SILENCE_S = 12.0  # the server sends a bookmark every 5 s
RETRY_S = 0.2
LOOK_S = 0.2
SYNC_LIMIT_S = 60.0
TROUBLES = (OSError, http.client.HTTPException, ApiRefusedError, ValueError)  # of a server that is away or cut off
WATCHED = ("kafkalitetopics", "kafkalitebrokers", "kafkaliteclusters", "pods")
RECORDED = ("kafkalitetopics", "kafkalitebrokers", "kafkaliteclusters")
Json = dict[str, Any]


def changes(plural: str, old: Json | None, new: Json) -> Counter[str]:
    """What happened between two states of an object; keys end in the topic or broker concerned.

    `elections/T` counts raised leader epochs, `isr_shrinks/T` and `isr_growths/T` changes of the ISR, `incarnations/B`
    registrations, `fencings/B`, `restarts/POD` container restarts.
    """
    counts: Counter[str] = Counter()
    name = new["metadata"]["name"]
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    if plural == "kafkalitetopics":
        known = before.get("partitions") or {}
        for number, entry in (status.get("partitions") or {}).items():
            if number not in known:
                continue
            was = known[number]
            counts[f"elections/{name}"] += max(0, entry["leaderEpoch"] - was["leaderEpoch"])
            left = members(was) - members(entry)
            counts[f"isr_shrinks/{name}"] += bool(left)
            counts[f"isr_growths/{name}"] += bool(members(entry) - members(was))
            for broker in left:
                counts[f"left_isr/{broker}"] += 1
    elif plural == "kafkalitebrokers":
        broker = new["spec"]["brokerId"]
        counts[f"incarnations/{broker}"] += old is not None and _epoch(status) > _epoch(before)
        counts[f"fencings/{broker}"] += old is not None and _fenced(status) > _fenced(before)
    elif plural == "pods":
        counts[f"restarts/{name}"] += max(0, _restarts(status) - _restarts(before)) if old is not None else 0
    return +counts


def members(entry: Json) -> set[int]:
    """Broker ids in the ISR of a partition's entry."""
    return set(entry["isr"])


def _epoch(status: Json) -> int:
    return int((status.get("registration") or {}).get("brokerEpoch", -1))


def _fenced(status: Json) -> int:
    return int((status.get("fencing") or {}).get("fencedEpoch", -1))


def _restarts(status: Json) -> int:
    return sum(int(each.get("restartCount", 0)) for each in status.get("containerStatuses") or [])


class WatchError(RuntimeError):
    """What happens is not recorded any more; the text says why."""


class MetadataLog:
    """Threads that follow the API server until `stop`; the server may go away and come back."""

    def __init__(self, api: Api, path: Path) -> None:
        self._api = api
        self._file = path.open("w", encoding="utf-8")
        self._changed = threading.Condition()
        self._objects: dict[str, dict[str, Json]] = {plural: {} for plural in WATCHED}
        self._counts: Counter[str] = Counter()
        self._ended = threading.Event()
        self._failure = ""
        self._threads = [
            threading.Thread(target=self._follow, args=(plural,), name=f"watch {plural}", daemon=True)
            for plural in WATCHED
        ]

    def start(self) -> None:
        """Begin to follow."""
        for thread in self._threads:
            thread.start()

    def sync(self, timeout_s: float = SYNC_LIMIT_S) -> None:
        """Everything that the API server has by now is in the file when this returns. Raises WatchError."""
        limit = time.monotonic() + timeout_s
        try:
            while behind := self._behind():
                if time.monotonic() > limit:
                    raise WatchError(f"not recorded after {timeout_s:.0f} s: {', '.join(behind)[:500]}")
                time.sleep(LOOK_S)
        finally:  # what was recorded is judged in any case
            with self._changed:
                self._file.flush()

    def _behind(self) -> list[str]:
        """Objects that the server has in a later version than was recorded."""
        self._check()
        found = []
        for plural in RECORDED:
            try:
                items = self._api.list(plural)["items"]
            except TROUBLES as error:
                return [f"{plural}: {error}"]
            known = {name: int(each["metadata"]["resourceVersion"]) for name, each in self.objects(plural).items()}
            for item in items:
                name, version = item["metadata"]["name"], int(item["metadata"]["resourceVersion"])
                if known.get(name, -1) < version:
                    found.append(f"{plural} {name}")
        return found

    def _check(self) -> None:
        if self._failure:
            raise WatchError(self._failure)

    def end(self) -> None:
        """Record nothing from now on; the threads end with the next thing they hear."""
        self._ended.set()
        with self._changed:
            self._file.close()

    def join(self) -> None:
        """Wait for the threads to end, which they do at once when the server has ended."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(SILENCE_S)

    def counts(self) -> Counter[str]:
        """Everything counted so far."""
        with self._changed:
            return Counter(self._counts)

    def objects(self, plural: str) -> dict[str, Json]:
        """The objects as they are known now, by name."""
        with self._changed:
            return dict(self._objects[plural])

    def wait(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Until the predicate over `counts` and `objects` holds; asked whenever something changed. Raises WatchError."""
        limit = time.monotonic() + timeout_s
        self._check()
        while not predicate():
            self._check()
            if (left := limit - time.monotonic()) <= 0:
                return False
            with self._changed:
                self._changed.wait(min(left, LOOK_S))  # a change since the predicate was asked costs so much at most
        return True

    def _follow(self, plural: str) -> None:
        try:
            self._follow_until_the_end(plural)
        except Exception as error:  # the thread's root: who goes by what it would have seen has to know
            with self._changed:
                self._failure = f"the watch of {plural} has ended: {type(error).__name__}: {error}"
                self._changed.notify_all()

    def _follow_until_the_end(self, plural: str) -> None:
        first = True
        while not self._ended.is_set():
            try:
                listed = self._api.list(plural)
                self._reset(plural, listed, first=first)
                first = False
                version = listed["metadata"]["resourceVersion"]
                for event in self._api.watch(plural, version, timeout_s=SILENCE_S):
                    if self._ended.is_set():
                        return
                    if event["type"] == "ERROR":
                        break
                    if event["type"] != "BOOKMARK":
                        self._take(plural, event["type"], event["object"])
            except TROUBLES:
                self._ended.wait(RETRY_S)

    def _reset(self, plural: str, listed: Json, *, first: bool) -> None:
        """After a pause: what is different now is told as if it had been watched, behind a mark."""
        known = self.objects(plural)
        now = {item["metadata"]["name"]: item for item in listed["items"]}
        if not first:
            self._write(plural, "GAP", None)
        for name, old in known.items():
            if name not in now:
                self._take(plural, "DELETED", old)
        for name, item in now.items():
            was = known.get(name)
            if was is None or was["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._take(plural, "ADDED" if was is None else "MODIFIED", item)

    def _take(self, plural: str, type_: str, obj: Json) -> None:
        name = obj["metadata"]["name"]
        self._write(plural, type_, obj)
        with self._changed:
            known = self._objects[plural]
            old = known.get(name)
            if type_ == "DELETED":
                known.pop(name, None)
            else:
                same = old is not None and old["metadata"]["uid"] == obj["metadata"]["uid"]
                if plural == "pods" or same or old is None:
                    self._counts.update(changes(plural, old, obj))
                known[name] = obj
            self._changed.notify_all()

    def _write(self, plural: str, type_: str, obj: Json | None) -> None:
        if plural not in RECORDED:
            return
        line = {"at_us": time.monotonic_ns() // 1000, "kind": plural, "type": type_, "object": obj}
        with self._changed:
            if not self._file.closed:
                self._file.write(json.dumps(line) + "\n")
