"""The recorded watch of the cluster's objects: one JSON object per line, in the order in which a watch delivered them.

    {"at_us": 1234, "type": "MODIFIED", "object": {"kind": "KafkaLiteTopic", "metadata": {…}, "status": {…}, …}}

`type` is ADDED, MODIFIED, DELETED, or GAP (without object): the watch broke, changes may have been missed. Several
kinds may share a file, each in its own order: `metadata.resourceVersion` puts them into the store's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kafkalite_cli.verify.history import HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

JsonObject = dict[str, Any]


class Change(msgspec.Struct, frozen=True, omit_defaults=False):
    """One line: an object as it was from this change on. `at_us` is the recorder's monotonic clock."""

    at_us: int
    type: Literal["ADDED", "MODIFIED", "DELETED", "GAP"]
    object: JsonObject | None = None

    @property
    def version(self) -> int:
        """The store's number of the change; -1 for a gap. Raises HistoryError when it is none."""
        if self.object is None:
            return -1
        try:
            return int(self.object["metadata"]["resourceVersion"])
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryError(f"a change without metadata.resourceVersion: {str(self.object)[:200]}") from error

    @property
    def kind(self) -> str:
        """Kind of the object; empty for a gap."""
        return str((self.object or {}).get("kind", ""))


def read_changes(path: Path) -> list[Change]:
    """The changes of a file. A last line without newline, which a killed recorder leaves, is ignored.

    Raises:
        HistoryError: a line that is no change, or a file that cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    decode = msgspec.json.Decoder(Change).decode
    changes: list[Change] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            changes.append(decode(line))
        except msgspec.MsgspecError as error:
            raise HistoryError(f"{path}, line {number}: {error}") from error
    return changes


def in_store_order(changes: Iterable[Change]) -> list[Change]:
    """By resourceVersion; a gap stays in front of what the recorder wrote after it, of whatever kind."""
    numbered: list[tuple[int, int, Change]] = []
    gaps: list[tuple[int, Change]] = []
    for order, change in enumerate(changes):
        if change.type == "GAP":
            gaps.append((order, change))
        else:
            numbered.append((change.version, order, change))
    placed = [(version, 1, order, change) for version, order, change in numbered]
    for order, change in gaps:
        following = [version for version, at, _ in numbered if at > order]
        if following:
            placed.append((min(following), 0, order, change))
    placed.sort(key=lambda place: place[:3])
    return [change for _, _, _, change in placed]
