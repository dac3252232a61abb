"""What the brokers' service account may do on a real server (helm/manifests), and what it is refused.

That the Role names every call of the brokers' code is tests/unit/broker_cluster/test_permissions.py's matter; here the
API server judges, for a token that it issued itself.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from kafkalite_runtime.kube import config, kinds
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.errors import KubeForbidden
from tests.contract.conftest import (
    BROKERS,
    CLUSTERS,
    CONFIG_MAPS,
    EVENTS,
    JSON_PATCH,
    LEASES,
    MERGE_PATCH,
    PODS,
    ROOT,
    STATEFUL_SETS,
    TOPICS,
    Api,
    broker_object,
    cluster,
    topic,
    until,
)

PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
}
ACCOUNT = "kafkalite-broker"
TOKENS = PATHS["ServiceAccount"] + f"/{ACCOUNT}/token"
TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}

CLUSTER = cluster("kafkalite")
BROKER = broker_object()
LEASE = {"metadata": {"name": "b"}, "spec": {"holderIdentity": "incarnation", "leaseDurationSeconds": 5}}
LABEL = {"metadata": {"labels": {"a": "b"}}}


def in_namespace(document: dict[str, Any], ns: str) -> dict[str, Any]:
    """The chart's object, moved to another namespace with the accounts that it names."""
    moved = copy.deepcopy(document)
    for place in (moved["metadata"], *moved.get("subjects", ())):
        if "namespace" in place:
            place["namespace"] = ns
    return moved


@pytest.fixture
async def broker(api: Api, ns: str, real: None, kubeconfig):
    """The API as a broker's pod sees it: its account's own token and nothing else."""
    for document in yaml.safe_load_all((ROOT / "helm" / "manifests" / "operator.yaml").read_text()):
        if document["metadata"]["name"] == ACCOUNT:
            await api.create(PATHS[document["kind"]].format(ns=ns), in_namespace(document, ns))
    await api.create(TOPICS.format(ns=ns), topic())
    await api.create(CLUSTERS.format(ns=ns), CLUSTER)
    await api.create(BROKERS.format(ns=ns), BROKER)
    issued = await api.create(TOKENS.format(ns=ns), TOKEN_REQUEST)
    account = as_bearer(api, issued.body["status"]["token"])

    async def allowed() -> bool:
        return (await account.get(TOPICS.format(ns=ns))).status == 200

    await until(allowed)  # the server's authorizer hears of roles by a watch
    return account


def as_bearer(api: Api, token: str) -> Api:
    return Api(api.session, api.server, {"Authorization": f"Bearer {token}"} if token else {}, api.ssl)


async def test_a_broker_may_do_what_it_does(broker: Api, ns: str):
    topics, clusters, brokers, leases = (path.format(ns=ns) for path in (TOPICS, CLUSTERS, BROKERS, LEASES))
    for path in (topics, clusters, brokers):
        assert (await broker.get(path)).status == 200
        async with broker.watch(path) as next_event:
            assert (await next_event())["type"] == "ADDED"
    for path in (f"{topics}/orders", f"{clusters}/kafkalite", f"{brokers}/c-broker-0"):
        assert (await broker.get(path)).status == 200
    await broker.create(topics, topic("made"))
    for path, status in (
        (f"{topics}/made", {"inSync": "9/9"}),
        (f"{clusters}/kafkalite", {"nextBrokerEpoch": 1}),
        (f"{brokers}/c-broker-0", {"registration": {"brokerEpoch": 1, "incarnation": "i"}}),
    ):
        change = [{"op": "add", "path": "/status", "value": status}]
        assert (await broker.patch(f"{path}/status", change, JSON_PATCH)).body["status"] == status
    assert (await broker.patch(f"{topics}/made", LABEL, MERGE_PATCH)).status == 200
    assert (await broker.patch(f"{clusters}/kafkalite", LABEL, MERGE_PATCH)).status == 200
    assert (await broker.call("DELETE", f"{topics}/made")).status == 200
    held = await broker.create(leases, LEASE)
    assert (await broker.call("PUT", f"{leases}/b", held.body)).status == 200
    assert (await broker.patch(f"{leases}/b", LABEL, MERGE_PATCH)).status == 200
    assert (await broker.get(f"{leases}/b")).status == 200


REFUSED = {
    "replace a topic": ("PUT", TOPICS + "/orders", topic()),
    "replace a topic's status": ("PUT", TOPICS + "/orders/status", topic()),
    "delete every topic": ("DELETE", TOPICS, None),
    "topics of every namespace": ("GET", "/apis/kafkalite.io/v1alpha1/kafkalitetopics", None),
    "topics of another namespace": ("GET", TOPICS.replace("{ns}", "default"), None),
    "make a cluster": ("POST", CLUSTERS, CLUSTER),
    "delete a cluster": ("DELETE", CLUSTERS + "/kafkalite", None),
    "scale a cluster": ("PATCH", CLUSTERS + "/kafkalite/scale", {"spec": {"replicas": 1}}),
    "make a broker": ("POST", BROKERS, BROKER),
    "cordon a broker": ("PATCH", BROKERS + "/c-broker-0", {"spec": {"cordoned": True}}),
    "delete a broker": ("DELETE", BROKERS + "/c-broker-0", None),
    "list leases": ("GET", LEASES, None),
    "delete a lease": ("DELETE", LEASES + "/b", None),
    "a lease of another namespace": ("GET", LEASES.replace("{ns}", "default") + "/b", None),
    "pods": ("GET", PODS, None),
    "secrets": ("GET", "/api/v1/namespaces/{ns}/secrets", None),
    "config maps": ("GET", CONFIG_MAPS, None),
    "events": ("POST", EVENTS, {}),
    "change a StatefulSet": ("PATCH", STATEFUL_SETS + "/kafkalite-broker", {"spec": {"replicas": 0}}),
    "nodes": ("GET", "/api/v1/nodes", None),
    "change the definitions": (
        "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kafkalitetopics.kafkalite.io", LABEL,
    ),
    "more rights": ("PATCH", PATHS["Role"] + f"/{ACCOUNT}", {"rules": []}),
    "another token": ("POST", TOKENS, TOKEN_REQUEST),
}  # fmt: skip


async def test_a_broker_is_refused_the_rest(broker: Api, ns: str):
    done = []
    for what, (method, path, body) in REFUSED.items():
        media = MERGE_PATCH if method == "PATCH" else "application/json"
        answer = await broker.call(method, path.format(ns=ns), body, media=media)
        if (answer.status, answer.body["reason"]) != (403, "Forbidden"):
            done.append((what, answer.status))
        elif f'User "system:serviceaccount:{ns}:{ACCOUNT}" cannot' not in answer.body["message"]:
            done.append((what, answer.body["message"]))
    assert done == []


async def test_nobody_else_may_do_anything(api: Api, ns: str, real: None):
    """Another account of the namespace, a forged token, no token."""
    account = {"metadata": {"name": "stranger"}}
    await api.create(PATHS["ServiceAccount"].format(ns=ns), account)
    path = TOKENS.replace(ACCOUNT, "stranger").format(ns=ns)
    token = (await api.create(path, TOKEN_REQUEST)).body["status"]["token"]
    for bearer, status in ((token, 403), (f"{token[:-8]}AAAAAAAA", 401), ("x", 401), ("", 401)):
        answer = await as_bearer(api, bearer).get(TOPICS.format(ns=ns))
        assert answer.status == status, bearer


async def test_a_token_ends_with_its_account(broker: Api, api: Api, ns: str):
    assert (await broker.get(TOPICS.format(ns=ns))).status == 200
    assert (await api.call("DELETE", f"{PATHS['ServiceAccount'].format(ns=ns)}/{ACCOUNT}")).status == 200

    async def unknown() -> bool:
        return (await broker.get(TOPICS.format(ns=ns))).status == 401

    await until(unknown)


async def test_the_thin_client_with_what_a_pod_is_given(broker: Api, api: Api, ns: str, tmp_path, monkeypatch):
    """The address in the environment; token, authority and namespace in files."""
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)

    async def published() -> bool:
        return (await api.get(f"{CONFIG_MAPS.format(ns=ns)}/kube-root-ca.crt")).status == 200

    await until(published)
    authority = (await api.get(f"{CONFIG_MAPS.format(ns=ns)}/kube-root-ca.crt")).body["data"]["ca.crt"]
    token = broker.headers["Authorization"].removeprefix("Bearer ")
    for name, text in (("ca.crt", authority), ("token", token), ("namespace", ns)):
        (tmp_path / name).write_text(text)
    host, _, port = api.server.removeprefix("https://").partition(":")
    found = config.KubeConfig.from_environment({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})
    client = KubeClient(found)
    try:
        assert [item["metadata"]["name"] for item in (await client.list(kinds.TOPICS, found.namespace)).items] == [
            "orders"
        ]
        with pytest.raises(KubeForbidden, match="cannot list resource"):
            await client.list(kinds.PODS, found.namespace)
    finally:
        await client.close()
