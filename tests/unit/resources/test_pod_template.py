"""`spec.template.pod`: what passes the CRD and no pod can be made of is refused by name; null reads as absent."""

import pytest

from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.pod_template import AMOUNT_LENGTH_MAX, DEPTH_MAX
from kafkalite_core.resources.statefulset import merge, revision, stateful_set, wanted_amounts
from tests.unit.resources.builders import cluster_object


def settings_of(pod):
    return cluster_settings(cluster_object(spec={"template": {"pod": pod}}))


def pod_of(pod):
    return stateful_set(settings_of(pod), 1)["spec"]["template"]


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


BROKER = {"name": "broker"}


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"spec": "x"}, r"pod\.spec is not an object: 'x'"),
        ({"metadata": []}, r"pod\.metadata is not an object"),
        ({"metadata": {"labels": "x"}}, r"pod\.metadata\.labels is not an object"),
        ({"metadata": {"labels": {"a": 1}}}, r"pod\.metadata\.labels\.a is not a string: 1"),
        ({"metadata": {"annotations": ["x"]}}, r"pod\.metadata\.annotations is not an object"),
        ({"spec": {"containers": {}}}, r"pod\.spec\.containers is not a list"),
        ({"spec": {"containers": "broker"}}, r"pod\.spec\.containers is not a list"),
        ({"spec": {"containers": [None]}}, r"pod\.spec\.containers\[0\] is not an object"),
        ({"spec": {"containers": [BROKER, {"name": ["a"]}]}}, r"containers\[1\]\.name is not a string: \['a'\]"),
        ({"spec": {"containers": [{"image": "x"}]}}, r"containers\[0\]\.name is missing"),
        ({"spec": {"containers": [{**BROKER, "env": [{"name": {}}]}]}}, r"containers\[0\]\.env\[0\]\.name is not a"),
        (
            {"spec": {"containers": [{**BROKER, "ports": [{"name": []}]}]}},
            r"containers\[0\]\.ports\[0\]\.name is not a",
        ),
        ({"spec": {"containers": [{**BROKER, "volumeMounts": [3]}]}}, r"volumeMounts\[0\] is not an object"),
        ({"spec": {"containers": [{**BROKER, "resources": 1}]}}, r"containers\[0\]\.resources is not an object"),
        ({"spec": {"containers": [{**BROKER, "resources": {"limits": []}}]}}, r"resources\.limits is not an object"),
        (
            {"spec": {"containers": [{**BROKER, "resources": {"limits": {"cpu": True}}}]}},
            r"resources\.limits\.cpu is not a quantity, such as 500m: True",
        ),
        (
            {
                "spec": {
                    "containers": [{**BROKER, "resources": {"requests": {"memory": "9" * (AMOUNT_LENGTH_MAX + 1)}}}]
                }
            },
            r"resources\.requests\.memory has more than 64 characters",
        ),
        (
            {"spec": {"containers": [{**BROKER, "resources": {"requests": {"memory": 10**5000}}}]}},
            r"resources\.requests\.memory has more than 64 characters",
        ),
        ({"spec": {"volumes": [{"name": 5}]}}, r"pod\.spec\.volumes\[0\]\.name is not a string"),
        ({"spec": {"x": nested(DEPTH_MAX)}}, r"spec\.template\.pod is nested deeper than 64 levels"),
    ],
)
def test_what_no_pod_can_be_made_of_is_refused_with_its_place(pod, said):
    with pytest.raises(ResourceError, match=said):
        settings_of(pod)


PLAIN = pod_of({})


@pytest.mark.parametrize(
    "pod",
    [
        {"spec": None},
        {"metadata": None, "spec": None},
        {"metadata": {"labels": None}},
        {"spec": {"containers": None, "volumes": None}},
        {"spec": {"containers": [{**BROKER, "env": None, "ports": None, "volumeMounts": None}]}},
    ],
)
def test_what_is_null_reads_as_absent(pod):
    """A `spec:` with everything below it commented out is common."""
    assert pod_of(pod) == PLAIN


def test_where_the_pods_can_do_without_null_takes_away():
    """As before: a user id of the platform's own choice is wanted by nulls."""
    security = {"runAsUser": None, "fsGroup": None}
    pod = pod_of({"metadata": {"annotations": None}, "spec": {"securityContext": security, "nodeSelector": None}})
    assert pod["spec"]["securityContext"]["runAsUser"] is None
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["nodeSelector"] is None


def test_amounts_that_are_null_are_none():
    limits = {"cpu": None, "memory": "1Gi", "example.com/gpu": None}
    settings = settings_of({"spec": {"containers": [{**BROKER, "resources": {"limits": limits, "requests": None}}]}})
    assert [(each.kind, each.resource, each.value) for each in wanted_amounts(settings)] == [
        ("requests", "memory", "1Gi"),
        ("limits", "memory", "1Gi"),
    ]


def test_the_revision_of_pods_stays_what_it_was():
    """A new operator must not restart brokers whose template was fine: whoever changes these restarts all brokers once, at the upgrade."""
    pod = {
        "metadata": {"labels": {"a": "b"}, "annotations": None},
        "spec": {
            "securityContext": {"runAsUser": None},
            "containers": [
                {
                    **BROKER,
                    "env": [{"name": "A", "value": "b"}],
                    "resources": {"limits": {"memory": "1Gi", "cpu": 0.5}},
                },
                {"name": "sidecar", "image": "x", "ports": [{"containerPort": 1}]},
            ],
            "volumes": [{"name": "more", "emptyDir": {}}],
        },
    }
    assert (revision(settings_of({})), revision(settings_of(pod))) == (REVISION_PLAIN, REVISION)


REVISION_PLAIN = "b19c032d66.8a783553df"
REVISION = "0d85144550.8a783553df.516c060ca4"


def test_lists_are_merged_by_names_that_are_texts():
    """Whatever else stands there: a merge raises nothing."""
    for strange in ([{"name": ["a"]}], [{"name": {}}], [{"name": None}], [None], "x", None, {}):
        assert merge({"a": [{"name": "b"}]}, {"a": strange}) == {"a": strange}


@pytest.mark.parametrize(("size", "text"), [(5, "5"), ("1Ti", "1Ti"), (None, "10Gi")])
def test_the_size_of_a_volume_is_a_text_or_a_whole_number(size, text):
    assert cluster_settings(cluster_object(spec={"storage": {"size": size}})).storage_size == text


@pytest.mark.parametrize("size", [True, 1.5, [], {}])
def test_another_size_is_refused_instead_of_passed_over(size):
    with pytest.raises(ResourceError, match=r"spec\.storage\.size is not a"):
        cluster_settings(cluster_object(spec={"storage": {"size": size}}))
