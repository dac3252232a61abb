"""Events: stored once, in the form of core/v1, and served as core/v1 and as events.k8s.io/v1."""

from __future__ import annotations

from typing import Any

from kafkalite_local.apiserver import forms, printers
from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "source": "deprecatedSource",
    "reportingComponent": "reportingController",
}
"""Fields of core/v1 and their names in events.k8s.io/v1."""


def _to_core(value: Json) -> Json:
    back = {new: old for old, new in _RENAMED.items()}
    core = {back.get(name, name): item for name, item in value.items()}
    core["apiVersion"] = "v1"
    return core


def _from_core(value: Json) -> Json:
    event = {_RENAMED.get(name, name): item for name, item in value.items()}
    event["apiVersion"] = "events.k8s.io/v1"
    return event


CORE = ResourceType(
    group="",
    version="v1",
    plural="events",
    singular="event",
    kind="Event",
    short_names=("ev",),
    create_on_update=True,
    form=forms.EVENT,
    columns=printers.EVENT,
    stored_as="events",
)
EVENTS_V1 = ResourceType(
    group="events.k8s.io",
    version="v1",
    plural="events",
    singular="event",
    kind="Event",
    short_names=("ev",),
    create_on_update=True,
    form=forms.EVENT,
    columns=printers.EVENT,
    stored_as="events",
    to_storage=_to_core,
    from_storage=_from_core,
)
