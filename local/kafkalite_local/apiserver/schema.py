"""Structural schemas of custom resources: compiled once, then prune, default and validate.

The texts of errors are those of Kubernetes 1.34. On updates a part that did not change is not judged again
(validation ratcheting, KEP-4008), which also keeps a patch of one partition cheap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kafkalite_local.apiserver.errors import FieldError

if TYPE_CHECKING:
    from kafkalite_local.apiserver.cel_rules import Rule

Json = dict[str, Any]
MISSING: Any = object()


@dataclass(slots=True, kw_only=True)
class Schema:
    """One node of a structural schema."""

    type: str = ""
    properties: dict[str, Schema] = field(default_factory=dict)
    additional: Schema | None = None
    items: Schema | None = None
    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    pattern: re.Pattern[str] | None = None
    format: str = ""
    default: Any = MISSING
    nullable: bool = False
    int_or_string: bool = False
    preserve: bool = False
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    has_rules: bool = False
    """Whether this node or one below it has rules."""
    has_defaults: bool = False


_COUNTS = {
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "minimum": "minimum",
    "maximum": "maximum",
}


def compile_schema(source: Json) -> Schema:
    """Compile an `openAPIV3Schema`. Raises ValueError for a rule that does not compile."""
    from kafkalite_local.apiserver.cel_rules import compile_rules

    node = Schema(
        type=source.get("type", ""),
        required=tuple(source.get("required", ())),
        enum=tuple(source.get("enum", ())),
        format=source.get("format", ""),
        default=source.get("default", MISSING),
        nullable=source.get("nullable", False),
        int_or_string=source.get("x-kubernetes-int-or-string", False),
        preserve=source.get("x-kubernetes-preserve-unknown-fields", False),
        list_type=source.get("x-kubernetes-list-type", ""),
        list_map_keys=tuple(source.get("x-kubernetes-list-map-keys", ())),
        rules=compile_rules(source.get("x-kubernetes-validations", ())),
    )
    for name, attribute in _COUNTS.items():
        setattr(node, attribute, source.get(name))
    if "pattern" in source:
        node.pattern = re.compile(source["pattern"])
    node.properties = {name: compile_schema(child) for name, child in source.get("properties", {}).items()}
    if isinstance(source.get("additionalProperties"), dict):
        node.additional = compile_schema(source["additionalProperties"])
    if isinstance(source.get("items"), dict):
        node.items = compile_schema(source["items"])
    children = [*node.properties.values(), *(child for child in (node.additional, node.items) if child is not None)]
    node.has_rules = bool(node.rules) or any(child.has_rules for child in children)
    node.has_defaults = any(child.default is not MISSING or child.has_defaults for child in children)
    return node


def prune(schema: Schema, value: Any, old: Any, path: str, unknown: list[str]) -> None:
    """Drop the fields that the schema does not know from `value`, in place, and append their paths to `unknown`.

    What equals the stored value `old` was pruned when it was stored.
    """
    if value == old:
        return
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name in list(value):
            child = schema.properties.get(name) or schema.additional
            where = f"{path}.{name}" if path else name
            if child is not None:
                prune(child, value[name], before.get(name, MISSING), where, unknown)
            elif not schema.preserve:
                unknown.append(where)
                del value[name]
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            prune(schema.items, item, MISSING, f"{path}[{index}]", unknown)


def apply_defaults(schema: Schema, value: Any) -> None:
    """Fill in the defaults of missing fields, in place. A null for a field with a default counts as missing."""
    if not schema.has_defaults:
        return
    if isinstance(value, dict):
        for name, child in schema.properties.items():
            if child.default is not MISSING and (name not in value or (value[name] is None and not child.nullable)):
                value[name] = _fresh(child.default)
            if name in value:
                apply_defaults(child, value[name])
        if schema.additional is not None:
            for name, item in value.items():
                if name not in schema.properties:
                    apply_defaults(schema.additional, item)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(schema.items, item)


def _fresh(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _fresh(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_fresh(item) for item in value]
    return value


def validate(schema: Schema, value: Any, old: Any, path: str, errors: list[FieldError]) -> None:
    """Append what is wrong with `value` to `errors`. `old` is the stored value, or MISSING."""
    if _unchanged(value, old):
        return
    if value is None and schema.nullable:
        return
    if not _type_matches(schema, value):
        kind = _type_name(value)
        wanted = "integer,string" if schema.int_or_string else schema.type
        errors.append(_not_of_type(path, f'"{kind}"', f'{wanted}: "{kind}"'))
        return
    if schema.enum and value not in schema.enum:
        supported = ", ".join(f'"{item}"' for item in sorted(schema.enum))
        text = f"Unsupported value: {_quoted(value)}: supported values: {supported}"
        errors.append(FieldError(path, "FieldValueNotSupported", text))
    if isinstance(value, dict):
        _validate_object(schema, value, old, path, errors)
    elif isinstance(value, list):
        _validate_list(schema, value, old, path, errors)
    elif isinstance(value, str):
        _validate_string(schema, value, path, errors)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _validate_number(schema, value, path, errors)


def _unchanged(value: Any, old: Any) -> bool:
    """Equal as JSON has it (in Python true is 1); a mere difference in the order of keys may count as a change."""
    if old is MISSING or value != old:
        return False
    return msgspec.json.encode(value) == msgspec.json.encode(old)


def _validate_object(schema: Schema, value: Json, old: Any, path: str, errors: list[FieldError]) -> None:
    before = old if isinstance(old, dict) else {}
    missing = [name for name in schema.required if name not in value]
    errors.extend(FieldError(_join(path, name), "FieldValueRequired", "Required value") for name in missing)
    count = len(value)
    if schema.max_properties is not None and count > schema.max_properties:
        errors.append(_too_many(path, count, schema.max_properties))
    if schema.min_properties is not None and count < schema.min_properties:
        text = f"{path} in body should have at least {schema.min_properties} properties"
        errors.append(_invalid(path, str(count), text))
    for name, item in value.items():
        child = schema.properties.get(name) or schema.additional
        if child is not None:
            validate(child, item, before.get(name, MISSING), _join(path, name), errors)


def _validate_list(schema: Schema, value: list[Any], old: Any, path: str, errors: list[FieldError]) -> None:
    count = len(value)
    if schema.max_items is not None and count > schema.max_items:
        errors.append(_too_many(path, count, schema.max_items))
    if schema.min_items is not None and count < schema.min_items:
        errors.append(_invalid(path, str(count), f"{path} in body should have at least {schema.min_items} items"))
    if schema.items is None:
        return
    for index, item in enumerate(value):
        before = list_counterpart(schema, item, old)
        validate(schema.items, item, before, f"{path}[{index}]", errors)
    if schema.list_type == "map":
        _check_list_map(schema, value, path, errors)
    elif schema.list_type == "set":
        _check_list_set(value, path, errors)


def _check_list_set(value: list[Any], path: str, errors: list[FieldError]) -> None:
    """Of scalars, of which alone our sets are."""
    for index, item in enumerate(value):
        if item in value[:index]:
            shown = _quoted(item) if isinstance(item, str) else str(item)
            errors.append(FieldError(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown}"))


def _check_list_map(schema: Schema, value: list[Any], path: str, errors: list[FieldError]) -> None:
    seen: set[tuple[str, ...]] = set()
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            continue
        key = tuple(str(item.get(name)) for name in schema.list_map_keys)
        if key in seen:
            shown = ",".join(f'"{name}":{_quoted(item.get(name))}' for name in schema.list_map_keys)
            text = f"Duplicate value: {{{shown}}}"
            errors.append(FieldError(f"{path}[{index}]", "FieldValueDuplicate", text))
        seen.add(key)


def list_counterpart(schema: Schema, item: Any, old: Any) -> Any:
    """The stored item that `item` stands for: by its keys in a list-map, else an equal one or none."""
    if not isinstance(old, list):
        return MISSING
    if schema.list_type == "map" and isinstance(item, dict):
        key = [item.get(name) for name in schema.list_map_keys]
        for candidate in old:
            if isinstance(candidate, dict) and [candidate.get(name) for name in schema.list_map_keys] == key:
                return candidate
    return MISSING


def _validate_string(schema: Schema, value: str, path: str, errors: list[FieldError]) -> None:
    if schema.max_length is not None and len(value) > schema.max_length:
        text = f"Too long: may not be more than {schema.max_length} bytes"
        errors.append(FieldError(path, "FieldValueTooLong", text))
    if schema.min_length is not None and len(value) < schema.min_length:
        text = f"{path} in body should be at least {schema.min_length} chars long"
        errors.append(_invalid(path, _quoted(value), text))
    elif schema.pattern is not None and not schema.pattern.search(value):
        text = f"{path} in body should match '{schema.pattern.pattern}'"
        errors.append(_invalid(path, _quoted(value), text))
    if schema.format == "date-time" and not _is_date_time(value):
        errors.append(_not_of_type(path, _quoted(value), f'date-time: "{value}"'))


def _validate_number(schema: Schema, value: float, path: str, errors: list[FieldError]) -> None:
    if schema.minimum is not None and value < schema.minimum:
        text = f"{path} in body should be greater than or equal to {schema.minimum}"
        errors.append(_invalid(path, str(value), text))
    if schema.maximum is not None and value > schema.maximum:
        text = f"{path} in body should be less than or equal to {schema.maximum}"
        errors.append(_invalid(path, str(value), text))
    limit = {"int32": 2**31, "int64": 2**63}.get(schema.format)
    if limit is not None and not -limit <= value < limit:
        errors.append(_not_of_type(path, str(value), f'{schema.format}: "{value}"'))


def _is_date_time(value: str) -> bool:
    if not re.match(r"^\d{4}-\d{2}-\d{2}[tT ]\d{2}:\d{2}:\d{2}", value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _type_matches(schema: Schema, value: Any) -> bool:
    if schema.int_or_string:
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    match schema.type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return True


def _type_name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return "null" if value is None else names[type(value)]


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _invalid(path: str, shown: str, text: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown}: {text}")


def _not_of_type(path: str, shown: str, wanted: str) -> FieldError:
    text = f"Invalid value: {shown}: {path} in body must be of type {wanted}"
    return FieldError(path, "FieldValueTypeInvalid", text)


def _too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")
