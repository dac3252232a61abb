"""`Table` answers: what `kubectl get` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver import printers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_local.apiserver.types import Column, ResourceType

Json = dict[str, Any]


def wants_table(accept: str) -> str:
    """The version of `Table` that the client prefers before plain JSON, or the empty string."""
    for part in accept.split(","):
        fields = dict(item.strip().partition("=")[::2] for item in part.split(";")[1:])
        if fields.get("as") == "Table" and fields.get("g") == "meta.k8s.io":
            return fields.get("v", "v1")
        if part.strip().partition(";")[0] == "application/json" and "as" not in fields:
            return ""
    return ""


def table(
    resource: ResourceType,
    objects: Iterable[Json],
    list_metadata: Json,
    *,
    version: str,
    include: str,
    with_columns: bool = True,
) -> Json:
    """A Table of objects. `include` is Object, Metadata or None, as the query parameter includeObject."""
    columns = resource.columns or printers.DEFAULT
    result: Json = {"kind": "Table", "apiVersion": f"meta.k8s.io/{version}", "metadata": list_metadata}
    result["columnDefinitions"] = (
        []
        if not with_columns
        else [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in columns
        ]
    )
    result["rows"] = [
        {"cells": [_cell(column, item) for column in columns], "object": _row_object(item, include, version)}
        for item in objects
    ]
    return result


def _cell(column: Column, item: Json) -> Any:
    """What the column shows; of an object that is not of its kind's form, nothing."""
    try:
        return column.cell(item)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return "<invalid>"


def _row_object(value: Json, include: str, version: str) -> Json | None:
    if include == "Object":
        return value
    if include == "None":
        return None
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": value["metadata"]}
