"""Lists, with pages that show one consistent state, and their resource versions."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kafkalite_local.apiserver.errors import ApiError, FieldError, bad_request, expired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_local.apiserver.selectors import Selector
    from kafkalite_local.apiserver.store import Entry, Store
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

SNAPSHOTS_MAX: Final = 64
"""Lists that are being paged through at once; the oldest is forgotten, and its reader gets 410 and starts again."""


class Page(NamedTuple):
    """A part of a list: its objects, the list's resource version, the token of the next part, how many remain."""

    entries: list[Entry]
    revision: int
    token: str
    remaining: int


class Lister:
    """Answers lists. A list that is cut into pages is kept until its last page is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[int, tuple[int, list[Entry]]] = OrderedDict()
        self._ids = count(1)

    def page(self, resource: ResourceType, namespace: str | None, selector: Selector, query: Mapping[str, str]) -> Page:
        """One page. Raises ApiError 400, 410 for a forgotten or foreign token, 504 for a version of the future."""
        limit = _whole(query, "limit")
        if query.get("continue"):
            return self._next_page(query["continue"], limit)
        self._check_version(query)
        entries = [
            entry for entry in self._store.entries(resource.storage, namespace) if selector.matches(entry.attributes)
        ]
        return self._cut(None, self._store.revision, entries, 0, limit)

    def _check_version(self, query: Mapping[str, str]) -> None:
        revision = parse_revision(query.get("resourceVersion", ""))
        match = query.get("resourceVersionMatch", "")
        if match and not query.get("resourceVersion"):
            text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            error = FieldError("resourceVersionMatch", "FieldValueForbidden", text)
            details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [error.cause()]}
            raise ApiError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {error}', details)
        if match == "Exact" and revision != self._store.revision:
            raise expired(f"too old resource version: {revision} ({self._store.revision})")
        check_not_future(revision, self._store.revision)

    def _next_page(self, token: str, limit: int) -> Page:
        try:
            decoded = msgspec.json.decode(base64.urlsafe_b64decode(token))
            identity, position = int(decoded["id"]), int(decoded["position"])
        except (binascii.Error, ValueError, KeyError, TypeError):
            raise bad_request("continue key is not valid") from None
        snapshot = self._snapshots.get(identity)
        if snapshot is None or str(snapshot[0]) != str(decoded.get("revision")):
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return self._cut(identity, *snapshot, position, limit)

    def _cut(self, identity: int | None, revision: int, entries: list[Entry], start: int, limit: int) -> Page:
        end = start + limit if limit else len(entries)
        if end >= len(entries):
            if identity is not None:
                self._snapshots.pop(identity, None)
            return Page(entries[start:], revision, "", 0)
        if identity is None:
            identity = next(self._ids)
            self._snapshots[identity] = (revision, entries)
            while len(self._snapshots) > SNAPSHOTS_MAX:
                self._snapshots.popitem(last=False)
        token = {"id": identity, "position": end, "revision": revision}
        return Page(
            entries[start:end],
            revision,
            base64.urlsafe_b64encode(msgspec.json.encode(token)).decode(),
            len(entries) - end,
        )


def parse_revision(text: str) -> int:
    """A resource version as a number; 0 for none. Raises ApiError 400."""
    if not text:
        return 0
    if not text.isdigit():
        raise bad_request(f"Invalid value: {text!r}: strconv.ParseUint: parsing {text!r}: invalid syntax")
    return int(text)


def check_not_future(revision: int, current: int) -> None:
    """Raise ApiError 504 for a resource version that the server has not reached."""
    if revision > current:
        raise ApiError(
            504,
            "Timeout",
            f"Too large resource version: {revision}, current: {current}",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        )


def _whole(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise bad_request(f"{name}: Invalid value: {text!r}")
    return int(text)


def list_body(resource: ResourceType, page: Page) -> bytes:
    """The JSON of a list, put together from the objects' stored bytes."""
    metadata: Json = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
    head = msgspec.json.encode({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
    items = b",".join(in_version(resource, entry.raw) for entry in page.entries)
    return head[:-1] + b',"items":[' + items + b"]}"


def in_version(resource: ResourceType, raw: bytes) -> bytes:
    """A stored object in the form of this kind's version."""
    if resource.from_storage is None:
        return raw
    return msgspec.json.encode(resource.from_storage(msgspec.json.decode(raw)))
