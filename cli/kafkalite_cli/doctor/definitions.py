"""Are the custom resource definitions there, and not older than this program's?"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kafkalite_cli.doctor.model import Finding, listed
from kafkalite_core.resources.naming import GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.pasting import Commands

JsonObject = dict[str, Any]
APPLY = "apply --server-side -f crds/"


def own_definitions() -> dict[str, JsonObject]:
    """Those of this version, by name: the wheel carries them, and so does the repository; none in a broken install."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    spec = importlib.util.find_spec("kafkalite_local")
    places = [Path(place) / "crds" for place in (spec.submodule_search_locations or ())] if spec else []
    for folder in (*places, Path(__file__).resolve().parents[3] / "crds"):
        texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]
        found = [yaml.load(text, Loader=loader) for text in texts]  # noqa: S506 - a safe loader
        if found:
            return {each["metadata"]["name"]: each for each in found}
    return {}


def _remedy(say: Commands) -> str:
    return f"helm upgrade, or with crds/ of the version of the operator: {say.kubectl(None, APPLY)}"


def missing(plurals: list[str], say: Commands) -> Iterator[Finding]:
    """Kinds that the API server does not know."""
    for plural in plurals:
        yield Finding(
            code="DefinitionMissing",
            about=f"customresourcedefinition/{plural}.{GROUP}",
            what=f"the API server does not know {plural}.{GROUP}/{VERSION}",
            why="the custom resource definition is not installed",
            todo=_remedy(say),
        )


def check(served: list[JsonObject], say: Commands) -> Iterator[Finding]:
    """Fields and rules of this version that an installed definition lacks."""
    installed = {each["metadata"]["name"]: each for each in served}
    for name, own in own_definitions().items():
        there = installed.get(name)
        if there is None:
            continue
        wanted, found = _version(own), _version(there)
        if found is None or wanted is None:
            yield Finding(
                code="DefinitionOld",
                about=f"customresourcedefinition/{name}",
                what=f"the definition {name} does not serve {VERSION}",
                why="it is of another version",
                todo=_remedy(say),
            )
            continue
        lacking = sorted(_paths(_schema(wanted)) - _paths(_schema(found)))
        rules = sorted(_rules(_schema(wanted)) - _rules(_schema(found)))
        if lacking or rules:
            parts = [f"fields {listed(lacking)}"] if lacking else []
            parts += [f"rules ({listed(rules)})"] if rules else []
            yield Finding(
                code="DefinitionOld",
                about=f"customresourcedefinition/{name}",
                what=f"the definition {name} lacks {' and '.join(parts)}",
                why="it is older than this program: what it does not know is dropped, what no rule refuses is let in",
                todo=_remedy(say),
                items=(*lacking, *rules),
            )


def _version(definition: JsonObject) -> JsonObject | None:
    versions: list[JsonObject] = (definition.get("spec") or {}).get("versions") or []
    return next((each for each in versions if each.get("name") == VERSION and each.get("served")), None)


def _schema(version: JsonObject) -> JsonObject:
    schema: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _paths(schema: JsonObject, path: str = "") -> set[str]:
    found = {path} if path else set()
    for name, child in (schema.get("properties") or {}).items():
        found |= _paths(child, f"{path}.{name}" if path else name)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= _paths(schema[key], f"{path}[]" if key == "items" else f"{path}.*")
    return found


def _rules(schema: JsonObject) -> set[str]:
    found = {str(each.get("message") or each["rule"]) for each in schema.get("x-kubernetes-validations") or []}
    for child in (schema.get("properties") or {}).values():
        found |= _rules(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= _rules(schema[key])
    return found
