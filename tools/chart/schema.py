"""The spec of a custom resource as JSON Schema, so that helm refuses what the API server would drop or refuse."""

from __future__ import annotations

from typing import Any

_SAME = (
    "type", "description", "default", "enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "maxProperties", "anyOf",
)  # fmt: skip
_SERVER_ONLY = (
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-int-or-string",
)  # fmt: skip
_HANDLED = (
    "properties", "additionalProperties", "items", "required", "nullable", "x-kubernetes-preserve-unknown-fields",
)  # fmt: skip


def definition(schema: dict[str, Any]) -> dict[str, Any]:
    """Unknown keys are refused where the API server drops them; keys with a default are not required.

    Raises:
        ValueError: a keyword is not known here.
    """
    strange = schema.keys() - {*_SAME, *_SERVER_ONLY, *_HANDLED}
    if strange:
        raise ValueError(f"tools/chart/schema.py does not know how to convert {sorted(strange)}")
    result = {name: schema[name] for name in _SAME if name in schema and name != "format"}
    if schema.get("nullable"):
        result["type"] = [schema["type"], "null"]
    properties = schema.get("properties", {})
    if properties:
        result["properties"] = {name: definition(child) for name, child in properties.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    required = [name for name in schema.get("required", []) if "default" not in properties[name]]
    if required:
        result["required"] = required
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = definition(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = definition(schema["items"])
    return result
