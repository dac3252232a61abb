"""Reading manifests and bringing them to the API server."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kafkalite_cli.errors import Failure
from kafkalite_runtime.kube import (
    BROKERS,
    CLUSTERS,
    CONFIG_MAPS,
    SERVICES,
    TOPICS,
    Kind,
    KubeClient,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeUnavailable,
)

JsonObject = dict[str, Any]
KINDS = {(kind.api_version, kind.kind): kind for kind in (TOPICS, CLUSTERS, BROKERS, CONFIG_MAPS, SERVICES)}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ATTEMPTS = 3
METHODS = ("GET /", "POST /", "PUT /", "PATCH /", "DELETE /")

QUICKSTART_TOPIC: JsonObject = {
    "apiVersion": TOPICS.api_version,
    "kind": TOPICS.kind,
    "metadata": {"name": "quickstart"},
    "spec": {"partitions": 3, "replicas": 3, "config": {"min.insync.replicas": "2"}},
}


class Unanswered(Failure):
    """The API server does not answer about the object that `label` names."""

    def __init__(self, label: str, unavailable: KubeUnavailable) -> None:
        super().__init__(f"{label}: {plain_words(unavailable)}")
        self.label, self.unavailable = label, unavailable


def read_manifests(source: str) -> list[JsonObject]:
    """All objects of a file, a folder's *.yaml files, or standard input (`-`). Raises Failure with the place."""
    if source == "-":
        return _parse(_standard_input, "standard input")
    path = Path(source)
    if path.is_dir():
        return [
            obj
            for each in sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
            for obj in _parse(each.read_bytes, str(each))
        ]
    if not path.exists():
        raise Failure(f"{source}: no such file")
    return _parse(path.read_bytes, source)


def _standard_input() -> bytes:
    # Not /dev/stdin, which cannot be opened where it is a socket.
    if sys.stdin is None:
        raise Failure("standard input is closed: name a file")
    return sys.stdin.buffer.read()


def _parse(read: Callable[[], bytes], name: str) -> list[JsonObject]:
    try:
        documents = [each for each in yaml.safe_load_all(read().decode("utf-8")) if each is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{name}: {error}") from error
    except yaml.YAMLError as error:
        raise Failure(f"{name}: not YAML: {error}") from error
    flat: list[JsonObject] = []
    for document in documents:
        if not isinstance(document, dict):
            raise Failure(f"{name}: expected an object with apiVersion and kind, found {type(document).__name__}")
        items = document.get("items") if document.get("kind") == "List" else [document]
        if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
            raise Failure(f"{name}: a List has items, which are objects with apiVersion and kind")
        flat += items
    for obj in flat:
        _check_metadata(obj, name)
        kind_of(obj, name)
    return flat


def _check_metadata(obj: JsonObject, source: str) -> None:
    kind, metadata = obj.get("kind", "an object"), obj.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise Failure(f"{source}: metadata of {kind} is not an object with a name, but {type(metadata).__name__}")
    if not (metadata or {}).get("name"):
        raise Failure(f"{source}: {kind} has no metadata.name")
    for field in ("annotations", "labels"):
        if not isinstance((metadata or {}).get(field) or {}, dict):
            raise Failure(f"{source}: metadata.{field} of {kind} is not of the form key: value")


def kind_of(obj: JsonObject, source: str) -> Kind:
    """Raises Failure for kinds that this command does not know."""
    kind = KINDS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if kind is None:
        known = ", ".join(sorted(name for _, name in KINDS))
        raise Failure(
            f"{source}: {obj.get('apiVersion')} {obj.get('kind')} is not among what `kafkalite apply` knows ({known}); "
            "use kubectl"
        )
    return kind


async def apply(client: KubeClient, objects: Iterable[JsonObject], namespace: str | None = None) -> list[str]:
    """Create or change each object, like `kubectl apply`; one line per object. Raises Failure in plain words.

    `namespace` is for objects that name none; without it they go where the context says.
    """
    return [await _apply_one(client, obj, namespace or client.config.namespace) for obj in objects]


async def _apply_one(client: KubeClient, wanted: JsonObject, default_namespace: str) -> str:
    kind = kind_of(wanted, "manifest")
    metadata = wanted["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or default_namespace)
    label = f"{kind.kind} {name}"
    # What was read back from the API server says what was applied before: that is not part of what is applied now.
    own = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    if "annotations" in metadata:
        wanted = wanted | {"metadata": metadata | {"annotations": own}}
    applied = msgspec.json.encode(wanted).decode() + "\n"
    annotations = own | {LAST_APPLIED: applied}
    body = wanted | {"metadata": metadata | {"namespace": namespace, "annotations": annotations}}
    try:
        for _ in range(ATTEMPTS):
            try:
                existing = await client.get(kind, namespace, name)
            except KubeNotFound:
                try:
                    await client.create(kind, namespace, body, strict=True)
                except KubeConflict:
                    continue  # somebody else made it just now: change theirs
                return f"{label} created"
            patch = difference(existing, body)
            if not patch:
                return f"{label} unchanged"
            try:
                await client.merge_patch(kind, namespace, name, patch, strict=True)
            except (KubeConflict, KubeNotFound):
                continue
            return f"{label} {'unchanged' if _only_remembers(patch) else 'configured'}"
    except KubeUnavailable as error:
        raise Unanswered(label, error) from error
    except KubeError as error:
        raise Failure(f"{label}: {plain_words(error)}") from error
    raise Failure(f"{label}: it is changed by somebody else all the time; try again")


def difference(existing: JsonObject, wanted: JsonObject) -> JsonObject:
    """The merge patch of a three-way apply: what differs, and null for what was applied last and is gone now.

    What is applied is remembered even where nothing else differs: else a key would never be removed that somebody
    else had set before.
    """
    text = (existing["metadata"].get("annotations") or {}).get(LAST_APPLIED, "{}")
    try:
        last = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        last = {}
    patch = _difference(existing, wanted, last if isinstance(last, dict) else {})
    for fixed in ("apiVersion", "kind", "status"):
        patch.pop(fixed, None)
    return patch


def _only_remembers(patch: JsonObject) -> bool:
    annotations = patch.get("metadata", {}).get("annotations", {})
    return (
        set(patch) == {"metadata"} and set(patch["metadata"]) == {"annotations"} and set(annotations) == {LAST_APPLIED}
    )


def _difference(existing: JsonObject, wanted: JsonObject, last: JsonObject) -> JsonObject:
    patch: JsonObject = {}
    for key, value in wanted.items():
        have, before = existing.get(key), last.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            if deeper := _difference(have, value, before if isinstance(before, dict) else {}):
                patch[key] = deeper
        elif key not in existing or have != value:
            patch[key] = value
    for key in last:
        if key not in wanted and key in existing:
            patch[key] = None
    return patch


def plain_words(error: KubeError | KubeUnavailable) -> str:
    """What the API server said, without the request around it; of a missing right, what to ask for.

    Of one that is away: which one, and why, without the errors of the connection around that.
    """
    if isinstance(error, KubeUnavailable):
        return f"the API server{f' {error.server}' if error.server else ''} does not answer ({error.why or error})"
    message = error.message
    if message.startswith(METHODS):
        message = message.split(": ", 1)[1] if ": " in message else message
    if isinstance(error, KubeForbidden):
        if error.status == 401:
            return f"the API server does not know who you are ({message or 'Unauthorized'}): look at the kubeconfig"
        return f"{message}; ask for a Role that permits it, or name a namespace of yours with -n"
    marker = " is invalid: "
    return message.split(marker, 1)[1] if marker in message else message
