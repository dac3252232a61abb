"""Deletion: preconditions, finalizers, grace periods of pods, and what happens to dependents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from kafkalite_local.apiserver import metadata as meta
from kafkalite_local.apiserver.builtins import CRDS, NAMESPACES, PODS
from kafkalite_local.apiserver.errors import bad_request, forbidden, not_found

if TYPE_CHECKING:
    import asyncio

    from kafkalite_local.apiserver.store import Entry, Store
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
GRACE_S: Final = 30
PERMANENT_NAMESPACES: Final = frozenset({"default", "kube-system"})


def is_over(value: Json) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = value["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not meta.finalizers_of(metadata)
        and not metadata.get("deletionGracePeriodSeconds")
    )


def delete(
    store: Store, resource: ResourceType, namespace: str, name: str, options: Json, *, dry_run: bool = False
) -> tuple[Json, bool, asyncio.Future[None] | None]:
    """Delete an object, or mark it.

    Returns the object's last state, whether it is gone, and the future of the commit. Raises ApiError.
    """
    head = store.head(resource.storage, namespace, name)
    if head is None:
        raise not_found(resource, name)
    meta.check_preconditions(resource, head, options)
    if resource is NAMESPACES and name in PERMANENT_NAMESPACES:
        raise forbidden(resource, name, "this namespace may not be deleted")
    value = head.copy()
    metadata = value["metadata"]
    finalizers = meta.finalizers_of(metadata)
    policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
    if policy not in {"Background", "Foreground", "Orphan"}:
        raise bad_request(f"DeleteOptions is invalid: propagationPolicy: Unsupported value: {policy!r}")
    for wanted, finalizer in (("Foreground", FOREGROUND), ("Orphan", ORPHAN)):
        if policy == wanted and finalizer not in finalizers:
            finalizers.append(finalizer)
    if resource in (NAMESPACES, CRDS) and "kafkalite.io/contents" not in finalizers and policy != "Orphan":
        finalizers.append("kafkalite.io/contents")  # the collector removes it with the last object inside
    grace = _grace_seconds(resource, value, options)
    if not finalizers and grace == 0:
        if dry_run:
            return value, True, None
        entry, done = store.remove(resource.storage, namespace, name, value)
        return entry.object, True, done
    return _mark(store, resource, head, value, finalizers, grace, dry_run=dry_run)


def _mark(
    store: Store, resource: ResourceType, head: Entry, value: Json, finalizers: list[str], grace: int, *, dry_run: bool
) -> tuple[Json, bool, asyncio.Future[None] | None]:
    metadata = value["metadata"]
    marked = "deletionTimestamp" in metadata
    if finalizers:
        metadata["finalizers"] = finalizers
    if not marked or grace < metadata.get("deletionGracePeriodSeconds", 0):
        moment = datetime.now(UTC) + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
        if resource.generation and not marked:
            metadata["generation"] = metadata.get("generation", 0) + 1
    if resource is NAMESPACES:
        value.setdefault("status", {})["phase"] = "Terminating"
    if dry_run or meta.same(value, head.object):
        return value, False, None
    entry, done = store.put(resource.storage, head.namespace, head.name, value)
    return entry.object, False, done


def _grace_seconds(resource: ResourceType, value: Json, options: Json) -> int:
    """Only pods that run somewhere are given time; their kubelet ends the deletion with a grace period of 0."""
    given = options.get("gracePeriodSeconds")
    if given is not None and (not isinstance(given, int) or given < 0):
        raise bad_request("DeleteOptions is invalid: gracePeriodSeconds must be a whole number of at least 0")
    if resource is not PODS:
        return 0
    spec = value["spec"]
    finished = (value.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    if not spec.get("nodeName") or finished:
        return 0
    if given is None:
        given = spec.get("terminationGracePeriodSeconds")
    return given if isinstance(given, int) else GRACE_S


def orphan_of(value: Json, uid: str) -> Json | None:
    """The object without its reference to the owner `uid`; None when it has none."""
    references = meta.owners_of(value["metadata"])
    kept = [reference for reference in references if reference.get("uid") != uid]
    if len(kept) == len(references):
        return None
    if kept:
        value["metadata"]["ownerReferences"] = kept
    else:
        value["metadata"].pop("ownerReferences", None)
    return value
