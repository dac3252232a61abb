"""Create, read, update, delete: names, versions, generations, finalizers."""

from __future__ import annotations

from tests.contract.conftest import (
    CLUSTERS,
    CONFIG_MAPS,
    JSON_PATCH,
    LEASES,
    MERGE_PATCH,
    PODS,
    STATEFUL_SETS,
    STRATEGIC_PATCH,
    TOPICS,
    causes,
    config_map,
    entry,
    placed_topic,
    topic,
)


async def test_a_new_object_gets_its_metadata_and_defaults(api, ns):
    answer = await api.create(TOPICS.format(ns=ns), topic())
    metadata = answer.body["metadata"]
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["namespace"] == ns
    assert answer.body["spec"]["deletionPolicy"] == "Delete"
    again = await api.get(f"{TOPICS.format(ns=ns)}/orders")
    assert again.status == 200
    assert again.body["metadata"]["uid"] == metadata["uid"]
    assert again.body["spec"] == answer.body["spec"]


async def test_create_drops_status_and_refuses_a_second_one(api, ns):
    body = {**topic(), "status": {"controllerEpoch": 9}}
    assert "status" not in (await api.create(TOPICS.format(ns=ns), body)).body
    answer = await api.call("POST", TOPICS.format(ns=ns), topic())
    assert (answer.status, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'kafkalitetopics.kafkalite.io "orders" already exists'


async def test_generate_name_makes_different_names(api, ns):
    bodies = [{**config_map(""), "metadata": {"generateName": "made-"}} for _ in range(2)]
    names = [(await api.create(CONFIG_MAPS.format(ns=ns), body)).body["metadata"]["name"] for body in bodies]
    assert len(set(names)) == 2
    assert all(name.startswith("made-") and len(name) == 10 for name in names)


async def test_not_found_names_the_object(api, ns):
    answer = await api.get(f"{TOPICS.format(ns=ns)}/nothing")
    assert (answer.status, answer.body["reason"]) == (404, "NotFound")
    assert answer.body["message"] == 'kafkalitetopics.kafkalite.io "nothing" not found'
    assert answer.body["details"] == {"name": "nothing", "group": "kafkalite.io", "kind": "kafkalitetopics"}
    gone = await api.call("DELETE", f"{CONFIG_MAPS.format(ns=ns)}/nothing")
    assert (gone.status, gone.body["message"]) == (404, 'configmaps "nothing" not found')


async def test_a_namespace_that_does_not_exist(api):
    answer = await api.call("POST", CONFIG_MAPS.format(ns="never-made"), config_map("x"))
    assert (answer.status, answer.body["message"]) == (404, 'namespaces "never-made" not found')


async def test_names_are_checked(api, ns):
    answer = await api.call("POST", TOPICS.format(ns=ns), topic("Orders_1"))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"
    nameless = {**config_map(""), "metadata": {}}
    assert (await api.call("POST", CONFIG_MAPS.format(ns=ns), nameless)).status == 422
    versioned = await api.call("POST", CONFIG_MAPS.format(ns=ns), config_map("x", resourceVersion="5"))
    assert (versioned.status, versioned.body["message"]) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )
    foreign = config_map("x", namespace="other")
    assert (await api.call("POST", CONFIG_MAPS.format(ns=ns), foreign)).status == 400


async def test_put_with_a_stale_version_conflicts(api, ns):
    path = f"{TOPICS.format(ns=ns)}/orders"
    first = (await api.create(TOPICS.format(ns=ns), topic())).body
    first["spec"]["partitions"] = 4
    second = await api.call("PUT", path, first)
    assert second.status == 200
    assert second.body["metadata"]["generation"] == 2
    stale = await api.call("PUT", path, first)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in stale.body["message"]
    without = topic(partitions=5)
    unconditional = await api.call("PUT", path, without)
    assert unconditional.status == 422
    assert "must be specified for an update" in unconditional.body["message"]


async def test_every_way_to_say_which_object_is_meant(api, ns):
    """A version or uid that is not the stored one: 409 where it is the caller's condition, 422 where it is a `test`."""
    path = f"{TOPICS.format(ns=ns)}/orders"
    created = await api.create(TOPICS.format(ns=ns), topic())
    old = created.revision
    uid = "00000000-0000-0000-0000-000000000000"
    patched = (await api.patch(path, {"spec": {"partitions": 4}}, MERGE_PATCH)).body
    for how, answer in {
        "put": await api.call("PUT", path, created.body),
        "put to the status": await api.call("PUT", f"{path}/status", {**created.body, "status": {"inSync": "1/1"}}),
        "merge patch": await api.patch(
            path, {"metadata": {"resourceVersion": old}, "spec": {"partitions": 5}}, MERGE_PATCH
        ),
        "put with another uid": await api.call(
            "PUT", path, {**patched, "metadata": {**patched["metadata"], "uid": uid}}
        ),
        "JSON patch": await api.patch(path, [{"op": "replace", "path": "/metadata/resourceVersion", "value": old}]),
        "deletion of a version": await api.call("DELETE", path, {"preconditions": {"resourceVersion": old}}),
    }.items():
        assert (how, answer.status, answer.body["reason"]) == (how, 409, "Conflict")
    for field, value in (("resourceVersion", old), ("uid", uid)):
        answer = await api.patch(path, [{"op": "test", "path": f"/metadata/{field}", "value": value}])
        assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    immutable = await api.patch(path, {"metadata": {"uid": uid}}, MERGE_PATCH)
    assert (immutable.status, immutable.body["reason"]) == (422, "Invalid")
    assert uid in immutable.body["message"]
    assert (await api.get(path)).body["spec"]["partitions"] == 4


async def test_a_write_that_changes_nothing_keeps_the_version(api, ns):
    created = await api.create(TOPICS.format(ns=ns), topic())
    path = f"{TOPICS.format(ns=ns)}/orders"
    for body in ({"spec": {"partitions": 3}}, {}):
        answer = await api.patch(path, body, MERGE_PATCH)
        assert (answer.status, answer.revision) == (200, created.revision)
    put = await api.call("PUT", path, created.body)
    assert (put.status, put.revision) == (200, created.revision)


async def test_generation_counts_changes_of_the_specification_alone(api, ns):
    path = f"{TOPICS.format(ns=ns)}/orders"
    await api.create(TOPICS.format(ns=ns), topic())
    labelled = await api.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    assert labelled.body["metadata"]["generation"] == 1
    status = await api.patch(f"{path}/status", {"status": {"observedGeneration": 1}}, MERGE_PATCH)
    assert status.body["metadata"]["generation"] == 1
    grown = await api.patch(path, {"spec": {"partitions": 5}}, MERGE_PATCH)
    assert grown.body["metadata"]["generation"] == 2
    assert grown.body["status"]["observedGeneration"] == 1


async def test_status_and_main_endpoint_do_not_touch_each_other(api, ns):
    stored = await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders"
    main = await api.patch(
        path, {"spec": {"partitions": 4}, "status": {"inSync": "0/9", "controllerEpoch": 99}}, MERGE_PATCH
    )
    assert main.body["status"] == stored["status"]
    change = {"spec": {"partitions": 9}, "metadata": {"labels": {"a": "b"}}, "status": {"inSync": "9/9"}}
    status = await api.patch(f"{path}/status", change, MERGE_PATCH)
    assert status.body["spec"]["partitions"] == 4
    assert "labels" not in status.body["metadata"]
    assert status.body["status"]["inSync"] == "9/9"


async def test_dry_run_changes_nothing(api, ns):
    path = TOPICS.format(ns=ns)
    assert (await api.call("POST", path, topic(), dryRun="All")).status == 201
    assert (await api.get(f"{path}/orders")).status == 404
    await api.create(path, topic())
    answer = await api.patch(f"{path}/orders", {"spec": {"partitions": 9}}, MERGE_PATCH, dryRun="All")
    assert (answer.status, answer.body["spec"]["partitions"]) == (200, 9)
    assert (await api.call("DELETE", f"{path}/orders", dryRun="All")).status == 200
    assert (await api.get(f"{path}/orders")).body["spec"]["partitions"] == 3


async def test_unknown_fields_are_pruned_warned_of_or_refused(api, ns):
    path = TOPICS.format(ns=ns)
    body = topic(colour="green")
    strict = await api.call("POST", path, body, fieldValidation="Strict")
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.colour"' in strict.body["message"]
    warned = await api.call("POST", path, body, fieldValidation="Warn")
    assert warned.status == 201
    assert "colour" not in warned.body["spec"]
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'


async def test_finalizers_hold_an_object_back(api, ns):
    path = CONFIG_MAPS.format(ns=ns)
    await api.create(path, config_map("held", finalizers=["kafkalite.io/test"]))
    deleted = await api.call("DELETE", f"{path}/held")
    assert deleted.status == 200
    assert "deletionTimestamp" in deleted.body["metadata"]
    adding = {"metadata": {"finalizers": ["kafkalite.io/test", "kafkalite.io/more"]}}
    assert (await api.patch(f"{path}/held", adding, MERGE_PATCH)).status == 422
    assert (await api.patch(f"{path}/held", {"metadata": {"finalizers": None}}, MERGE_PATCH)).status == 200
    assert (await api.get(f"{path}/held")).status == 404


async def test_delete_preconditions(api, ns):
    path = f"{CONFIG_MAPS.format(ns=ns)}/one"
    created = await api.create(CONFIG_MAPS.format(ns=ns), config_map("one"))
    for wanted, said in (
        ({"uid": "00000000-0000-0000-0000-000000000000"}, "the UID in the precondition (0000"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match the ResourceVersion in"),
    ):
        answer = await api.call("DELETE", path, {"preconditions": wanted})
        assert (answer.status, answer.body["reason"]) == (409, "Conflict")
        assert said in answer.body["message"]
    uid = created.body["metadata"]["uid"]
    assert (await api.call("DELETE", path, {"preconditions": {"uid": uid}})).status == 200
    assert (await api.get(path)).status == 404


async def test_delete_collection_by_label(api, ns):
    path = CONFIG_MAPS.format(ns=ns)
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        await api.create(path, config_map(name, labels={"colour": colour}))
    assert (await api.call("DELETE", path, labelSelector="colour=red")).status == 200
    left = [item["metadata"]["name"] for item in (await api.get(path)).body["items"]]
    assert "c" in left
    assert not {"a", "b"} & set(left)


async def test_a_running_pod_is_given_time(api, ns):
    path = PODS.format(ns=ns)
    spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 7}
    await api.create(path, {"metadata": {"name": "p"}, "spec": spec})
    assert (await api.get(f"{path}/p")).body["status"]["phase"] == "Pending"
    marked = await api.call("DELETE", f"{path}/p")
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 7
    assert (await api.get(f"{path}/p")).status == 200
    assert (await api.call("DELETE", f"{path}/p", {"gracePeriodSeconds": 0})).status == 200
    assert (await api.get(f"{path}/p")).status == 404


async def test_merge_patch_with_a_resource_version_is_a_compare_and_swap(api, ns):
    path = f"{TOPICS.format(ns=ns)}/orders"
    created = await api.create(TOPICS.format(ns=ns), topic())
    fresh = {"metadata": {"resourceVersion": created.revision}, "status": {"inSync": "1/1"}}
    assert (await api.patch(f"{path}/status", fresh, MERGE_PATCH)).status == 200
    stale = await api.patch(f"{path}/status", {**fresh, "status": {"inSync": "2/2"}}, MERGE_PATCH)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")


async def test_json_patch_tests(api, ns):
    stored = await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    guard = [
        {"op": "test", "path": "/metadata/uid", "value": stored["metadata"]["uid"]},
        {"op": "test", "path": "/status/partitions/0/partitionEpoch", "value": 11},
    ]
    swap = [*guard, {"op": "replace", "path": "/status/partitions/0", "value": entry(0, 4, 12, (0, 1))}]
    assert (await api.patch(path, swap)).status == 200
    lost = await api.patch(path, swap)
    assert (lost.status, lost.body["reason"]) == (422, "Invalid")
    assert lost.body["message"] == "the server rejected our request due to an error in our request"
    missing = [{"op": "test", "path": "/status/partitions/77/leader", "value": 1}]
    assert (await api.patch(path, missing)).status == 422
    nowhere = [{"op": "replace", "path": "/status/nothing/here", "value": 1}]
    assert (await api.patch(path, nowhere)).status == 422
    assert (await api.patch(path, b"not json")).status == 400
    assert (await api.patch(path, {"op": "add"})).status == 400


async def test_patches_of_different_partitions_do_not_conflict(api, ns):
    await placed_topic(api, ns)
    path = f"{TOPICS.format(ns=ns)}/orders/status"
    for number in ("0", "1", "2"):
        operations = [
            {"op": "test", "path": f"/status/partitions/{number}/partitionEpoch", "value": 11},
            {
                "op": "replace",
                "path": f"/status/partitions/{number}",
                "value": entry(int(number), 4, 12, (0, 1, 2)[:3]),
            },
        ]
        assert (await api.patch(path, operations)).status == 200


async def test_custom_resources_take_no_strategic_merge_patch(api, ns):
    await api.create(TOPICS.format(ns=ns), topic())
    answer = await api.patch(f"{TOPICS.format(ns=ns)}/orders", {"spec": {"partitions": 4}}, STRATEGIC_PATCH)
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")


async def test_strategic_merge_patch_merges_containers_by_name(api, ns):
    path = STATEFUL_SETS.format(ns=ns)
    containers = [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"serviceName": "s", "selector": {"matchLabels": labels}, "template": template}
    await api.create(path, {"metadata": {"name": "s"}, "spec": spec})
    change = [{"name": "b", "image": "2"}, {"name": "a", "env": [{"name": "Y", "value": "2"}]}]
    patch = {"spec": {"template": {"spec": {"containers": change}}}}
    answer = await api.patch(f"{path}/s", patch, STRATEGIC_PATCH)
    assert answer.status == 200, answer.body
    merged = {item["name"]: item for item in answer.body["spec"]["template"]["spec"]["containers"]}
    assert merged["b"]["image"] == "2"
    assert merged["a"]["image"] == "1"
    assert {item["name"] for item in merged["a"]["env"]} == {"X", "Y"}
    removal = {"spec": {"template": {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}}}}
    answer = await api.patch(f"{path}/s", removal, STRATEGIC_PATCH)
    assert [item["name"] for item in answer.body["spec"]["template"]["spec"]["containers"]] == ["a"]


async def test_scale(api, ns):
    path = CLUSTERS.format(ns=ns)
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteCluster", "metadata": {"name": "c"}, "spec": {}}
    await api.create(path, body)
    status = {"status": {"replicas": 2, "labelSelector": "kafkalite.io/cluster=c"}}
    assert (await api.patch(f"{path}/c/status", status, MERGE_PATCH)).status == 200
    scale = await api.get(f"{path}/c/scale")
    assert (scale.body["kind"], scale.body["spec"]["replicas"]) == ("Scale", 3)
    assert scale.body["status"] == {"replicas": 2, "selector": "kafkalite.io/cluster=c"}
    answer = await api.patch(f"{path}/c/scale", {"spec": {"replicas": 5}}, MERGE_PATCH)
    assert (answer.status, answer.body["spec"]["replicas"]) == (200, 5)
    scale.body["spec"]["replicas"] = 4
    assert (await api.call("PUT", f"{path}/c/scale", scale.body)).status == 409
    stored = (await api.get(f"{path}/c")).body
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)
    answer = await api.patch(f"{path}/c/scale", {"spec": {"replicas": 500}}, MERGE_PATCH)
    assert answer.status == 422


async def test_leases(api, ns):
    path = LEASES.format(ns=ns)
    spec = {
        "holderIdentity": "incarnation-1",
        "leaseDurationSeconds": 5,
        "acquireTime": "2026-01-02T03:04:05.000001Z",
        "renewTime": "2026-01-02T03:04:05.678900Z",
        "leaseTransitions": 0,
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "b"}, "spec": spec}
    created = await api.create(path, body)
    assert created.body["spec"] == spec, "MicroTime must be kept to the last digit"
    renewed = created.body
    renewed["spec"]["renewTime"] = "2026-01-02T03:04:06.678901Z"
    second = await api.call("PUT", f"{path}/b", renewed)
    assert (second.status, second.body["spec"]["renewTime"]) == (200, "2026-01-02T03:04:06.678901Z")
    assert (await api.call("PUT", f"{path}/b", renewed)).status == 409, "two holders cannot both renew"
    assert "generation" not in second.body["metadata"]
    for wrong in ({"renewTime": "2026-01-02T03:04:05Z"}, {"leaseDurationSeconds": "5"}):
        assert (await api.patch(f"{path}/b", {"spec": wrong}, MERGE_PATCH)).status in {400, 422}
    assert (await api.patch(f"{path}/b", {"spec": {"leaseDurationSeconds": 0}}, MERGE_PATCH)).status == 422
    steal = [
        {"op": "test", "path": "/spec/holderIdentity", "value": "incarnation-1"},
        {"op": "replace", "path": "/spec/holderIdentity", "value": "incarnation-2"},
    ]
    assert (await api.patch(f"{path}/b", steal, JSON_PATCH)).status == 200
    assert (await api.patch(f"{path}/b", steal, JSON_PATCH)).status == 422


async def test_a_field_of_a_built_in_kind_that_is_null_is_not_given(api, ns):
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": None, "initContainers": None}
    made = await api.create(PODS.format(ns=ns), {"metadata": {"name": "p", "finalizers": None}, "spec": spec})
    assert made.body["spec"]["terminationGracePeriodSeconds"] == 30
    assert "initContainers" not in made.body["spec"]
    answer = await api.call("POST", PODS.format(ns=ns), {"metadata": {"name": "q"}, "spec": {"containers": None}})
    assert [field for field, _ in causes(answer)] == ["spec.containers"]


async def test_a_field_of_another_type_is_a_bad_request(api, ns):
    container = {"name": "c", "image": "i"}
    for metadata, spec in (
        ({"finalizers": 5}, {"containers": [container]}),
        ({"ownerReferences": 5}, {"containers": [container]}),
        ({}, {"containers": 5}),
        ({}, {"containers": [container], "terminationGracePeriodSeconds": "soon"}),
        ({}, {"containers": [container], "volumes": [{"name": 5}]}),
    ):
        answer = await api.call("POST", PODS.format(ns=ns), {"metadata": {"name": "p", **metadata}, "spec": spec})
        assert (answer.status, answer.body["reason"]) == (400, "BadRequest"), answer.body
