"""Each value does what its description says."""

from __future__ import annotations

import json

import pytest

from tests.helm.cases import EVERYTHING, PEER
from tests.helm.conftest import API, CHART, Helm, kinds, load, only, pod_template
from tests.unit.kube_calls import granted

KEEP = {"helm.sh/resource-policy": "keep"}


def container(documents: list[dict]) -> dict:
    return pod_template(documents)["spec"]["containers"][0]


def variable(documents: list[dict], name: str) -> dict | None:
    return next((entry for entry in container(documents)["env"] if entry["name"] == name), None)


def places(documents: list[dict], kind: str, name: str = "") -> list[str]:
    """Where objects of a kind are."""
    return sorted(
        doc["metadata"]["namespace"]
        for doc in documents
        if doc["kind"] == kind and name in ("", doc["metadata"]["name"])
    )


def test_by_default_nothing_but_the_definitions_is_cluster_scoped(helm: Helm):
    documents = helm.template()
    assert kinds(documents) == {
        "CustomResourceDefinition", "Deployment", "PodDisruptionBudget", "Role", "RoleBinding", "Service", "ServiceAccount",
    }  # fmt: skip
    assert {doc["metadata"]["namespace"] for doc in documents if "namespace" in doc["metadata"]} == {"kafka"}
    assert len(documents) == len([doc for doc in documents if doc["kind"] == "CustomResourceDefinition"]) + 11


def test_there_is_a_standby_also_while_replicas_are_replaced(helm: Helm):
    spec = only(helm.template(), "Deployment")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    [spread] = pod_template(helm.template())["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert only(helm.template({"replicas": 5}), "Deployment")["spec"]["replicas"] == 5


def test_selectors_find_the_operator_and_no_broker(helm: Helm):
    from kafkalite_core.resources.naming import broker_labels

    documents = helm.template({"metrics": {"serviceMonitor": {"enabled": True}}})
    labels = pod_template(documents)["metadata"]["labels"]
    selectors = [
        only(documents, "Deployment")["spec"]["selector"]["matchLabels"],
        only(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        only(documents, "Service")["spec"]["selector"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= broker_labels("kafkalite", 0).items()
    monitor = only(documents, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= only(documents, "Service")["metadata"]["labels"].items()


def test_a_selector_never_changes_with_the_version(helm: Helm):
    spec = only(helm.template(), "Deployment")["spec"]
    assert set(spec["selector"]["matchLabels"]) == {f"app.kubernetes.io/{n}" for n in ("name", "instance", "component")}


@pytest.mark.parametrize(
    ("values", "watched", "brokers"),
    [
        ({}, None, ["kafka"]),
        ({"watchNamespaces": ["a", "b", "kafka"]}, "a,b,kafka", ["a", "b", "kafka"]),
        ({"watchNamespaces": ["a", "b"], "brokers": {"namespaces": ["b"]}}, "a,b", ["b"]),
        ({"watchAllNamespaces": True}, "", ["kafka"]),
        ({"watchAllNamespaces": True, "brokers": {"namespaces": ["a", "b"]}}, "", ["a", "b"]),
    ],
)
def test_what_is_watched_has_its_permissions(helm: Helm, values: dict, watched: str | None, brokers: list[str]):
    documents = helm.template(values)
    entry = variable(documents, "KAFKALITE_WATCH_NAMESPACES")
    if watched is None:
        assert entry["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    else:
        assert entry["value"] == watched
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert places(documents, kind, "kafkalite-broker") == brokers
    assert places(documents, "Role", "release-kafkalite-operator-lease") == ["kafka"]
    if values.get("watchAllNamespaces"):
        assert places(documents, "Role", "release-kafkalite-operator") == brokers
        role, binding = only(documents, "ClusterRole"), only(documents, "ClusterRoleBinding")
        assert binding["roleRef"]["name"] == role["metadata"]["name"] == "kafka-release-kafkalite-operator"
    else:
        assert places(documents, "Role", "release-kafkalite-operator") == (watched or "kafka").split(",")
        assert kinds(documents) & {"ClusterRole", "ClusterRoleBinding"} == set()


@pytest.mark.parametrize(
    ("values", "elsewhere"),
    [
        ({"watchAllNamespaces": True, "brokers": {"namespaces": ["a", "b"]}}, None),
        ({"watchNamespaces": ["a", "b", "c"], "brokers": {"namespaces": ["a", "b"]}}, "c"),
    ],
)
def test_where_no_brokers_run_the_operator_writes_only_custom_resources_and_events(
    helm: Helm, values: dict, elsewhere: str | None
):
    documents = helm.template(values)
    [widest] = [
        doc
        for doc in documents
        if doc["kind"] == ("Role" if elsewhere else "ClusterRole") and doc["metadata"].get("namespace") == elsewhere
    ]
    others = {each for each in granted(widest) if each[0] != "kafkalite.io"}
    assert others == {("", "pods", "list"), ("", "pods", "watch"), ("", "events", "create"), ("", "events", "patch")}
    for place in ("a", "b"):
        [role] = [
            doc
            for doc in documents
            if (doc["kind"], doc["metadata"].get("namespace"), doc["metadata"]["name"])
            == ("Role", place, "release-kafkalite-operator")
        ]
        assert granted(role) >= {("apps", "statefulsets", "create"), ("", "pods", "delete")}


def test_every_binding_leads_to_a_role_and_an_account_that_exist(helm: Helm):
    for values in ({}, {"watchNamespaces": ["a", "b"]}, {"watchAllNamespaces": True}):
        documents = helm.template(values)
        known = {(doc["kind"], doc["metadata"].get("namespace"), doc["metadata"]["name"]) for doc in documents}
        bindings = [doc for doc in documents if doc["kind"].endswith("Binding")]
        assert bindings
        for binding in bindings:
            role = binding["roleRef"]
            assert (role["kind"], binding["metadata"].get("namespace"), role["name"]) in known
            [subject] = binding["subjects"]
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in known
        assert ("ServiceAccount", "kafka", pod_template(documents)["spec"]["serviceAccountName"]) in known


def test_policies_of_admission_are_named_after_their_release_and_bound_to_its_brokers(helm: Helm):
    assert not any("Admission" in doc["kind"] for doc in helm.template())
    documents = helm.template({"brokers": {"admissionPolicy": {"enabled": True}}, "watchNamespaces": ["a", "b"]})
    bindings = [doc for doc in documents if doc["kind"] == "ValidatingAdmissionPolicyBinding"]
    policies = [doc for doc in documents if doc["kind"] == "ValidatingAdmissionPolicy"]
    names = {"kafka-release-kafkalite-broker-clusters", "kafka-release-kafkalite-broker-leases"}
    assert {doc["metadata"]["name"] for doc in policies} == {doc["spec"]["policyName"] for doc in bindings} == names
    for doc in bindings:
        [place] = doc["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert place == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert all(doc["metadata"]["annotations"] == KEEP for doc in [*bindings, *policies])


def test_kubernetes_before_validation_ratcheting_is_refused(helm: Helm):
    """There a status could not be written where the spec of an older object breaks a rule that came later."""
    assert "chart requires kubeVersion: >=1.30.0-0" in helm.refused({}, "--kube-version=1.29.15")
    assert helm.template({}, "--kube-version=1.30.0-gke.1")
    policies = helm.template({"brokers": {"admissionPolicy": {"enabled": True}}}, "--kube-version=1.30")
    assert "ValidatingAdmissionPolicy" in {doc["kind"] for doc in policies}


def test_the_token_is_mounted_into_the_operator_alone(helm: Helm):
    documents = helm.template()
    assert only(documents, "ServiceAccount", "release-kafkalite-operator")["automountServiceAccountToken"] is False
    assert pod_template(documents)["spec"]["automountServiceAccountToken"] is True
    assert "automountServiceAccountToken" not in only(documents, "ServiceAccount", "kafkalite-broker"), (
        "brokers need it"
    )


def test_an_account_of_somebody_else(helm: Helm):
    documents = helm.template({"serviceAccount": {"create": False, "name": "mine"}})
    assert [doc["metadata"]["name"] for doc in documents if doc["kind"] == "ServiceAccount"] == ["kafkalite-broker"]
    assert pod_template(documents)["spec"]["serviceAccountName"] == "mine"
    assert only(documents, "RoleBinding", "release-kafkalite-operator")["subjects"][0]["name"] == "mine"
    said = helm.refused({"serviceAccount": {"create": False}})
    assert "serviceAccount.name is needed when serviceAccount.create is false" in said


def test_without_rbac_there_are_no_roles(helm: Helm):
    documents = helm.template({"rbac": {"create": False}, "brokers": {"serviceAccount": {"create": False}}})
    assert kinds(documents) & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} == set()
    assert [doc["metadata"]["name"] for doc in documents if doc["kind"] == "ServiceAccount"] == [
        "release-kafkalite-operator"
    ]


def test_aggregated_roles_reach_view_edit_and_admin(helm: Helm):
    documents = helm.template({"rbac": {"aggregateClusterRoles": True}})
    roles = {doc["metadata"]["name"]: doc for doc in documents if doc["kind"] == "ClusterRole"}
    assert roles.keys() == {"kafka-release-kafkalite-view", "kafka-release-kafkalite-edit"}
    view, edit = roles["kafka-release-kafkalite-view"], roles["kafka-release-kafkalite-edit"]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    (of_brokers,) = (rule for rule in edit["rules"] if "kafkalitebrokers" in rule["resources"])
    assert of_brokers["verbs"] == ["update", "patch"], "cordon, hold, replace; but nobody makes or deletes one"


def test_names(helm: Helm):
    def name(values: dict, release: str) -> str:
        text = helm.run(
            "template", release, str(CHART), "--show-only=templates/operator-deployment.yaml", values=values
        )
        return next(line.split()[1] for line in text.splitlines() if line.startswith("  name:"))

    assert name({}, "kafkalite") == "kafkalite-operator"
    assert name({}, "prod") == "prod-kafkalite-operator"
    assert name({"nameOverride": "log"}, "prod") == "prod-log-operator"
    assert name({"fullnameOverride": "log"}, "prod") == "log-operator"
    assert len(name({}, "r" * 53)) <= 63, "the longest name that helm gives to a release"


@pytest.mark.parametrize("release", ["r" * 49 + "-log", "r" * 49 + ".log"])
def test_a_name_that_is_cut_ends_in_a_letter_or_digit(helm: Helm, release: str):
    words = [
        "template",
        release,
        str(CHART),
        "--namespace=kafka",
        "--set=nameOverride=log,metrics.service.enabled=false",
    ]
    documents = load(helm.run(*words))
    assert only(documents, "Deployment")["metadata"]["name"] == "r" * 49 + "-operator"


def test_a_release_whose_name_no_service_may_have_is_told_what_to_set(helm: Helm):
    for release in ("2024", "a.b"):
        words = ["template", release, str(CHART), "--namespace=kafka"]
        assert "set fullnameOverride" in helm.run(*words, fails=True)
        helm.run(*words, "--set=fullnameOverride=mine")


def test_names_that_look_like_numbers_stay_names(helm: Helm):
    values = {
        "watchNamespaces": ["2024", "1e3"],
        "imagePullSecrets": ["007"],
        "priorityClassName": "10",
        "serviceAccount": {"name": "0x10"},
        "topics": {"2024": {"partitions": 2}},
        "networkPolicy": {"enabled": True, "metricsFrom": [PEER]},
    }
    words = ["template", "2024", str(CHART), "--namespace=1e3", "--set-string=fullnameOverride=true", API]
    documents = load(helm.run(*words, values=values))
    assert only(documents, "KafkaLiteTopic")["metadata"]["name"] == "2024"

    def strange(value: object, path: str = "") -> list[str]:
        if isinstance(value, dict):
            return [each for name, child in value.items() for each in strange(child, f"{path}.{name}")]
        if isinstance(value, list):
            return [each for child in value for each in strange(child, path)]
        names = (".name", ".namespace", "Name", ".app.kubernetes.io/instance")
        return [path] if path.endswith(names) and not isinstance(value, str) else []

    mine = [doc for doc in documents if doc["kind"] != "CustomResourceDefinition"]
    assert [f"{doc['kind']}{path}" for doc in mine for path in strange(doc)] == []


def test_images(helm: Helm):
    documents = helm.template()
    assert container(documents)["image"] == "kafkalite-operator:0.1.0"
    assert variable(documents, "KAFKALITE_BROKER_IMAGE")["value"] == "kafkalite-broker:0.1.0"
    digest = "sha256:" + "0" * 64
    documents = helm.template(
        {"image": {"repository": "r:5000/o", "tag": "1", "digest": digest}, "brokers": {"image": {"tag": "2"}}}
    )
    assert container(documents)["image"] == f"r:5000/o@{digest}"
    assert variable(documents, "KAFKALITE_BROKER_IMAGE")["value"] == "kafkalite-broker:2"


def test_what_a_pod_may_be_told(helm: Helm):
    documents = helm.template(EVERYTHING, API)
    template = pod_template(documents)
    for name in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"):
        assert template["spec"][name] == EVERYTHING[name]
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert template["metadata"]["labels"]["colour"] == "blue"
    assert template["metadata"]["annotations"]["a/b"] == "true"
    assert all(entry in container(documents)["env"] for entry in EVERYTHING["extraEnv"])
    assert all(
        doc["metadata"]["labels"]["team"] == "data" for doc in documents if doc["kind"] != "CustomResourceDefinition"
    )
    assert only(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    for account in [doc for doc in documents if doc["kind"] == "ServiceAccount"]:
        assert account["metadata"]["annotations"]["a/b"] == "c"
    assert variable(documents, "KAFKALITE_LOG_LEVEL")["value"] == "debug"
    assert variable(documents, "KAFKALITE_LOG_FORMAT")["value"] == "text"


def test_brokers_pull_with_the_same_secrets(helm: Helm):
    documents = helm.template({"imagePullSecrets": ["registry"]})
    assert only(documents, "ServiceAccount", "kafkalite-broker")["imagePullSecrets"] == [{"name": "registry"}]


def test_the_budget_can_be_left_out(helm: Helm):
    assert "PodDisruptionBudget" not in kinds(helm.template({"podDisruptionBudget": {"enabled": False}}))


def test_a_changed_probe_keeps_the_rest(helm: Helm):
    probe = container(helm.template({"livenessProbe": {"periodSeconds": 20}}))["livenessProbe"]
    assert probe == {
        "httpGet": {"path": "/healthz", "port": "metrics"},
        "periodSeconds": 20,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
    }


def test_a_security_context_can_lose_its_user(helm: Helm):
    spec = pod_template(helm.template({"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}))["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


# --- custom resources ------------------------------------------------------------------------------------------------


def test_definitions_are_kept_and_can_be_left_out(helm: Helm):
    found = [doc for doc in helm.template() if doc["kind"] == "CustomResourceDefinition"]
    assert len(found) == 3
    assert all(doc["metadata"]["annotations"].items() >= KEEP.items() for doc in found)
    assert "CustomResourceDefinition" not in kinds(helm.template({"crds": {"enabled": False}}))


def test_the_default_cluster(helm: Helm):
    spec = json.loads(
        variable(helm.template({"defaultCluster": {"spec": {"replicas": 5}}}), "KAFKALITE_DEFAULT_CLUSTER")["value"]
    )
    assert (spec["replicas"], spec["storage"]) == (5, {"size": "10Gi"})
    documents = helm.template({"defaultCluster": {"enabled": False}})
    assert variable(documents, "KAFKALITE_DEFAULT_CLUSTER") is None


def test_the_kubelet_fills_nothing_into_the_default_cluster(helm: Helm):
    """It makes one $ of two, and the rest of $(NAME) it leaves alone then."""
    env = [{"name": "broker", "command": ["sh", "-c", "echo $(POD_NAME) $HOME $$"]}]
    values = {"defaultCluster": {"spec": {"template": {"pod": {"spec": {"initContainers": env}}}}}}
    text = variable(helm.template(values), "KAFKALITE_DEFAULT_CLUSTER")["value"]
    assert "$(" not in text.replace("$$", "")
    spec = json.loads(text.replace("$$", "$"))
    assert spec["template"]["pod"]["spec"]["initContainers"] == env


def test_the_pod_of_helm_test_runs_where_the_operator_may(helm: Helm):
    told = {name: EVERYTHING[name] for name in ("nodeSelector", "tolerations", "priorityClassName")}
    documents = load(helm.run("template", "release", str(CHART), "--namespace=kafka", values=told))
    pod = only(documents, "Pod")["spec"]
    assert {name: pod[name] for name in told} == told


@pytest.mark.parametrize("name", ["kafkalite", "main"])
def test_a_topic_names_its_cluster_only_where_that_is_not_the_one_it_has_without(helm: Helm, name: str):
    """clusterRef can neither be added nor removed, and whether the chart makes the cluster must not matter to a topic."""
    values = {"cluster": {"create": True, "name": name}, "topics": {"a": {"partitions": 2}}}
    topic = only(helm.template(values, API), "KafkaLiteTopic")
    assert topic["spec"].get("clusterRef") == ({"name": "main"} if name == "main" else None)
    assert "clusterRef" not in only(helm.template({"topics": {"a": {}}}, API), "KafkaLiteTopic")["spec"]


def test_a_cluster_and_topics_of_the_release(helm: Helm):
    values = {
        "cluster": {"create": True, "name": "main"},
        "topics": {"a": {"partitions": 2}, "b": {"clusterRef": {"name": "c"}}},
    }
    documents = helm.template(values, API)
    cluster = only(documents, "KafkaLiteCluster")
    topics = {doc["metadata"]["name"]: doc for doc in documents if doc["kind"] == "KafkaLiteTopic"}
    assert (cluster["metadata"]["name"], cluster["spec"]["replicas"]) == ("main", 3)
    assert topics["a"]["spec"] == {"partitions": 2, "clusterRef": {"name": "main"}}
    assert topics["b"]["spec"] == {"clusterRef": {"name": "c"}}
    for doc in (cluster, *topics.values()):
        assert doc["metadata"]["namespace"] == "kafka"
        assert doc["metadata"]["annotations"] == KEEP, "absence never deletes data"


def test_what_brokers_need_outlives_the_release(helm: Helm):
    """Brokers go on without the operator; a new account of the same name would not be theirs."""
    documents = helm.template({"brokers": {"serviceAccount": {"annotations": {"a": "b"}}}})
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert only(documents, kind, "kafkalite-broker")["metadata"]["annotations"].items() >= KEEP.items()
    policies = helm.template({"networkPolicy": {"enabled": True}, "watchNamespaces": ["a", "b"]})
    kept = [doc for doc in policies if doc["kind"] == "NetworkPolicy" and doc["metadata"].get("annotations") == KEEP]
    assert places(kept, "NetworkPolicy") == ["a", "b"], "without it brokers would be open to everybody"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"cluster": {"create": True}}, "install the chart without them first, then run helm upgrade with them"),
        ({"topics": {"a": {}}}, "install the chart without them first, then run helm upgrade with them"),
        ({"watchNamespaces": ["a"], "topics": {"a": {}}}, "is not watched: add it to watchNamespaces"),
        (
            {"watchAllNamespaces": True, "brokers": {"namespaces": ["a"]}, "cluster": {"create": True}},
            "where no brokers may run: add it to brokers.namespaces",
        ),
        (
            {"watchNamespaces": ["a", "default"], "brokers": {"namespaces": ["a"]}, "topics": {"t": {}}},
            "where no brokers may run: add it to brokers.namespaces",
        ),
        ({"watchNamespaces": ["a"], "watchAllNamespaces": True}, "exclude each other"),
        ({"watchNamespaces": ["a"], "brokers": {"namespaces": ["b"]}}, "b is not watched"),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "needs metrics.service.enabled",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused_with_the_way_out(helm: Helm, values: dict, sentence: str):
    assert sentence in helm.refused(values)


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_the_service_leads_to_the_port_of_the_pod(helm: Helm):
    documents = helm.template({"metrics": {"port": 9999}})
    [port] = only(documents, "Service")["spec"]["ports"]
    assert port == {"name": "metrics", "port": 9999, "targetPort": "metrics"}
    assert container(documents)["ports"] == [{"name": "metrics", "containerPort": 9999}]
    assert variable(documents, "KAFKALITE_METRICS_PORT")["value"] == "9999"
    assert "Service" not in kinds(helm.template({"metrics": {"service": {"enabled": False}}}))


def test_monitors_come_when_asked_for(helm: Helm):
    assert kinds(helm.template()) & {"ServiceMonitor", "PodMonitor"} == set()
    values = {"enabled": True, "interval": "30s", "labels": {"release": "p"}}
    documents = helm.template(
        {"metrics": {"serviceMonitor": values, "podMonitor": values}, "watchNamespaces": ["a", "b"]}
    )
    service = only(documents, "ServiceMonitor")
    assert service["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    assert places(documents, "PodMonitor") == ["a", "b"]
    assert all(doc["metadata"]["labels"]["release"] == "p" for doc in documents if doc["kind"].endswith("Monitor"))


def test_the_pod_monitor_names_the_brokers_port_and_labels(helm: Helm):
    from kafkalite_core.resources.manifests import cluster_settings
    from kafkalite_core.resources.statefulset import stateful_set

    spec = only(helm.template({"metrics": {"podMonitor": {"enabled": True}}}), "PodMonitor")["spec"]
    cluster = {"metadata": {"name": "c", "namespace": "kafka", "uid": "u", "resourceVersion": "1"}, "spec": {}}
    pod = stateful_set(cluster_settings(cluster), 1)["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert set(spec["podTargetLabels"]) <= pod["metadata"]["labels"].keys()
    assert spec["podMetricsEndpoints"][0]["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
