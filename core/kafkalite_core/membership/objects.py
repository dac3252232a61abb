"""Objects of one kind as lists and watch events tell of them, in any order and with repeats.

Theorem: after any sequence of sightings and deletions that holds, for every object, its latest sighting or its
deletion at least once, the held set is the server's, whatever the order. It rests on two facts of Kubernetes: a
`metadata.uid` never comes back after its deletion, and the resourceVersions of one kind grow with time (where they
are no numbers, arrival order stands in for them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

TOMBSTONES_MAX = 10_000
"""Deleted uids that are remembered, so that a late sighting does not bring them back."""

ObjectT = TypeVar("ObjectT")


@dataclass(slots=True)
class Held(Generic[ObjectT]):
    """One object: what is known of it, and how new that is.

    Attributes:
        object_name: `metadata.name`.
        uid: `metadata.uid`.
        value: The parsed object; merged by the owner of the collection.
        version: Number of the newest resourceVersion seen; -1 when it is no number.
        created: `metadata.creationTimestamp`.
    """

    object_name: str
    uid: str
    value: ObjectT
    version: int
    created: str


def version_number(resource_version: str) -> int:
    """A resourceVersion as a number, -1 when it is none."""
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else -1


def is_newer(version: int, than: int) -> bool:
    """Whether a copy with `version` replaces one with `than`; without numbers the one that comes later does."""
    return version < 0 or than < 0 or version >= than


class Objects(Generic[ObjectT]):
    """Live objects by uid, with at most one for each name, and the uids that are gone."""

    __slots__ = ("_by_name", "_by_uid", "_gone")

    def __init__(self) -> None:
        self._by_uid: dict[str, Held[ObjectT]] = {}
        self._by_name: dict[str, str] = {}
        self._gone: dict[str, None] = {}

    def get(self, uid: str) -> Held[ObjectT] | None:
        """The object with that uid, or None."""
        return self._by_uid.get(uid)

    def named(self, object_name: str) -> Held[ObjectT] | None:
        """The live object of that name, or None."""
        uid = self._by_name.get(object_name)
        return None if uid is None else self._by_uid[uid]

    def uids_but(self, listed: set[str]) -> list[str]:
        """The live uids that are not among these."""
        return [uid for uid in self._by_uid if uid not in listed]

    def revive(self, uid: str) -> None:
        """A consistent list shows the uid: whatever was remembered of its end does not hold."""
        self._gone.pop(uid, None)

    def admit(self, held: Held[ObjectT]) -> tuple[bool, Held[ObjectT] | None]:
        """Take in an object whose uid is not held yet.

        A name belongs to one object at a time, so of two uids with one name the older was deleted unseen.

        Returns:
            Whether it was taken in, and the older namesake that it replaced.
        """
        assert held.uid not in self._by_uid
        if held.uid in self._gone:
            return False, None
        namesake = self.named(held.object_name)
        if namesake is not None:
            if not is_newer(held.version, namesake.version):
                self._bury(held.uid)
                return False, None
            self.remove(namesake.uid)
        self._by_uid[held.uid] = held
        self._by_name[held.object_name] = held.uid
        return True, namesake

    def remove(self, uid: str) -> Held[ObjectT] | None:
        """The object is gone for good; what was known of it, or None."""
        self._bury(uid)
        held = self._by_uid.pop(uid, None)
        if held is not None:
            del self._by_name[held.object_name]
        return held

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > TOMBSTONES_MAX:
            del self._gone[next(iter(self._gone))]
