"""What the server itself sets and guards in an object's metadata."""

from __future__ import annotations

import random
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkalite_local.apiserver.builtins import now_text
from kafkalite_local.apiserver.errors import ApiError, FieldError, bad_request, conflict, invalid

if TYPE_CHECKING:
    from kafkalite_local.apiserver.store import Entry
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

NAME_LENGTH_MAX: Final = 253
ANNOTATION_BYTES_MAX: Final = 262_144
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


def same(left: Any, right: Any) -> bool:
    """Equality as JSON has it: true is not 1."""
    if left != right:
        return False
    return msgspec.json.encode(left, order="sorted") == msgspec.json.encode(right, order="sorted")


def envelope(resource: ResourceType, namespace: str, name: str, body: Any) -> Json:
    """Check that the body is an object of this kind for this place, and give its metadata. Raises ApiError 400."""
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not an object")
    if resource.custom:
        _check_type_of_custom(resource, body)
    elif body.get("apiVersion") not in (None, resource.api_version) or body.get("kind") not in (None, resource.kind):
        found = f"{body.get('apiVersion', '')}, Kind={body.get('kind', '')}"
        raise bad_request(
            f"{resource.kind} in version {resource.version!r} cannot be handled: the object provided is unrecognized "
            f"(expected {resource.api_version}, Kind={resource.kind}, found {found})"
        )
    body["apiVersion"], body["kind"] = resource.api_version, resource.kind
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request(f"{resource.kind} cannot be handled: metadata is not an object")
    if resource.namespaced:
        if metadata.get("namespace") not in (None, "", namespace):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name and metadata.get("name") not in (None, "", name):
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})",
        )
    if name:
        metadata["name"] = name
    for unused in ("managedFields", "selfLink"):
        metadata.pop(unused, None)
    for empty in ("labels", "annotations", "ownerReferences", "finalizers"):
        if empty in metadata and not metadata[empty]:
            del metadata[empty]
    return metadata


def _check_type_of_custom(resource: ResourceType, body: Json) -> None:
    """A custom resource has to say what it is; a built-in kind is known from the path. Raises ApiError 400 or 422."""
    kind, version = body.get("kind"), body.get("apiVersion")
    if not kind:
        shown = msgspec.json.encode(body).decode()[:200]
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): "
            f"Object 'Kind' is missing in '{shown}'"
        )
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version or ''}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if kind != resource.kind:
        text = f'Invalid value: "{kind}": must be {resource.kind}'
        name = (body.get("metadata") or {}).get("name", "")
        raise invalid(replace(resource, kind=kind), name, [FieldError("kind", "FieldValueInvalid", text)])


def for_create(resource: ResourceType, metadata: Json) -> None:
    """Fill in the metadata of a new object. Raises ApiError 400, 422, or 500 as the real server does."""
    if metadata.pop("resourceVersion", None):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    if not metadata.get("name"):
        prefix = metadata.get("generateName")
        if prefix is not None and not isinstance(prefix, str):
            raise bad_request(f"{resource.kind} cannot be handled: metadata.generateName is not a string")
        if not prefix:
            text = "Required value: name or generateName is required"
            raise invalid(resource, "", [FieldError("metadata.name", "FieldValueRequired", text)])
        metadata["name"] = prefix[:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
    for owned in _OWNED:
        metadata.pop(owned, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now_text()
    if resource.generation:
        metadata["generation"] = 1
    check(resource, metadata)


def check(resource: ResourceType, metadata: Json) -> None:
    """Check name, labels, annotations and owners. Raises ApiError 422 (400 for wrong types)."""
    errors = []
    name = metadata["name"]
    if not isinstance(name, str):
        raise bad_request(f"{resource.kind} cannot be handled: metadata.name is not a string")
    if len(name) > NAME_LENGTH_MAX or not _SUBDOMAIN.match(name):
        errors.append(FieldError("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_SUBDOMAIN_TEXT}'))
    for section in ("labels", "annotations"):
        values = metadata.get(section)
        if values is not None and not (
            isinstance(values, dict) and all(isinstance(item, str) for item in values.values())
        ):
            raise bad_request(f"{resource.kind} cannot be handled: metadata.{section} is not a map of strings")
    for key, value in (metadata.get("labels") or {}).items():
        if len(value) > 63 or not _LABEL.match(value):
            text = (
                f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric characters'
            )
            errors.append(FieldError("metadata.labels", "FieldValueInvalid", f"{text}, '-', '_' or '.' (label {key})"))
    size = sum(len(key) + len(item) for key, item in (metadata.get("annotations") or {}).items())
    if size > ANNOTATION_BYTES_MAX:
        text = f"Too long: may not be more than {ANNOTATION_BYTES_MAX} bytes"
        errors.append(FieldError("metadata.annotations", "FieldValueTooLong", text))
    finalizers, owners = metadata.get("finalizers") or [], metadata.get("ownerReferences") or []
    if not (isinstance(finalizers, list) and all(isinstance(item, str) for item in finalizers)):
        raise bad_request(f"{resource.kind} cannot be handled: metadata.finalizers is not a list of strings")
    if not (isinstance(owners, list) and all(_is_reference(owner) for owner in owners)):
        raise bad_request(f"{resource.kind} cannot be handled: metadata.ownerReferences is not a list of references")
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                where = f"metadata.ownerReferences[{index}].{field}"
                errors.append(FieldError(where, "FieldValueRequired", "Required value: must not be empty"))
    if errors:
        raise invalid(resource, name, errors)


def _is_reference(owner: Any) -> bool:
    fields = ("apiVersion", "kind", "name", "uid")
    return isinstance(owner, dict) and all(isinstance(owner.get(field), str | None) for field in fields)


def finalizers_of(metadata: Json) -> list[str]:
    """The finalizers of a stored object; none where an earlier release took something else for them."""
    found = metadata.get("finalizers")
    return [str(item) for item in found] if isinstance(found, list) else []


def owners_of(metadata: Json) -> list[Json]:
    """The owner references of a stored object, as `finalizers_of`."""
    found = metadata.get("ownerReferences")
    return [owner for owner in found if _is_reference(owner)] if isinstance(found, list) else []


def check_versions(
    resource: ResourceType, head: Entry, metadata: Json, *, required: bool = False, patch: bool = False
) -> None:
    """Compare resource version and uid of a write with the stored object. Raises ApiError 409 or 422.

    Another uid is a condition that does not hold in a replacement, and an invalid change in a patch.
    """
    stored = head.object["metadata"]
    given = metadata.get("resourceVersion") or ""
    if not given and required:
        text = "Invalid value: 0: must be specified for an update"
        raise invalid(resource, head.name, [FieldError("metadata.resourceVersion", "FieldValueInvalid", text)])
    if given and given != stored["resourceVersion"]:
        raise conflict(resource, head.name)
    uid = metadata.get("uid")
    if uid and uid != stored["uid"]:
        if patch:
            text = f'Invalid value: "{uid}": field is immutable'
            raise invalid(resource, head.name, [FieldError("metadata.uid", "FieldValueInvalid", text)])
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored['uid']}"
        raise conflict(resource, head.name, why)


def for_update(resource: ResourceType, head: Entry, metadata: Json) -> None:
    """Put back what a writer must not change. Raises ApiError 422."""
    stored = head.object["metadata"]
    for owned in _OWNED:
        metadata.pop(owned, None)
        if owned in stored:
            metadata[owned] = stored[owned]
    metadata["resourceVersion"] = stored["resourceVersion"]
    check(resource, metadata)
    if "deletionTimestamp" in stored:
        added = [item for item in metadata.get("finalizers", ()) if item not in stored.get("finalizers", ())]
        if added:
            shown = ", ".join(f'"{item}"' for item in added)
            text = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{shown}}}"
            )
            raise invalid(resource, head.name, [FieldError("metadata.finalizers", "FieldValueForbidden", text)])


def check_preconditions(resource: ResourceType, head: Entry, options: Json) -> None:
    """The preconditions of DeleteOptions. Raises ApiError 409."""
    wanted = options.get("preconditions") or {}
    stored = head.object["metadata"]
    if wanted.get("uid") and wanted["uid"] != stored["uid"]:
        raise conflict(
            resource,
            head.name,
            f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({stored['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != stored["resourceVersion"]:
        raise conflict(
            resource,
            head.name,
            f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the ResourceVersion "
            f"in record ({stored['resourceVersion']}). The object might have been modified",
        )


def unrecognised_body(resource: ResourceType, error: Exception) -> ApiError:
    """400 for a body that is not JSON."""
    return bad_request(f"{resource.kind} in version {resource.version!r} cannot be handled as JSON: {error}")
