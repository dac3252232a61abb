"""Create, read, update, patch and delete: every decision is one synchronous step against the newest state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from kafkalite_local.apiserver import crds, deletion, forms
from kafkalite_local.apiserver import metadata as meta
from kafkalite_local.apiserver.builtins import CRDS, NAMESPACES
from kafkalite_local.apiserver.cel_rules import check_rules
from kafkalite_local.apiserver.errors import (
    ApiError,
    FieldError,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    not_found,
)
from kafkalite_local.apiserver.patching import APPLY_PATCHES, apply_patch
from kafkalite_local.apiserver.schema import MISSING, apply_defaults, prune, validate

if TYPE_CHECKING:
    import asyncio

    from kafkalite_local.apiserver.registry import Registry
    from kafkalite_local.apiserver.store import Entry, Store
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""Errors after which an object is no fit subject for rules."""

RULES_NOT_CHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


@dataclass(slots=True, kw_only=True)
class WriteOptions:
    """Query parameters of a write; `warnings` collects what the answer has to warn of."""

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a decision: the object, and the future of its commit (None when nothing is written)."""

    object: Json
    done: asyncio.Future[None] | None
    created: bool = False


class Operations:
    """The writes of the REST API on the store. Reads are in `reading`."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry

    def create(self, resource: ResourceType, namespace: str, name: str, body: Any, options: WriteOptions) -> Written:
        """POST (and PUT of a kind that is created on update). Raises ApiError."""
        metadata = meta.envelope(resource, namespace, name, body)
        value: Json = resource.to_storage(body) if resource.to_storage else body
        self._check_namespace(resource, namespace, metadata.get("name") or metadata.get("generateName") or "")
        meta.for_create(resource, metadata)
        forms.conform(resource, value)
        self._tidy(resource, value, MISSING, options, patch=None)
        if resource.status and resource is not CRDS:
            value.pop("status", None)
        if resource.prepare is not None:
            resource.prepare(value)
        if resource.check is not None:
            resource.check(value)
        if resource is CRDS:
            crds.load(value)
            crds.establish(value)
        name = metadata["name"]
        if self.store.head(resource.storage, namespace, name) is not None:
            raise already_exists(resource, name)
        self._judge(resource, value, MISSING)
        if options.dry_run:
            return Written(value, None, created=True)
        entry, done = self.store.put(resource.storage, namespace, name, value)
        return Written(entry.object, done, created=True)

    def replace(
        self, resource: ResourceType, namespace: str, name: str, subresource: str, body: Any, options: WriteOptions
    ) -> Written:
        """PUT. Raises ApiError."""
        metadata = meta.envelope(resource, namespace, name, body)
        head = self.store.head(resource.storage, namespace, name)
        if head is None:
            if resource.create_on_update and not subresource:
                return self.create(resource, namespace, name, body, options)
            raise not_found(resource, name)
        value: Json = resource.to_storage(body) if resource.to_storage else body
        meta.check_versions(resource, head, metadata, required=not resource.unconditional_update)
        return self._change(resource, head, value, subresource, options, patch=None)

    def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        subresource: str,
        media_type: str,
        body: bytes,
        options: WriteOptions,
    ) -> Written:
        """PATCH. Raises ApiError."""
        head = self.store.head(resource.storage, namespace, name)
        if head is None:
            if media_type in APPLY_PATCHES:
                apply_patch(media_type, body, {}, custom=resource.custom)
            raise not_found(resource, name)
        target = head.copy()
        if resource.from_storage:
            target = resource.from_storage(target)
        patched = apply_patch(media_type, body, target, custom=resource.custom)
        metadata = meta.envelope(resource, namespace, name, patched)
        value: Json = resource.to_storage(patched) if resource.to_storage else patched
        meta.check_versions(resource, head, metadata, patch=True)
        return self._change(resource, head, value, subresource, options, patch=body)

    def mutate(self, resource: ResourceType, head: Entry, value: Json) -> Written:
        """Store a new state that the server itself made from `head` (the scale subresource, the collector)."""
        return self._change(resource, head, value, "", WriteOptions(), patch=None)

    def _change(
        self,
        resource: ResourceType,
        head: Entry,
        value: Json,
        subresource: str,
        options: WriteOptions,
        *,
        patch: bytes | None,
    ) -> Written:
        old = head.object
        forms.conform(resource, value)
        self._tidy(resource, value, old, options, patch=patch)
        if subresource == "status":
            value = self._status_only(resource, head, value)
        else:
            meta.for_update(resource, head, value["metadata"])
            if resource.status:
                value.pop("status", None)
                if "status" in old:
                    value["status"] = old["status"]
            if resource.prepare is not None:
                resource.prepare(value)
        if resource.check is not None:
            resource.check(value)
        if resource is CRDS:
            crds.load(value)
            crds.establish(value)
        self._judge(resource, value, old)
        if meta.same(value, old):
            return Written(old, None)
        if resource.generation and not meta.same(_specification(value), _specification(old)):
            value["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if options.dry_run:
            return Written(value, None)
        if deletion.is_over(value):
            entry, done = self.store.remove(resource.storage, head.namespace, head.name, value)
        else:
            entry, done = self.store.put(resource.storage, head.namespace, head.name, value)
        return Written(entry.object, done)

    def _status_only(self, resource: ResourceType, head: Entry, value: Json) -> Json:
        new = head.copy()
        if "status" in value:
            new["status"] = value["status"]
        else:
            new.pop("status", None)
        if not resource.custom:
            # The real server lets the status of built-in kinds change labels and annotations too.
            for name in ("labels", "annotations"):
                new["metadata"].pop(name, None)
                if name in value["metadata"]:
                    new["metadata"][name] = value["metadata"][name]
        return new

    def _tidy(
        self, resource: ResourceType, value: Json, old: Any, options: WriteOptions, *, patch: bytes | None
    ) -> None:
        """Prune unknown fields of a custom resource and fill in its defaults."""
        if resource.schema is None:
            return
        unknown: list[str] = []
        prune(resource.schema, value, old, "", unknown)
        if unknown and options.field_validation == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            text = f"strict decoding error: {listed}"
            if patch is not None:
                shown = f"Invalid value: {msgspec.json.encode(patch.decode(errors='replace')).decode()}: {text}"
                error = FieldError("patch", "FieldValueInvalid", shown)
                raise ApiError(422, "Invalid", f' "" is invalid: {error}', {"causes": [error.cause()]})
            kind = f'{resource.kind} in version "{resource.version}"'
            raise bad_request(f"{kind} cannot be handled as a {resource.kind}: {text}")
        if options.field_validation == "Warn":
            options.warnings += [f'unknown field "{path}"' for path in unknown]
        apply_defaults(resource.schema, value)

    def _judge(self, resource: ResourceType, value: Json, old: Any) -> None:
        """Schema and rules; the rules only of what has the right form, as the real server does. Raises ApiError 422."""
        if resource.schema is None:
            return
        errors: list[FieldError] = []
        validate(resource.schema, value, old, "", errors)
        if any(error.reason in BLOCKING for error in errors):
            errors.append(FieldError("", "FieldValueInvalid", RULES_NOT_CHECKED))
        else:
            check_rules(resource.schema, value, old, errors)
        if errors:
            raise invalid(resource, value["metadata"]["name"], errors)

    def _check_namespace(self, resource: ResourceType, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        found = self.store.head("namespaces", "", namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.object["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource, name, why)


def _specification(value: Json) -> Json:
    """Everything whose change counts as a new generation."""
    return {name: item for name, item in value.items() if name not in {"metadata", "status", "apiVersion", "kind"}}
