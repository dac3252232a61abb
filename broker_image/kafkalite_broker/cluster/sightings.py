"""What the API server shows of one kind, read object by object: one that cannot be understood holds up no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite_core.membership.metadata_cache import Sighting
from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.readable import ReadableSpecs
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kafkalite_core.membership.metadata_cache import MetadataCache

COMPLAINTS_KEPT = 1000

ValueT = TypeVar("ValueT")
ObjectT = TypeVar("ObjectT")

log = get_logger(__name__)


class SightingReader:
    """Reads the objects of one kind; says once for each object and problem what it does not understand.

    Attributes:
        unreadable: Uids of the objects that are there and of which nothing can be read; to be looked at in any thread.
    """

    def __init__(self) -> None:
        self.unreadable: set[str] = set()
        self._specs = ReadableSpecs()
        self._complaints: dict[tuple[str, str], str] = {}

    def read(self, found: dict[str, Any], parse: Callable[[dict[str, Any]], ValueT]) -> ValueT | None:
        """The parsed object, with its last good spec if need be; None when it cannot be understood."""
        try:
            reading = self._specs.read(found, parse)
        except ResourceError as error:
            self.complain(found, "object not understood, its last good state stays in force", str(error))
            if uid := uid_of(found):
                self.unreadable.add(uid)
            return None
        self.unreadable.discard(uid_of(found))
        if reading.problem:
            self.complain(found, "spec not understood, its last good one stays in force", reading.problem)
        return reading.value

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._specs.forget(uid)
        self.unreadable.discard(uid)

    def keep(self, uids: Collection[str]) -> None:
        """A consistent list: only these objects are there."""
        self._specs.keep(uids)
        self.unreadable.intersection_update(uids)

    def complain(self, found: dict[str, Any], what: str, error: str) -> None:
        """Once for each object and problem."""
        metadata = found.get("metadata") or {}
        key = (str(found.get("kind", "")), str(metadata.get("name", "")))
        if self._complaints.get(key) == error:
            return
        self._complaints[key] = error
        while len(self._complaints) > COMPLAINTS_KEPT:
            del self._complaints[next(iter(self._complaints))]
        log.error(what, kind=key[0], name=key[1], error=error)


def readers_for(cache: MetadataCache) -> dict[str, SightingReader]:
    """A reader for each kind, by its plural; the cache knows from now on which topics cannot be read."""
    readers = {kind.plural: SightingReader() for kind in (CLUSTERS, BROKERS, TOPICS)}
    cache.unreadable = readers[TOPICS.plural].unreadable
    return readers


def uid_of(found: dict[str, Any]) -> str:
    """`metadata.uid`."""
    return str(found["metadata"].get("uid", ""))


def sighting(value: ObjectT, found: dict[str, Any]) -> Sighting[ObjectT]:
    """What the cache takes."""
    metadata = found["metadata"]
    return Sighting(
        value=value,
        resource_version=str(metadata.get("resourceVersion", "")),
        created=str(metadata.get("creationTimestamp", "")),
    )


def sort(
    items: Iterable[dict[str, Any]], parse: Callable[[dict[str, Any]], Sighting[ObjectT] | None]
) -> tuple[list[Sighting[ObjectT]], list[str]]:
    """The sightings, and the uids of all other items: nothing that was listed may be taken for deleted."""
    sightings: list[Sighting[ObjectT]] = []
    unreadable: list[str] = []
    for found in items:
        seen = parse(found)
        if seen is None:
            unreadable.append(uid_of(found))
        else:
            sightings.append(seen)
    return sightings, unreadable
