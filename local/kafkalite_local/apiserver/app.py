"""The HTTP side: who may ask, what a path means, how answers look."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from aiohttp import web

from kafkalite_local.apiserver import builtins, discovery, openapi, podlogs, reading, scale
from kafkalite_local.apiserver import deletion as deleting
from kafkalite_local.apiserver.bodies import (
    PATH,
    check_media_type,
    decoded,
    delete_options,
    json_response,
    method_not_allowed,
    object_body,
    quote_warning,
    shown,
    success,
    write_options,
)
from kafkalite_local.apiserver.builtins import METADATA_FIELDS
from kafkalite_local.apiserver.errors import (
    ApiError,
    bad_request,
    not_found,
    not_implemented,
    too_large,
)
from kafkalite_local.apiserver.operations import Operations, WriteOptions, Written
from kafkalite_local.apiserver.patching import apply_patch
from kafkalite_local.apiserver.selectors import Selector, parse_selector
from kafkalite_local.apiserver.tables import table, wants_table
from kafkalite_local.apiserver.watching import BOOKMARK_INTERVAL_S, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite_local.apiserver.registry import Registry
    from kafkalite_local.apiserver.store import Store
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY_BYTES_MAX: Final = 3 << 20
_LOG = logging.getLogger(__name__)
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")


class Target(NamedTuple):
    """What a path names. `namespace` is None for all namespaces, the empty string for cluster-wide kinds."""

    resource: ResourceType
    namespace: str | None
    name: str
    subresource: str


class Api:
    """The request handlers over one store."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        token: str,
        log_folder: Path,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
    ) -> None:
        self._store = store
        self._registry = registry
        self._token = token
        self._log_folder = log_folder
        self._bookmark_interval_s = bookmark_interval_s
        self._operations = Operations(store, registry)
        self._lister = reading.Lister(store)
        self._watches: set[Watch] = set()
        self._stopping = asyncio.Event()
        self._documents: dict[tuple[int, str], bytes] = {}

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._errors])
        app.router.add_route("*", "/{path:.*}", self._route)
        return app

    def stop(self) -> None:
        """End all watches."""
        self._stopping.set()
        for watch in self._watches:
            watch.wake()

    # --- around every request ----------------------------------------------------------------------------------

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._authenticate(request)
            return await handler(request)
        except ApiError as error:
            # The verdict may rest on a write that is still on its way: once answered, it must be there to be read.
            await self._store.settled()
            headers = {"Retry-After": "1"} if error.code in {429, 504} else None
            return json_response(error.status(), status=error.code, headers=headers)
        except web.HTTPRequestEntityTooLarge:
            return json_response(too_large(BODY_BYTES_MAX).status(), status=413)
        except (web.HTTPException, asyncio.CancelledError, ConnectionError):
            raise
        except Exception:  # one request must not take the control plane down
            _LOG.exception("%s %s failed", request.method, request.get(PATH, ""))
            broken = ApiError(500, "InternalError", "Internal error occurred: see the log of the API server")
            return json_response(broken.status(), status=500)

    def _authenticate(self, request: web.Request) -> None:
        """Accept the token as first part of the path or as bearer token, and keep the path without it.

        kubectl sends no bearer token over plain HTTP; a kubeconfig's server address may have a path, though, and every
        client puts it before its own.
        """
        request[PATH] = request.path
        first, _, rest = request.path[1:].partition("/")
        if hmac.compare_digest(first.encode(), self._token.encode()):
            request[PATH] = f"/{rest}"
            return
        if request.path in _PUBLIC:
            return
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path: str = request[PATH]
        parts = [part for part in path.split("/") if part]
        match parts:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                return json_response(discovery.VERSION)
            case ["openapi", "v3", *rest]:
                return self._openapi(rest, request)
            case ["api"] | ["apis"]:
                return self._roots(request, core=parts == ["api"])
            case ["api", version, *rest]:
                return await self._group(request, "", version, rest)
            case ["apis", group] if request.method == "GET":
                names = discovery.versions(self._registry).get(group)
                if not names:
                    raise self._unknown(request, group)
                return json_response(discovery.group(group, names))
            case ["apis", group, version, *rest]:
                return await self._group(request, group, version, rest)
        raise not_implemented(request.method, request[PATH])

    def _roots(self, request: web.Request, *, core: bool) -> web.Response:
        form = discovery.aggregated_version(request.headers.get("Accept", ""))
        if form:
            body = discovery.aggregated(self._registry, core=core, form=form)
            media_type = f"application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList"
            return web.Response(body=msgspec.json.encode(body), headers={"Content-Type": media_type, "Vary": "Accept"})
        return json_response(discovery.core_versions(request.host) if core else discovery.groups(self._registry))

    def _openapi(self, rest: list[str], request: web.Request) -> web.Response:
        path = "/".join(rest)
        key = (self._registry.changes, path)
        if key not in self._documents:
            body: Json | None
            match rest:
                case []:
                    body = openapi.root(self._registry)
                case ["api", version]:
                    body = openapi.document(self._registry, "", version)
                case ["apis", group, version]:
                    body = openapi.document(self._registry, group, version)
                case _:
                    body = None
            if body is None:
                raise not_implemented(request.method, request[PATH])
            self._documents = {known: item for known, item in self._documents.items() if known[0] == key[0]}
            self._documents[key] = msgspec.json.encode(body)
        return web.Response(body=self._documents[key], content_type="application/json")

    # --- one group ---------------------------------------------------------------------------------------------

    async def _group(self, request: web.Request, group: str, version: str, rest: list[str]) -> web.StreamResponse:
        if not rest:
            listed = discovery.resources(self._registry, group, version)
            if listed is None:
                raise self._unknown(request, group)
            return json_response(listed)
        group_version = f"{group}/{version}" if group else version
        if rest[0] in {plural for plural, _ in discovery.REVIEWS.get(group_version, ())}:
            return await self._review(request, group_version, rest[0])
        target = self._target(request, group, version, rest)
        if target.subresource:
            return await self._subresource(request, target)
        if target.name:
            return await self._object(request, target)
        return await self._collection(request, target)

    def _target(self, request: web.Request, group: str, version: str, rest: list[str]) -> Target:
        namespace: str | None = None
        if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        resource = self._registry.find(group, version, rest[0])
        if resource is None:
            raise self._unknown(request, group)
        if not resource.namespaced:
            namespace = ""
        name, subresource = (*rest[1:], "", "")[:2]
        known = {"": True, "status": resource.status, "scale": resource.scale is not None}
        known["log"] = resource is builtins.PODS
        if len(rest) > 3 or not known.get(subresource, False):
            raise not_implemented(request.method, request[PATH])
        if name and namespace is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource", {})
        return Target(resource, namespace, name, subresource)

    @staticmethod
    def _unknown(request: web.Request, group: str) -> ApiError:
        """404 where the real server has nothing either (a group that only a definition could make), else 501."""
        if "." in group and not group.endswith("k8s.io"):
            return ApiError(404, "NotFound", "the server could not find the requested resource", {})
        return not_implemented(request.method, request[PATH])

    async def _object(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource, namespace, name = target.resource, target.namespace or "", target.name
        match request.method:
            case "GET":
                return self._get(request, target)
            case "PUT":
                options = write_options(request)
                body = await object_body(request, resource)
                written = self._operations.replace(resource, namespace, name, "", body, options)
                return await self._written(request, resource, written, options)
            case "PATCH":
                return await self._patch(request, target)
            case "DELETE":
                options = write_options(request)
                value, gone, done = deleting.delete(
                    self._store, resource, namespace, name, await delete_options(request), dry_run=options.dry_run
                )
                await self._on_disk(done)
                if not gone or resource is builtins.PODS:
                    return json_response(shown(resource, value))
                details = {"name": name, "group": resource.group, "kind": resource.plural}
                details = {key: item for key, item in details.items() if item} | {"uid": value["metadata"]["uid"]}
                return json_response(success(details))
        raise method_not_allowed(request)

    def _get(self, request: web.Request, target: Target) -> web.Response:
        entry = self._store.get(target.resource.storage, target.namespace or "", target.name)
        if entry is None:
            raise not_found(target.resource, target.name)
        form = wants_table(request.headers.get("Accept", ""))
        if form:
            value = shown(target.resource, entry.object)
            metadata = {"resourceVersion": value["metadata"]["resourceVersion"]}
            include = request.query.get("includeObject") or "Metadata"
            return json_response(table(target.resource, [value], metadata, version=form, include=include))
        body = reading.in_version(target.resource, entry.raw)
        return web.Response(body=body, content_type="application/json")

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        options = write_options(request)
        body = await request.read()
        written = self._operations.patch(
            target.resource,
            target.namespace or "",
            target.name,
            target.subresource,
            request.content_type,
            body,
            options,
        )
        return await self._written(request, target.resource, written, options)

    async def _on_disk(self, done: asyncio.Future[None] | None) -> None:
        """Before an answer: its write is there, or, where it changes nothing, the writes that made it so."""
        await (self._store.settled() if done is None else done)

    async def _written(
        self, request: web.Request, resource: ResourceType, written: Written, options: WriteOptions
    ) -> web.Response:
        await self._on_disk(written.done)
        headers = [("Warning", f'299 - "{text}"'.replace("\n", " ")) for text in dict.fromkeys(options.warnings)]
        headers = [(name, quote_warning(text)) for name, text in headers]
        value = shown(resource, written.object)
        form = wants_table(request.headers.get("Accept", ""))
        if form:
            metadata = {"resourceVersion": value["metadata"].get("resourceVersion", "")}
            value = table(resource, [value], metadata, version=form, include="Object")
        return json_response(value, status=201 if written.created else 200, headers=headers)

    async def _collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource = target.resource
        match request.method:
            case "GET" if request.query.get("watch") in {"true", "1"}:
                return await self._watch(request, target)
            case "GET":
                return self._list(request, target)
            case "POST":
                options = write_options(request)
                body = await object_body(request, resource)
                namespace = target.namespace
                if namespace is None:
                    raise bad_request("the namespace of the object must be in the path")
                written = self._operations.create(resource, namespace, "", body, options)
                return await self._written(request, resource, written, options)
            case "DELETE":
                return await self._delete_collection(request, target)
        raise method_not_allowed(request)

    def _selector(self, request: web.Request, target: Target) -> Selector:
        known = (
            METADATA_FIELDS
            if target.resource.custom
            else builtins.FIELD_SELECTORS.get(target.resource.storage, METADATA_FIELDS)
        )
        fields = request.query.get("fieldSelector", "")
        if target.resource.from_storage is not None:
            fields = fields.replace("regarding.", "involvedObject.").replace(
                "reportingController", "reportingComponent"
            )
        return parse_selector(request.query.get("labelSelector", ""), fields, known)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        resource = target.resource
        page = self._lister.page(resource, target.namespace, self._selector(request, target), request.query)
        form = wants_table(request.headers.get("Accept", ""))
        if not form:
            return web.Response(body=reading.list_body(resource, page), content_type="application/json")
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.token:
            metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
        values = [shown(resource, entry.object) for entry in page.entries]
        include = request.query.get("includeObject") or "Metadata"
        return json_response(table(resource, values, metadata, version=form, include=include))

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        watch = Watch(
            self._store,
            target.resource,
            target.namespace,
            self._selector(request, target),
            request.query,
            table_version=wants_table(request.headers.get("Accept", "")),
            bookmark_interval_s=self._bookmark_interval_s,
        )
        self._watches.add(watch)
        try:
            return await watch.run(request, self._stopping)
        finally:
            self._watches.discard(watch)

    async def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        resource = target.resource
        options = await delete_options(request)
        write = write_options(request)
        page = self._lister.page(resource, target.namespace, self._selector(request, target), request.query)
        for entry in page.entries:
            if self._store.head(resource.storage, entry.namespace, entry.name) is not None:
                deleting.delete(self._store, resource, entry.namespace, entry.name, options, dry_run=write.dry_run)
        await self._store.settled()
        values = [shown(resource, entry.object) for entry in page.entries]
        metadata = {"resourceVersion": str(self._store.revision)}
        body = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata, "items": values}
        return json_response(body)

    # --- subresources and reviews ------------------------------------------------------------------------------

    async def _subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource, namespace, name = target.resource, target.namespace or "", target.name
        if target.subresource == "scale":
            return await self._scale(request, target)
        match target.subresource, request.method:
            case "log", "GET":
                entry = self._store.get(resource.storage, namespace, name)
                if entry is None:
                    raise not_found(resource, name)
                return await podlogs.serve(request, podlogs.log_file(self._log_folder, entry.object), request.query)
            case "status", "GET":
                return self._get(request, target)
            case "status", "PATCH":
                return await self._patch(request, target)
            case "status", "PUT":
                options = write_options(request)
                body = await object_body(request, resource)
                written = self._operations.replace(resource, namespace, name, "status", body, options)
                return await self._written(request, resource, written, options)
        raise method_not_allowed(request)

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        resource = target.resource
        raw = await request.read()
        head = self._store.head(resource.storage, target.namespace or "", target.name)
        if head is None:
            raise not_found(resource, target.name)
        if request.method == "GET":
            await self._store.settled()
            return json_response(scale.read(resource, head.object))
        if request.method == "PUT":
            wanted = decoded(raw, resource)
        elif request.method == "PATCH":
            wanted = apply_patch(request.content_type, raw, scale.read(resource, head.object), custom=resource.custom)
        else:
            raise method_not_allowed(request)
        written = self._operations.mutate(resource, head, scale.write(resource, head, wanted))
        await self._on_disk(written.done)
        return json_response(scale.read(resource, written.object))

    async def _review(self, request: web.Request, group_version: str, plural: str) -> web.Response:
        if request.method != "POST":
            raise method_not_allowed(request)
        kind = dict(discovery.REVIEWS[group_version])[plural]
        check_media_type(request)
        try:
            given = msgspec.json.decode(await request.read())
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_request(f"{kind} cannot be handled as JSON: {error}") from None
        rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status: Json
        if kind == "SelfSubjectAccessReview":
            status = {"allowed": True, "reason": "there is one user, who may do everything"}
        elif kind == "SelfSubjectRulesReview":
            paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
            status = {"resourceRules": [rule], "nonResourceRules": paths, "incomplete": False}
        else:
            status = {"userInfo": {"username": "kafkalite", "groups": ["system:masters", "system:authenticated"]}}
        spec = given.get("spec", {}) if isinstance(given, dict) else {}
        return json_response(
            {"kind": kind, "apiVersion": group_version, "metadata": {}, "spec": spec, "status": status}, status=201
        )
