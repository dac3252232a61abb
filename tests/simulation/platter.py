"""What lies on a simulated disk: files whose content is durable up to a point, directories with a journal, batches.

Directory entries form a journal: a power failure keeps a prefix of it, or any part of it. Files only grow at their end
and are cut, so the durable content is a length, or the content from before a cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    from random import Random

Tag = tuple[str, int]

SECTOR_BYTES: Final = 512
HEADER: Final = Struct(">qiibIhiqqqhii")
LENGTH_OVERHEAD: Final = 12
INFINITE: Final = float("inf")
_BASE: Final = attrgetter("base")


class Mark(NamedTuple):
    """One batch in a `.log` file."""

    stop: int
    base: int
    next: int
    epoch: int
    crc: int
    producer: int
    producer_epoch: int
    sequence: int


class Inode:
    """A file's content. `old` is what is durable after a cut that was not synced; `lost` was never written."""

    __slots__ = ("data", "floor", "lost", "marks", "modified_ms", "old", "synced")

    def __init__(self, *, is_log: bool) -> None:
        self.data = bytearray()
        self.synced = 0
        self.modified_ms = 0
        self.old: bytes | None = None
        self.floor = 0
        self.lost: list[tuple[int, int]] = []
        self.marks: list[Mark] | None = [] if is_log else None

    @property
    def durable_prefix(self) -> int:
        """Bytes from the start that a power failure leaves as they are."""
        prefix = self.synced if self.old is None else min(self.floor, self.synced)
        return min([prefix, *(start for start, _ in self.lost)])

    def durable(self) -> bytearray:
        """What the platter holds."""
        content = bytearray(self.data[: self.synced] if self.old is None else self.old)
        for start, stop in self.lost:
            content[start:stop] = bytes(len(content[start:stop]))
        return content

    def reread(self, content: bytearray) -> None:
        """The cache is gone: this is what there is."""
        self.data = content
        self.synced, self.old, self.lost = len(content), None, []
        if self.marks is not None:
            self.marks = parse_marks(content)


def parse_marks(content: bytearray) -> list[Mark]:
    """The valid batches from the start of a file."""
    marks: list[Mark] = []
    position = 0
    while position + HEADER.size <= len(content):
        fields = HEADER.unpack_from(content, position)
        stop = position + fields[1] + LENGTH_OVERHEAD
        if fields[3] != 2 or stop > len(content) or stop <= position + 20:
            break
        if crc32c(content[position + 21 : stop]) != fields[4] or (marks and fields[0] < marks[-1].next):
            break
        marks.append(mark_of(stop, fields))
        position = stop
    return marks


def mark_of(stop: int, fields: tuple[int, ...]) -> Mark:
    return Mark(stop, fields[0], fields[0] + fields[6] + 1, fields[2], fields[4], fields[9], fields[10], fields[11])


class Directory:
    """Entries by name, those on the platter, and the journal of changes since. `tag` names the partition."""

    __slots__ = ("_segments", "durable", "entries", "journal", "tag")

    def __init__(self) -> None:
        self._segments: list[tuple[str, Inode]] | None = None
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.journal: list[tuple[str, str, str, Inode | Directory | None]] = []
        self.tag: Tag | None = None

    def note(self, operation: str, name: str, target: str = "", node: Inode | Directory | None = None) -> None:
        self.journal.append((operation, name, target, node))
        self._segments = None

    def segments(self) -> list[tuple[str, Inode]]:
        """The `.log` files in the order of their offsets."""
        found = self._segments
        if found is None:
            found = self._segments = [
                (name, node)
                for name, node in sorted(self.entries.items())
                if isinstance(node, Inode) and node.marks is not None and name.endswith(".log")
            ]
        return found

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.journal.clear()

    def crash(self, chance: Random) -> None:
        """The power fails: some of the journal reached the platter."""
        if chance.random() < 0.7:
            kept = self.journal[: chance.randrange(len(self.journal) + 1)]
        else:
            kept = [step for step in self.journal if chance.random() < 0.5]
        for operation, name, target, node in kept:
            if operation == "set":
                assert node is not None
                self.durable[name] = node
            elif operation == "move":
                assert node is not None
                self.durable.pop(name, None)
                self.durable[target] = node
            else:
                self.durable.pop(name, None)
        self.journal.clear()
        self.entries = dict(self.durable)
        self._segments = None


def batches(directory: Directory) -> list[Mark]:
    """All batches of a log, as the running process sees them."""
    return [mark for _, inode in directory.segments() for mark in inode.marks or ()]


def last_batch(directory: Directory) -> Mark | None:
    """The last batch of a log, as the running process sees it."""
    for _, inode in reversed(directory.segments()):
        if inode.marks:
            return inode.marks[-1]
    return None


def batches_between(directory: Directory, start: int, stop: int) -> list[Mark]:
    """The batches that begin at or behind `start` and end at or before `stop`."""
    found: list[Mark] = []
    for _, inode in reversed(directory.segments()):
        marks = inode.marks or []
        low = bisect_left(marks, start, key=_BASE)
        found[:0] = [mark for mark in marks[low:] if mark.next <= stop]
        if low:
            break
    return found


def durable_last(directory: Directory) -> Mark | None:
    """The last batch that a power failure at this moment could not take, or None."""
    last: Mark | None = None
    for name, inode in directory.segments():
        if directory.durable.get(name) is not inode:
            break
        marks = inode.marks or []
        if inode.synced == len(inode.data) and inode.old is None and not inode.lost:
            last = marks[-1] if marks else last
            continue
        prefix = inode.durable_prefix
        place = len(marks) if prefix == len(inode.data) else bisect_right(marks, (prefix, INFINITE))
        if place:
            last = marks[place - 1]
        if place < len(marks):
            break
    return last


def torn(inode: Inode, chance: Random) -> bytearray:
    """What is left of a file: the durable bytes, or a mixture per sector with those that were not."""
    old, new = bytes(inode.durable()), bytes(inode.data)
    kind = chance.randrange(4)
    if kind == 0:
        return bytearray(old)
    for start, stop in inode.lost:
        new = new[:start] + bytes(len(new[start:stop])) + new[stop:]
    if kind == 1:
        return bytearray(new)
    size = min(len(old), len(new)) + chance.randrange(abs(len(new) - len(old)) + 1)
    result = bytearray(size)
    for start in range(0, size, SECTOR_BYTES):
        stop = min(start + SECTOR_BYTES, size)
        before, after = old[start:stop], new[start:stop]
        piece = after if kind == 2 or before == after or chance.random() < 0.5 else before
        result[start : start + len(piece)] = piece
    return result
