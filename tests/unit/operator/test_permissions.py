"""The Roles of the operator permit what its code does, and nothing that it does not do."""

from __future__ import annotations

from pathlib import Path

import yaml

from kafkalite_core.resources.manifests import cluster_settings, infrastructure
from kafkalite_core.resources.naming import OPERATOR_LEASE
from kafkalite_operator.handlers import build_registry
from kafkalite_runtime.kube.client import KubeClient
from tests.unit.kube_calls import VERBS, Calls, Permission, granted

ROOT = Path(__file__).resolve().parents[3]
OPERATOR = ROOT / "operator" / "kafkalite_operator"
MODULES = tuple(sorted(OPERATOR.glob("*.py")))
EVENTS = ROOT / "runtime" / "kafkalite_runtime" / "kube" / "events.py"


def roles() -> dict[str, dict]:
    """The operator's Roles, as `make chart` wrote them down."""
    text = (ROOT / "helm" / "manifests" / "operator.yaml").read_text()
    found = [doc for doc in yaml.safe_load_all(text) if doc["kind"] == "Role"]
    return {doc["metadata"]["name"]: doc for doc in found if doc["metadata"]["name"] != "kafkalite-broker"}


def roles_for_nodes() -> dict[str, dict]:
    """What is given besides to those who want racks, or addresses of nodes: by kind."""
    text = (ROOT / "helm" / "manifests" / "nodes" / "rbac.yaml").read_text()
    return {doc["kind"]: doc for doc in yaml.safe_load_all(text) if doc["kind"] in {"Role", "ClusterRole"}}


def watched_by_kopf() -> set[Permission]:
    registry = build_registry(lambda *_: None)
    selectors = [handler.selector for handler in registry._watching.get_all_handlers()]
    assert len(selectors) == 4
    found = {((s.group or "").removeprefix("v1"), s.plural or s.any_name) for s in selectors}
    return {(group, plural, verb) for group, plural in found for verb in ("list", "watch")}


def needed_for_owner_references() -> set[Permission]:
    """With the admission plugin OwnerReferencesPermissionEnforcement, as OpenShift has it."""
    metadata = {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    made = infrastructure(cluster_settings({"metadata": metadata, "spec": {}}), [0])
    owners = [owner for obj in made for owner in obj["metadata"]["ownerReferences"]]
    assert {owner["kind"] for owner in owners if owner["blockOwnerDeletion"]} == {"KafkaLiteCluster"}
    return {("kafkalite.io", "kafkaliteclusters/finalizers", "update")}


def test_no_method_of_the_client_is_overlooked():
    assert {name for name in vars(KubeClient) if not name.startswith("_")} - VERBS.keys() == {
        "from_environment",
        "close",
    }


def test_the_roles_are_what_the_code_needs():
    calls = Calls([*MODULES, EVENTS])
    assert roles().keys() == {"kafkalite-operator", "kafkalite-operator-lease"}
    elector = OPERATOR / "elector.py"
    assert granted(roles()["kafkalite-operator-lease"]) == calls.of(elector)
    apart = {elector, OPERATOR / "nodes.py", OPERATOR / "racks.py"}
    others = calls.of(EVENTS, *(path for path in MODULES if path not in apart))
    assert granted(roles()["kafkalite-operator"]) == others | watched_by_kopf() | needed_for_owner_references()


def test_nodes_are_read_and_pods_annotated_only_by_those_who_want_it():
    calls = Calls(MODULES)
    assert granted(roles_for_nodes()["ClusterRole"]) == calls.of(OPERATOR / "nodes.py") == {("", "nodes", "get")}
    assert granted(roles_for_nodes()["Role"]) == calls.of(OPERATOR / "racks.py") == {("", "pods", "patch")}
    usual = granted(roles()["kafkalite-operator"])
    assert not {("", "nodes", "get"), ("", "pods", "patch")} & usual


def test_the_lease_is_the_only_one_that_it_may_write():
    for rule in roles()["kafkalite-operator-lease"]["rules"]:
        # Nobody can be permitted to create an object of one name: it has none yet when that is asked.
        assert rule["verbs"] == ["create"] or rule["resourceNames"] == [OPERATOR_LEASE]


def test_it_cannot_read_secrets_run_commands_or_give_permissions_away():
    groups = {(group, resource) for role in roles().values() for group, resource, _ in granted(role)}
    assert ("", "secrets") not in groups
    reaches = {resource for _, resource in groups if resource.startswith("pods/") or "*" in resource}
    assert reaches == {"pods/resize"}
    assert "rbac.authorization.k8s.io" not in {group for group, _ in groups}
    verbs = {verb for role in roles().values() for _, _, verb in granted(role)}
    assert verbs <= {"get", "list", "watch", "create", "update", "patch", "delete"}
    deleted = {resource for role in roles().values() for _, resource, verb in granted(role) if verb == "delete"}
    assert deleted == {"kafkalitebrokers", "persistentvolumeclaims", "pods", "services", "statefulsets"}


def test_a_call_whose_kind_cannot_be_told_is_an_error(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text("async def f(self, name):\n    await self._client.delete(self.kinds()[name], 'n', name)\n")
    try:
        Calls([module]).of(module)
    except AssertionError:
        return
    raise AssertionError("the call was overlooked")
