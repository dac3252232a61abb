"""OpenAPI v3: what kubectl reads for `explain`, and to learn that the server validates fields itself."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from kafkalite_local.apiserver.registry import Registry
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "object", "additionalProperties": _STRING}

_OBJECT_META: Final[Json] = {
    "type": "object",
    "description": "ObjectMeta is metadata that all persisted resources must have.",
    "properties": {
        "name": {**_STRING, "description": "Name must be unique within a namespace."},
        "generateName": {**_STRING, "description": "A prefix from which the server makes a unique name."},
        "namespace": {**_STRING, "description": "The space within which each name must be unique."},
        "labels": {**_STRINGS, "description": "Keys and values by which objects are selected."},
        "annotations": {**_STRINGS, "description": "Keys and values that tools attach to the object."},
        "finalizers": {
            "type": "array",
            "description": "Must be empty before the object is deleted.",
            "items": _STRING,
        },
        "ownerReferences": {
            "type": "array",
            "description": "Objects this one depends on; when all of them are deleted, it is deleted too.",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "uid": {**_STRING, "description": "Unique in time and space. Read-only."},
        "resourceVersion": {**_STRING, "description": "Opaque version of the object. Read-only."},
        "generation": {"type": "integer", "description": "Counts the changes of the desired state. Read-only."},
        "creationTimestamp": {**_STRING, "format": "date-time", "description": "When it was created. Read-only."},
        "deletionTimestamp": {**_STRING, "format": "date-time", "description": "When it goes away. Read-only."},
    },
}

_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}, "description": description}
    for name, description in (
        ("dryRun", "All: nothing is stored."),
        ("fieldManager", "The name of the program that writes."),
        ("fieldValidation", "Ignore, Warn or Strict: what happens to unknown fields."),
    )
]


def root(registry: Registry) -> Json:
    """`/openapi/v3`: the documents there are."""
    paths = {}
    for resource in registry.all():
        prefix = f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"
        if prefix not in paths:
            content = msgspec.json.encode(document(registry, resource.group, resource.version))
            digest = hashlib.sha256(content).hexdigest()[:32].upper()
            paths[prefix] = {"serverRelativeURL": f"/openapi/v3/{prefix}?hash={digest}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Json | None:
    """The document of one group and version, or None when there is no such one."""
    found = [item for item in registry.all() if (item.group, item.version) == (group, version)]
    if not found:
        return None
    schemas: Json = {_META: _OBJECT_META}
    paths: Json = {}
    for resource in found:
        name = component(resource)
        schemas[name] = _schema(resource)
        paths |= _paths(resource, name)
    return {
        "openapi": "3.0.0",
        "info": {"title": "KafkaLite's embedded Kubernetes API", "version": "v1.34.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def component(resource: ResourceType) -> str:
    """Name of a kind's schema: the group reversed, version, kind."""
    group = ".".join(reversed(resource.group.split("."))) if "." in resource.group else ""
    prefix = group if resource.custom else f"io.k8s.api.{resource.group.partition('.')[0] or 'core'}"
    return f"{prefix}.{resource.version}.{resource.kind}"


def _schema(resource: ResourceType) -> Json:
    source = resource.openapi or {
        "type": "object",
        "description": f"{resource.kind} is stored by the embedded API server as it is given.",
        "properties": {
            "apiVersion": _STRING,
            "kind": _STRING,
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-preserve-unknown-fields": True,
    }
    metadata = {
        "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
        "default": {},
        "description": "Standard object's metadata.",
    }
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    properties = {**source.get("properties", {}), "metadata": metadata}
    return {**source, "properties": properties, "x-kubernetes-group-version-kind": [gvk]}


def _paths(resource: ResourceType, name: str) -> Json:
    prefix = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    answer = {"200": {"description": "OK", "content": content}}

    def operation(action: str, media_types: tuple[str, ...] = ()) -> Json:
        entry: Json = {
            "operationId": f"{action}{resource.group.title().replace('.', '')}{resource.version}{resource.kind}",
            "parameters": _PARAMETERS if media_types else [],
            "responses": answer,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }
        if media_types:
            entry["requestBody"] = {"required": True, "content": {item: {"schema": {}} for item in media_types}}
        return entry

    # Strategic merge patch is served for built-in kinds but not announced here: kubectl would look for merge keys in
    # these schemas, which have none, instead of in its own types.
    patches = ("application/json-patch+json", "application/merge-patch+json")
    collection = f"{prefix}{scope}/{resource.plural}"
    return {
        collection: {"get": operation("list"), "post": operation("post", ("application/json",))},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", ("application/json",)),
            "patch": operation("patch", patches),
            "delete": operation("delete"),
        },
    }
