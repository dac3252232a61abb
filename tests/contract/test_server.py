"""The server itself: discovery, documents, limits, who may ask, definitions, what it does not implement."""

from __future__ import annotations

import aiohttp

from tests.contract.conftest import (
    CLUSTERS,
    CONFIG_MAPS,
    MERGE_PATCH,
    TOPICS,
    cluster,
    config_map,
    connection,
    topic,
    until,
)

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_discovery_in_both_forms(api):
    groups = {item["name"] for item in (await api.get("/apis")).body["groups"]}
    assert {"kafkalite.io", "apps", "coordination.k8s.io", "policy", "apiextensions.k8s.io"} <= groups
    assert (await api.get("/api")).body["versions"] == ["v1"]
    listed = (await api.get("/apis/kafkalite.io/v1alpha1")).body["resources"]
    names = {item["name"]: item for item in listed}
    assert names["kafkalitetopics"]["shortNames"] == ["klt"]
    assert names["kafkalitetopics"]["categories"] == ["kafkalite"]
    assert {"kafkalitetopics/status", "kafkaliteclusters/scale"} <= set(names)
    answer = await api.call("GET", "/apis", accept=AGGREGATED)
    assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
    versions = {item["metadata"]["name"]: item["versions"][0] for item in answer.body["items"]}
    resources = {item["resource"]: item for item in versions["kafkalite.io"]["resources"]}
    subresources = {item["subresource"] for item in resources["kafkaliteclusters"]["subresources"]}
    assert subresources == {"status", "scale"}
    assert (await api.get("/version")).body["minor"].startswith("34")
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await api.get(path)).body == "ok"


async def test_openapi_v3(api):
    paths = (await api.get("/openapi/v3")).body["paths"]
    url = paths["apis/kafkalite.io/v1alpha1"]["serverRelativeURL"].partition("?")[0]
    document = (await api.get(url)).body
    kinds = {
        item["kind"]: schema
        for schema in document["components"]["schemas"].values()
        for item in schema.get("x-kubernetes-group-version-kind", ())
    }
    partitions = kinds["KafkaLiteTopic"]["properties"]["spec"]["properties"]["partitions"]
    assert (partitions["maximum"], partitions["description"]) == (256, "Number of partitions. It can only grow.")
    one = document["paths"]["/apis/kafkalite.io/v1alpha1/namespaces/{namespace}/kafkalitetopics/{name}"]
    parameters = {item.get("name") for item in one["patch"]["parameters"]}
    assert {"fieldValidation", "dryRun"} <= parameters


async def test_tables(api, ns):
    path = TOPICS.format(ns=ns)
    await api.create(path, topic("orders", clusterRef={"name": "kafkalite"}))
    status = {"inSync": "8/9", "conditions": [{"type": "Ready", "status": "True", "reason": "AllLeaders"}]}
    await api.patch(f"{path}/orders/status", {"status": status}, MERGE_PATCH)
    answer = await api.call("GET", path, accept=TABLE)
    assert answer.body["kind"] == "Table"
    names = [column["name"] for column in answer.body["columnDefinitions"]]
    row = dict(zip(names, answer.body["rows"][0]["cells"], strict=True))
    assert row.pop("Age").endswith("s")
    assert row == {
        "Name": "orders",
        "Cluster": "kafkalite",
        "Partitions": 3,
        "Replicas": 3,
        "In-Sync": "8/9",
        "Ready": "True",
        "Reason": "AllLeaders",
    }
    assert answer.body["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    async with api.watch(path, accept=TABLE) as next_event:
        event = await next_event()
    assert event["object"]["kind"] == "Table"


async def test_size_limits(api, ns):
    path = CONFIG_MAPS.format(ns=ns)
    await api.create(path, {**config_map("fits"), "data": {"a": "x" * 900_000}})
    answer = await api.call("POST", TOPICS.format(ns=ns), topic("big", colour="x" * 3_300_000))
    assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_an_object_beyond_the_stores_limit(api, ns):
    body = cluster("big", template={"pod": {"a": "x" * 1_600_000}})
    answer = await api.call("POST", CLUSTERS.format(ns=ns), body)
    assert (answer.status, answer.body["message"]) == (500, "etcdserver: request is too large")


async def test_what_is_not_implemented_says_so_and_names_the_path(api, ns, embedded):
    for method, path in (
        ("GET", "/apis/batch/v1/jobs"),
        ("GET", f"/apis/apps/v1/namespaces/{ns}/daemonsets"),
        ("GET", f"/api/v1/namespaces/{ns}/pods/p/exec"),
        ("GET", "/metrics"),
        ("POST", f"/api/v1/namespaces/{ns}/pods/p/eviction"),
        ("GET", "/openapi/v2"),
    ):
        answer = await api.call(method, path, {} if method == "POST" else None)
        assert (answer.status, answer.body["reason"]) == (501, "NotImplemented"), path
        assert path in answer.body["message"]
    apply = await api.patch(f"{TOPICS.format(ns=ns)}/x", b"{}", "application/apply-patch+yaml")
    assert apply.status == 501
    assert (await api.get("/apis/sparkoperator.k8s.io/v1beta2/sparkapplications")).status == 501
    assert (await api.get("/apis/example.com/v1/things")).status == 404
    assert (await api.call("PUT", TOPICS.format(ns=ns), {})).status == 405


async def test_bodies_that_are_no_objects(api, ns):
    path = CONFIG_MAPS.format(ns=ns)
    for body in (b"{", b"[]", b'"x"', b""):
        assert (await api.call("POST", path, body)).status == 400, body
    assert (await api.call("POST", path, b"x", media="application/vnd.kubernetes.protobuf")).status in {400, 415}
    wrong_kind = {**config_map("x"), "kind": "Secret"}
    assert (await api.call("POST", path, wrong_kind)).status == 400
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\n"
    assert (await api.call("POST", path, text, media="application/yaml")).status == 201


async def test_a_custom_resource_says_what_it_is(api, ns):
    """A built-in kind is known from the path."""
    path = TOPICS.format(ns=ns)
    stored = (await api.create(path, topic())).body
    for method, where, body in (("POST", path, topic("x")), ("PUT", f"{path}/orders", stored)):
        for field, value, status, said in (
            ("kind", "", 400, "must be of type KafkaLiteTopic): Object 'Kind' is missing in '"),
            ("apiVersion", "", 400, "the API version in the data () does not match the expected API version"),
            ("apiVersion", "kafkalite.io/v2", 400, "in the data (kafkalite.io/v2) does not match the expected API"),
            ("kind", "Other", 422, 'is invalid: kind: Invalid value: "Other": must be KafkaLiteTopic'),
        ):
            answer = await api.call(method, where, {**body, field: value})
            assert answer.status == status, answer.body
            assert said in answer.body["message"]
    bare = {"metadata": {"name": "bare"}, "data": {}}
    assert (await api.create(CONFIG_MAPS.format(ns=ns), bare)).body["kind"] == "ConfigMap"


async def test_only_the_token_opens_the_door(kubeconfig, embedded):
    server, headers, _ = connection(kubeconfig)
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    bare, _, token = server.rpartition("/")
    async with aiohttp.ClientSession() as session:
        for prefix, given, expected in (
            ("", {}, 401),
            ("", {"Authorization": "Bearer wrong"}, 401),
            ("/wrong", {}, 401),
            ("", headers, 200),
            (f"/{token}", {}, 200),
        ):
            async with session.get(f"{bare}{prefix}/api/v1/namespaces", headers=given) as response:
                assert response.status == expected, (prefix, given)
        async with session.get(f"{bare}/readyz") as response:
            assert response.status == 200


async def test_access_reviews(api):
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await api.create(path, {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
    assert answer.body["status"]["allowed"] is True


async def test_a_definition_made_at_run_time(api, ns):
    name = "widgets.contract.example.com"
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "default": 3}},
                "x-kubernetes-validations": [{"rule": "self.size < 10"}],
            }
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "contract.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    await api.create(path, {**body, "metadata": {"name": name}, "spec": spec})
    try:
        async with api.watch(path, fieldSelector=f"metadata.name={name}") as next_event:
            while not any(
                item["type"] == "Established" and item["status"] == "True"
                for item in (await next_event())["object"].get("status", {}).get("conditions") or ()
            ):
                pass
        widgets = f"/apis/contract.example.com/v1/namespaces/{ns}/widgets"
        typed = {"apiVersion": "contract.example.com/v1", "kind": "Widget"}

        async def served() -> bool:
            return (await api.get(widgets)).status == 200

        await until(served)  # the handler of requests hears of the definition by a watch of its own
        made = await api.create(widgets, {**typed, "metadata": {"name": "w"}, "spec": {}})
        assert made.body["spec"] == {"size": 3}
        bad = await api.call("POST", widgets, {**typed, "metadata": {"name": "x"}, "spec": {"size": 11}})
        assert bad.status == 422
        assert "failed rule: self.size < 10" in bad.body["message"]
    finally:
        await api.call("DELETE", f"{path}/{name}")

    async def forgotten() -> bool:
        return (await api.get(widgets)).status == 404

    await until(forgotten)


async def test_the_project_definitions_are_established(api):
    listed = await api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    found = {item["metadata"]["name"]: item for item in listed.body["items"]}
    for name in ("kafkalitetopics", "kafkaliteclusters", "kafkalitebrokers"):
        definition = found[f"{name}.kafkalite.io"]
        assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        conditions = {item["type"]: item["status"] for item in definition["status"]["conditions"]}
        assert conditions["Established"] == "True"
