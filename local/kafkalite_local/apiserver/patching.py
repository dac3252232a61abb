"""JSON Patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch for built-in kinds."""

from __future__ import annotations

from typing import Any, Final

import jsonpatch
import msgspec
from jsonpointer import JsonPointerException

from kafkalite_local.apiserver.errors import ApiError, bad_request, patch_not_applicable, unsupported_media_type

Json = dict[str, Any]

OPERATIONS_MAX: Final = 10_000

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCHES = ("application/apply-patch+yaml", "application/apply-patch+cbor")

_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "ownerReferences": "uid",
    "secrets": "name",
    "addresses": "type",
    "taints": "key",
}
"""Lists of objects that are merged by a key. `ports` depends on where it stands; every other list is replaced."""

_MERGED_SETS: Final = frozenset({"finalizers"})


def apply_patch(media_type: str, body: bytes, target: Json, *, custom: bool) -> Json:
    """Apply a patch to `target`, which may be changed in place.

    Raises ApiError 400 for a patch that is none, 415 for a type that is not served, 422 for one that does not apply.
    """
    if media_type == JSON_PATCH:
        return _apply_json_patch(_decode(body), target)
    if media_type == MERGE_PATCH:
        return _object(_merge(target, _object(_decode(body))))
    if media_type == STRATEGIC_PATCH and not custom:
        return _object(_strategic(target, _object(_decode(body)), ""))
    if media_type in APPLY_PATCHES:
        raise ApiError(501, "NotImplemented", "the embedded API server does not implement server-side apply")
    served = [JSON_PATCH, MERGE_PATCH] if custom else [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH]
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(served)}"
    )


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"error decoding patch: {error}") from None


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise bad_request("error decoding patch: the patch is not an object")
    return value


def _apply_json_patch(operations: Any, target: Json) -> Json:
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise bad_request("error decoding patch: a JSON Patch is a list of operations")
    if len(operations) > OPERATIONS_MAX:
        message = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", message)
    try:
        patch = jsonpatch.JsonPatch(operations)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError) as error:
        raise bad_request(f"error decoding patch: {error}") from None
    try:
        return _object(patch.apply(target, in_place=True))
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError, IndexError):
        raise patch_not_applicable() from None


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _strategic(target: Any, patch: Json, field: str) -> Any:
    directive = patch.pop("$patch", None)
    if directive == "replace":
        return _without_directives(patch)
    if directive == "delete":
        return {}
    retained = patch.pop("$retainKeys", None)
    result: Json = target if isinstance(target, dict) else {}
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/"):
            continue  # applied below, once the list is merged
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, ()) if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _strategic(result.get(key), value, key)
        elif isinstance(value, list):
            result[key] = _strategic_list(result.get(key), value, key, field)
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.partition("/")[2]
            if isinstance(result.get(name), list):
                result[name] = _ordered(result[name], order, _merge_key(name, field))
    return result


def _merge_key(field: str, parent: str) -> str:
    if field == "ports":
        # A container's list of ports is found inside a list of containers, a Service's inside its spec.
        return "containerPort" if parent in {"containers", "initContainers"} else "port"
    return _MERGE_KEYS.get(field, "")


def _strategic_list(target: Any, patch: list[Any], field: str, parent: str) -> list[Any]:
    if field in _MERGED_SETS:
        present = list(target or ())
        return present + [item for item in patch if item not in present]
    key = _merge_key(field, parent)
    if not key or any(not isinstance(item, dict) for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [_without_directives(item) for item in patch if item.get("$patch") != "replace"]
    result = [item for item in (target or ()) if isinstance(item, dict)]
    for item in patch:
        position = next((index for index, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if position is not None:
                del result[position]
        elif position is None:
            result.append(_strategic({}, item, field))
        else:
            result[position] = _strategic(result[position], item, field)
    return result


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    wanted = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]

    def place(item: Any) -> int:
        identity = item.get(key) if isinstance(item, dict) and key else item
        return wanted.index(identity) if identity in wanted else len(wanted)

    return sorted(items, key=place)


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_directives(item) for key, item in value.items() if not key.startswith("$")}
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return value
