"""What somebody else has changed of an object that was applied, where it matters.

An object is compared with what was applied by a hash of that, which says nothing of `kubectl scale` and `kubectl edit`.
So some fields are looked at themselves: those whose change takes brokers, their addresses or their protection away, and
that the API server stores as they are written (it rewrites quantities and fills in defaults, which are no changes).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

_LOOKED_AT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "StatefulSet": (("spec", "replicas"), ("spec", "updateStrategy"), ("spec", "persistentVolumeClaimRetentionPolicy")),
    "PodDisruptionBudget": (("spec", "maxUnavailable"), ("spec", "selector")),
    "Service": (("spec", "selector"), ("spec", "type"), ("spec", "ports"), ("spec", "publishNotReadyAddresses")),
    "ConfigMap": (("data",),),
}
_LIMITS = ("maxUnavailable", "minAvailable")
"""A PodDisruptionBudget has one of them: the other one is refused beside it."""

_EXACT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "PodDisruptionBudget": (("spec",), ("spec", "selector"), ("spec", "selector", "matchLabels")),
    "Service": (("spec", "selector"),),
}
_LABELS = ("metadata", "labels")


def differences(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Paths of what is not as wanted, in an object of the kind of `wanted`; empty when it is as it should be.

    What is there beyond what is wanted counts for nothing, except in a selector and the limits of a budget.
    """
    kind = str(wanted.get("kind"))
    paths = (_LABELS, *_LOOKED_AT.get(kind, ()))
    found = [path for path in paths if not _covers(_at(existing, path), _at(wanted, path))]
    found += [path for path in _EXACT.get(kind, ()) if path not in found and _beyond(existing, wanted, path)]
    return [".".join(path) for path in found]


def put_back(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Merge Patch (RFC 7386) that makes what is looked at as it is wanted."""
    patch = copy.deepcopy(dict(wanted))
    for path in _EXACT.get(str(wanted.get("kind")), ()):
        beyond = _beyond(existing, wanted, path)
        if beyond:
            place = patch
            for name in path:
                place = place.setdefault(name, {})
            place.update(dict.fromkeys(beyond))
    return patch


def _beyond(existing: Mapping[str, Any], wanted: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    there, here = _at(existing, path), _at(wanted, path)
    keys = there.keys() if isinstance(there, Mapping) else ()
    names = _LIMITS if path == ("spec",) else keys
    return [name for name in names if name in keys and (not isinstance(here, Mapping) or name not in here)]


def _at(obj: Any, path: Sequence[str]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj


def _covers(there: Any, wanted: Any) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, Mapping):
        return isinstance(there, Mapping) and all(_covers(there.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(there, list)
            and len(there) == len(wanted)
            and all(_covers(one, other) for one, other in zip(there, wanted, strict=True))
        )
    return bool(there == wanted)
