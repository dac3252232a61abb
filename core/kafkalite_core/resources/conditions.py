"""`status.conditions`: a list keyed by type, whose times change only with the status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.topic import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def parse_conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions in a status; entries that are no conditions are passed over."""
    listed = status.get("conditions")
    if not isinstance(listed, list):
        return ()
    return tuple(
        Condition(
            type=str(entry["type"]),
            status=str(entry["status"]),
            reason=str(entry.get("reason", "")),
            message=str(entry.get("message", "")),
        )
        for entry in listed
        if isinstance(entry, dict) and "type" in entry and "status" in entry
    )


def set_condition(
    conditions: Sequence[Mapping[str, Any]], wanted: Condition, *, generation: int, now: str
) -> list[dict[str, Any]]:
    """The list with one condition set; `now` (RFC 3339) becomes its lastTransitionTime only if the status changes."""
    result: list[dict[str, Any]] = []
    transition = now
    place = len(conditions)
    for index, entry in enumerate(conditions):
        if entry.get("type") != wanted.type:
            result.append(dict(entry))
            continue
        place = min(place, index)
        if entry.get("status") == wanted.status:
            transition = str(entry.get("lastTransitionTime", now))
    result.insert(
        place,
        {
            "type": wanted.type,
            "status": wanted.status,
            "reason": wanted.reason,
            "message": wanted.message,
            "observedGeneration": generation,
            "lastTransitionTime": transition,
        },
    )
    return result


def set_conditions(
    conditions: Sequence[Mapping[str, Any]], wanted: Iterable[Condition], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """As `set_condition`, for several."""
    result = [dict(entry) for entry in conditions]
    for condition in wanted:
        result = set_condition(result, condition, generation=generation, now=now)
    return result
