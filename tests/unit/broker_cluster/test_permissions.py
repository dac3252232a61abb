"""The Role of the brokers permits what their code does, and nothing that it does not do."""

import ast
from pathlib import Path

import yaml

from kafkalite_core.resources.manifests import DEFAULT_SERVICE_ACCOUNT
from kafkalite_runtime.kube import kinds

ROOT = Path(__file__).resolve().parents[3]
VERBS = {
    "get": {"get"},
    "list": {"list"},
    "create": {"create"},
    "replace": {"update"},
    "json_patch": {"patch"},
    "merge_patch": {"patch"},
    "delete": {"delete"},
    "_watch": {"list", "watch"},
}


def documents():
    """What the chart makes for brokers, as `make chart` wrote it down."""
    text = (ROOT / "helm" / "manifests" / "operator.yaml").read_text()
    found = [doc for doc in yaml.safe_load_all(text) if doc["metadata"]["name"] == DEFAULT_SERVICE_ACCOUNT]
    assert len(found) == 3
    return {doc["kind"]: doc for doc in found}


def calls():
    """Every (group, resource, verb) of a call whose first argument is a kind of the API."""
    found = set()
    for path in sorted((ROOT / "broker_image").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            first = node.args[0]
            kind = getattr(kinds, first.id, None) if isinstance(first, ast.Name) else None
            if not isinstance(kind, kinds.Kind) or node.func.attr not in VERBS:
                continue
            subresource = next((k.value.value for k in node.keywords if k.arg == "subresource"), "")
            resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
            found |= {(kind.group, resource, verb) for verb in VERBS[node.func.attr]}
    return found


def test_the_role_is_what_the_code_needs():
    permitted = {
        (group, resource, verb)
        for rule in documents()["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert permitted == calls()


def test_the_role_is_bound_to_the_account_that_the_pods_run_as():
    found = documents()
    assert found["ServiceAccount"]["metadata"]["name"] == DEFAULT_SERVICE_ACCOUNT
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    assert [subject["name"] for subject in found["RoleBinding"]["subjects"]] == [DEFAULT_SERVICE_ACCOUNT]
