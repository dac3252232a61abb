"""Discovery: which groups, versions and kinds there are, in the old form and in the aggregated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkalite_local.apiserver.registry import Registry
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]

VERSION: Final = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0+kafkalite",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "CPython",
    "platform": "linux/amd64",
}

REVIEWS: Final = {
    "authorization.k8s.io/v1": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ),
    "authentication.k8s.io/v1": (("selfsubjectreviews", "SelfSubjectReview"),),
}
"""Kinds that are only ever created, and never stored."""


def aggregated_version(accept: str) -> str:
    """The version of the aggregated form that the client prefers, or the empty string for the old form."""
    for part in accept.split(","):
        fields = dict(item.strip().partition("=")[::2] for item in part.split(";")[1:])
        if fields.get("as") == "APIGroupDiscoveryList" and fields.get("v") in {"v2", "v2beta1"}:
            return fields["v"]
        if part.strip().partition(";")[0] == "application/json" and "as" not in fields:
            return ""
    return ""


def versions(registry: Registry) -> dict[str, list[str]]:
    """Versions of each group; core is the empty string."""
    found: dict[str, list[str]] = {}
    for resource in registry.all():
        names = found.setdefault(resource.group, [])
        if resource.version not in names:
            names.append(resource.version)
    for group_version in REVIEWS:
        group, _, version = group_version.partition("/")
        found.setdefault(group, []).append(version)
    return dict(sorted(found.items()))


def core_versions(host: str) -> Json:
    """`/api`."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group(name: str, names: list[str]) -> Json:
    """`/apis/<group>`."""
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in names]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": entries, "preferredVersion": entries[0]}


def groups(registry: Registry) -> Json:
    """`/apis`."""
    listed = []
    for name, names in versions(registry).items():
        if name:
            entry = group(name, names)
            listed.append({key: entry[key] for key in ("name", "versions", "preferredVersion")})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def resources(registry: Registry, group_name: str, version: str) -> Json | None:
    """`/api/v1` and `/apis/<group>/<version>`, or None when there is no such version."""
    group_version = f"{group_name}/{version}" if group_name else version
    listed = []
    for resource in registry.all():
        if (resource.group, resource.version) == (group_name, version):
            listed += _legacy(resource)
    for plural, kind in REVIEWS.get(group_version, ()):
        listed.append({"name": plural, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]})
    if not listed:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _legacy(resource: ResourceType) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    listed = [entry]
    listed += [
        {
            "name": f"{resource.plural}/{sub['subresource']}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **({key: sub["responseKind"][key] for key in ("group", "version")} if sub["foreign"] else {}),
            "kind": sub["responseKind"]["kind"],
            "verbs": sub["verbs"],
        }
        for sub in _subresources(resource)
    ]
    return listed


def _subresources(resource: ResourceType) -> list[Json]:
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    verbs = ["get", "patch", "update"]
    listed: list[Json] = []
    if resource.status:
        listed.append({"subresource": "status", "responseKind": own, "verbs": verbs, "foreign": False})
    if resource.scale:
        kind = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        listed.append({"subresource": "scale", "responseKind": kind, "verbs": verbs, "foreign": True})
    if resource.qualified == "pods":
        listed.append({"subresource": "log", "responseKind": own, "verbs": ["get"], "foreign": False})
    return listed


def aggregated(registry: Registry, *, core: bool, form: str) -> Json:
    """`/api` and `/apis` in the aggregated form."""
    items = []
    for name, names in versions(registry).items():
        if (name == "") != core:
            continue
        metadata = {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None}
        items.append({"metadata": metadata, "versions": [_aggregated_version(registry, name, item) for item in names]})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{form}",
        "metadata": {},
        "items": items,
    }


def _aggregated_version(registry: Registry, group_name: str, version: str) -> Json:
    listed = []
    for resource in registry.all():
        if (resource.group, resource.version) != (group_name, version):
            continue
        entry: Json = {
            "resource": resource.plural,
            "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        subresources = [{key: item for key, item in sub.items() if key != "foreign"} for sub in _subresources(resource)]
        if subresources:
            entry["subresources"] = subresources
        listed.append(entry)
    for plural, kind in REVIEWS.get(f"{group_name}/{version}", ()):
        listed.append(
            {
                "resource": plural,
                "responseKind": {"group": group_name, "version": version, "kind": kind},
                "scope": "Cluster",
                "singularResource": "",
                "verbs": ["create"],
            }
        )
    return {"version": version, "freshness": "Current", "resources": listed}
