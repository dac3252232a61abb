"""Garbage collection: dependents of deleted owners, and the contents of deleted namespaces and definitions."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver import deletion
from kafkalite_local.apiserver import metadata as meta
from kafkalite_local.apiserver.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite_local.apiserver.registry import Registry
    from kafkalite_local.apiserver.store import Entry, Event, Store
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]
Key = tuple[str, str, str]

CONTENTS = "kafkalite.io/contents"
_LOG = logging.getLogger(__name__)


class Collector:
    """Follows every change; each one that may leave something without its owner makes one pass over all objects.

    Passes are short (local mode has some dozens of objects) and merge: many changes, one pass.
    """

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._wake = asyncio.Event()
        self._wake.set()
        self._told: set[tuple[str, int]] = set()
        self._unsubscribe: Callable[[], None] = store.subscribe(self._on_event)

    def _on_event(self, event: Event) -> None:
        # A heartbeat owns nothing and changes no owner: Leases are the traffic of the steady state.
        if event.storage == "leases.coordination.k8s.io" and event.type == "MODIFIED":
            return
        self._wake.set()

    async def run(self) -> None:
        """Collect until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._collect()
                await self._store.settled()
        finally:
            self._unsubscribe()

    def _collect(self) -> None:
        entries = list(self._store.heads())
        live = {entry.object["metadata"]["uid"]: entry for entry in entries}
        dependents: dict[str, list[Entry]] = {}
        for entry in entries:
            for reference in meta.owners_of(entry.object["metadata"]):
                dependents.setdefault(reference.get("uid", ""), []).append(entry)
        for entry in entries:
            with self._sparing_the_others(entry):
                metadata = entry.object["metadata"]
                if meta.owners_of(metadata) and "deletionTimestamp" not in metadata:
                    self._collect_dependent(entry, live)
                if "deletionTimestamp" in metadata and meta.finalizers_of(metadata):
                    self._collect_owner(entry, dependents.get(metadata["uid"], []))
        for storage, names in (("namespaces", True), ("customresourcedefinitions.apiextensions.k8s.io", False)):
            for entry in entries:
                if entry.storage == storage and CONTENTS in meta.finalizers_of(entry.object["metadata"]):
                    with self._sparing_the_others(entry):
                        self._empty(entry, entries, by_namespace=names)

    @contextmanager
    def _sparing_the_others(self, entry: Entry) -> Iterator[None]:
        """An object that cannot be dealt with stays, and is told once in each of its versions; the others go on."""
        try:
            yield
        except Exception:
            told = (entry.object["metadata"]["uid"], entry.revision)
            if told not in self._told:
                self._told.add(told)
                _LOG.exception("%s %s/%s cannot be collected", entry.storage, entry.namespace, entry.name)

    def _collect_dependent(self, entry: Entry, live: dict[str, Entry]) -> None:
        references = meta.owners_of(entry.object["metadata"])
        absent = [reference for reference in references if not _owns(reference, entry, live)]
        if not absent:
            return
        if len(absent) == len(references):
            self._delete(entry, "Background")
            return
        for reference in absent:
            self._disown(entry, reference["uid"])

    def _collect_owner(self, entry: Entry, dependents: list[Entry]) -> None:
        metadata = entry.object["metadata"]
        finalizers = meta.finalizers_of(metadata)
        if deletion.ORPHAN in finalizers:
            for dependent in dependents:
                self._disown(dependent, metadata["uid"])
            self._release(entry, deletion.ORPHAN)
        elif deletion.FOREGROUND in finalizers:
            for dependent in dependents:
                if "deletionTimestamp" not in dependent.object["metadata"]:
                    self._delete(dependent, "Foreground")
            blocking = [item for item in dependents if self._current(item) and _blocks(item, metadata["uid"])]
            if not blocking:
                self._release(entry, deletion.FOREGROUND)

    def _empty(self, entry: Entry, entries: list[Entry], *, by_namespace: bool) -> None:
        inside = [
            item
            for item in entries
            if (item.namespace == entry.name if by_namespace else item.storage == entry.name) and self._current(item)
        ]
        for item in inside:
            if "deletionTimestamp" not in item.object["metadata"]:
                self._delete(item, "Background", grace=0)
        if not any(self._current(item) for item in inside):
            self._release(entry, CONTENTS)

    def _current(self, entry: Entry) -> Entry | None:
        """The object as it is now, if it is still the same one."""
        found = self._store.head(entry.storage, entry.namespace, entry.name)
        same = found is not None and found.object["metadata"]["uid"] == entry.object["metadata"]["uid"]
        return found if same else None

    def _resource(self, storage: str) -> ResourceType | None:
        return next((item for item in self._registry.all() if item.storage == storage), None)

    def _delete(self, entry: Entry, policy: str, grace: int | None = None) -> None:
        resource = self._resource(entry.storage)
        if resource is None or self._current(entry) is None:
            return
        options: Json = {"propagationPolicy": policy, "preconditions": {"uid": entry.object["metadata"]["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        with self._sparing_the_others(entry), suppress(ApiError):
            deletion.delete(self._store, resource, entry.namespace, entry.name, options)

    def _disown(self, entry: Entry, uid: str) -> None:
        current = self._current(entry)
        if current is None:
            return
        value = deletion.orphan_of(current.copy(), uid)
        if value is not None:
            self._store.put(entry.storage, entry.namespace, entry.name, value)

    def _release(self, entry: Entry, finalizer: str) -> None:
        current = self._current(entry)
        if current is None:
            return
        value = current.copy()
        finalizers = [item for item in meta.finalizers_of(value["metadata"]) if item != finalizer]
        if finalizers:
            value["metadata"]["finalizers"] = finalizers
        else:
            value["metadata"].pop("finalizers", None)
        if deletion.is_over(value):
            self._store.remove(entry.storage, entry.namespace, entry.name, value)
        else:
            self._store.put(entry.storage, entry.namespace, entry.name, value)


def _owns(reference: Json, entry: Entry, live: dict[str, Entry]) -> bool:
    """Whether the owner exists: the same uid, and in the dependent's namespace or cluster-wide."""
    owner = live.get(reference.get("uid", ""))
    return owner is not None and owner.namespace in {"", entry.namespace}


def _blocks(entry: Entry, uid: str) -> bool:
    references = meta.owners_of(entry.object["metadata"])
    return any(item.get("uid") == uid and item.get("blockOwnerDeletion") for item in references)
