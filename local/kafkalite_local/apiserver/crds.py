"""CustomResourceDefinitions: from the object to a kind that the server serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver import printers
from kafkalite_local.apiserver.builtins import CRDS, now_text
from kafkalite_local.apiserver.errors import FieldError, invalid
from kafkalite_local.apiserver.jsonpath import compile_path
from kafkalite_local.apiserver.schema import compile_schema
from kafkalite_local.apiserver.types import Column, ResourceType, ScalePaths

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoadedCrd:
    """A definition and the kinds that it makes, one for each served version."""

    object: Json
    types: tuple[ResourceType, ...]


def project_definitions() -> list[Json]:
    """The CRDs of KafkaLite: from the installed package, or from the repository's `crds/`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "crds", here.parents[3] / "crds"):
        files = sorted(folder.glob("*.yaml"))
        if files:
            return [yaml.load(file.read_text(), Loader=loader) for file in files]  # noqa: S506 - a safe loader
    raise FileNotFoundError("the custom resource definitions of KafkaLite are not installed")


def load(value: Json) -> LoadedCrd:
    """Compile a definition. Raises ApiError 422 when it is not valid."""
    spec = value.get("spec") or {}
    name = value.get("metadata", {}).get("name", "")
    names = spec.get("names") or {}
    errors = [
        FieldError(f"spec.{field}", "FieldValueRequired", "Required value")
        for field in ("group", "scope", "versions")
        if not spec.get(field)
    ]
    errors += [
        FieldError(f"spec.names.{field}", "FieldValueRequired", "Required value")
        for field in ("plural", "kind")
        if not names.get(field)
    ]
    if not errors and name != f"{names['plural']}.{spec['group']}":
        text = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        errors.append(FieldError("metadata.name", "FieldValueInvalid", text))
    if errors:
        raise invalid(CRDS, name, errors)
    try:
        types = tuple(_resource_type(spec, version) for version in spec["versions"] if version.get("served"))
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        text = f"Invalid value: {error}"
        raise invalid(CRDS, name, [FieldError("spec.versions", "FieldValueInvalid", text)]) from None
    return LoadedCrd(value, types)


def establish(value: Json) -> None:
    """Fill in defaults and the status of a definition: names accepted, established."""
    names = value["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    value["spec"].setdefault("conversion", {"strategy": "None"})
    status = value.setdefault("status", {})
    status["acceptedNames"] = dict(names)
    status["storedVersions"] = [version["name"] for version in value["spec"]["versions"] if version.get("storage")]
    if not status.get("conditions"):
        status["conditions"] = [
            {
                "type": "NamesAccepted",
                "status": "True",
                "reason": "NoConflicts",
                "message": "no conflicts found",
                "lastTransitionTime": now_text(),
            },
            {
                "type": "Established",
                "status": "True",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
                "lastTransitionTime": now_text(),
            },
        ]


def _resource_type(spec: Json, version: Json) -> ResourceType:
    names = spec["names"]
    source = version.get("schema", {}).get("openAPIV3Schema") or {"type": "object"}
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    schema = compile_schema(source)
    for known in ("apiVersion", "kind", "metadata"):
        # Every object has these, whether the author listed them or not; what is in metadata is not the schema's affair.
        schema.properties[known] = compile_schema({"x-kubernetes-preserve-unknown-fields": True})
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        scale=_scale_paths(scale) if scale else None,
        generation=True,
        unconditional_update=False,
        columns=_columns(version.get("additionalPrinterColumns")),
        schema=schema,
        custom=True,
        openapi=source,
    )


def _scale_paths(scale: Json) -> ScalePaths:
    def keys(name: str) -> tuple[str, ...]:
        return tuple(part for part in scale.get(name, "").split(".") if part)

    return ScalePaths(
        spec_replicas=keys("specReplicasPath"),
        status_replicas=keys("statusReplicasPath"),
        selector=keys("labelSelectorPath"),
    )


def _columns(sources: list[Json] | None) -> tuple[Column, ...]:
    if not sources:
        return printers.DEFAULT
    columns = [printers.NAME]
    for source in sources:
        cell = partial(_cell, compile_path(source["jsonPath"]), source["type"])
        columns.append(
            Column(
                name=source["name"],
                type=source["type"],
                cell=cell,
                priority=source.get("priority", 0),
                format=source.get("format", ""),
                description=source.get("description", ""),
            )
        )
    return tuple(columns)


def _cell(read: Callable[[Any], Any], kind: str, value: Json) -> Any:
    found = read(value)
    if found is None:
        return None
    if kind == "date":
        return printers.age(found)
    if kind in {"integer", "number", "boolean"}:
        return found
    return str(found).lower() if isinstance(found, bool) else str(found)
