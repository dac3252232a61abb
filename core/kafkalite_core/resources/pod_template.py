"""`spec.template.pod` of a `KafkaLiteCluster`: what the user wants otherwise in the brokers' pods.

The CRD leaves most of it open, so the API server takes what no pod can be made of. Here is checked what the merge with
the operator's own template, the revision of pods and their CPU and memory look into: what passes can be rendered. All
else is left to the API server, which judges the StatefulSet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite_core.resources.fields import Fields, ResourceError
from kafkalite_core.resources.resizing import KINDS, RESIZABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEPTH_MAX: Final = 64
"""No pod nests so deep. What renders a template goes down with its depth, and Python only so far."""

AMOUNT_LENGTH_MAX: Final = 64
"""Characters of an amount of CPU or memory."""

Json = dict[str, Any]


def parse_pod_template(fields: Fields) -> Json:
    """The template with its broken parts refused. Raises `ResourceError` with the path and what is expected there.

    A part that is null reads as absent where the operator has something that the pods cannot do without: a `spec:`
    with everything below it commented out says nothing. Elsewhere null takes away what the operator has, as in a merge
    patch.
    """
    _check_depth(fields)
    template = dict(fields.raw)
    _replace(template, fields, "metadata", _metadata)
    _replace(template, fields, "spec", _spec)
    return template


def _check_depth(fields: Fields) -> None:
    level: list[Any] = [fields.raw]
    for _ in range(DEPTH_MAX):
        level = [each for value in level for each in _children(value)]
        if not level:
            return
    raise ResourceError(f"{fields.where('')[:-1]} is nested deeper than {DEPTH_MAX} levels")


def _children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _replace(into: Json, fields: Fields, key: str, read: Callable[[Fields], Json]) -> None:
    """Put what was read of a nested object in its place; a null goes."""
    if fields.has(key):
        into[key] = read(fields.map(key))
    else:
        into.pop(key, None)


def _metadata(fields: Fields) -> Json:
    metadata = dict(fields.raw)
    if not fields.has("labels"):
        metadata.pop("labels", None)  # without its labels the StatefulSet does not know a pod
    for key in ("labels", "annotations"):
        texts = fields.map(key)
        for name in texts.raw:
            texts.text(name, "")
    return metadata


def _spec(fields: Fields) -> Json:
    spec = dict(fields.raw)
    _replace_list(spec, fields, "containers", _container)
    _replace_list(spec, fields, "volumes", _as_it_is)
    return spec


def _container(fields: Fields) -> Json:
    container = dict(fields.raw)
    _replace_list(container, fields, "env", _as_it_is)
    _replace_list(container, fields, "volumeMounts", _as_it_is)
    _replace_list(container, fields, "ports", _as_it_is, named=False)
    resources = fields.map("resources")
    if any(resources.has(kind) for kind in KINDS):
        amounts = {kind: _amounts(resources.map(kind)) for kind in KINDS if resources.has(kind)}
        container["resources"] = {**resources.raw, **amounts}
    return container


def _amounts(fields: Fields) -> Json:
    amounts = dict(fields.raw)
    for resource in RESIZABLE:
        value = amounts.get(resource)
        if value is None:
            amounts.pop(resource, None)
        elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ResourceError(f"{fields.where(resource)} is not a quantity, such as 500m: {value!r:.80}")
        # Of a whole number the size is asked for: Python does not turn those of many thousand digits into text.
        elif len(value) > AMOUNT_LENGTH_MAX if isinstance(value, str) else abs(value) >= 10**AMOUNT_LENGTH_MAX:
            raise ResourceError(f"{fields.where(resource)} has more than {AMOUNT_LENGTH_MAX} characters")
    return amounts


def _as_it_is(fields: Fields) -> Mapping[str, Any]:
    return fields.raw


def _replace_list(
    into: Json, fields: Fields, key: str, read: Callable[[Fields], Mapping[str, Any]], *, named: bool = True
) -> None:
    """Put what was read of the objects of a list in its place; a null goes. The merge goes by their names."""
    if not fields.has(key):
        into.pop(key, None)
        return
    if isinstance(fields.raw[key], str):
        raise ResourceError(f"{fields.where(key)} is not a list: {fields.raw[key]!r:.80}")
    items = fields.maps(key)
    for item in items:
        if named or item.has("name"):
            item.text("name")
    into[key] = [read(item) for item in items]
