"""Rendered objects against the schemas that Kubernetes, the Prometheus operator and KafkaLite publish."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.helm.conftest import ROOT, built


@cache
def _documents() -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, Any]]:
    """Schemas by apiVersion and kind, and the definitions that they refer to."""
    folder = built("schemas/fetch.sh")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    definitions: dict[str, Any] = {}
    for path in sorted(folder.glob("api*.json")):
        schemas = json.loads(path.read_text())["components"]["schemas"]
        definitions |= schemas
        for schema in schemas.values():
            for known in schema.get("x-kubernetes-group-version-kind", []):
                version = f"{known['group']}/{known['version']}".lstrip("/")
                found[version, known["kind"]] = schema
    for path in [*folder.glob("*.yaml"), *(ROOT / "crds").glob("*.yaml")]:
        crd = yaml.safe_load(Path(path).read_text())["spec"]
        for version in crd["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = {
                "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
            }
            found[f"{crd['group']}/{version['name']}", crd["names"]["kind"]] = schema
    return {key: _strict(schema) for key, schema in found.items()}, {k: _strict(v) for k, v in definitions.items()}


def _strict(schema: Any) -> Any:
    """A schema with unknown fields refused, which Kubernetes drops, as JSON Schema."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for name in ("items", "additionalProperties", "allOf", "anyOf", "oneOf"):
        if name in schema:
            result[name] = _strict(schema[name])
    if "properties" in schema:
        result["properties"] = {name: _strict(child) for name, child in schema["properties"].items()}
        open_ = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
        if not open_:
            result["additionalProperties"] = False
        # The API server fills defaults in before it asks what is required.
        defaulted = {name for name, child in schema["properties"].items() if "default" in child}
        result["required"] = [name for name in schema.get("required", []) if name not in defaulted]
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return result


def problems(obj: dict[str, Any]) -> list[str]:
    """What the API server would drop or refuse."""
    kinds, definitions = _documents()
    schema = kinds.get((obj["apiVersion"], obj["kind"]))
    if schema is None:
        return [f"{obj['apiVersion']} {obj['kind']} is no kind that is known"]
    validator = jsonschema.Draft202012Validator({**schema, "components": {"schemas": definitions}})
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(obj)]
