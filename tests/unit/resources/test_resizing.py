"""CPU and memory of containers: what a template asks for, what a revision says of it, and the patch."""

import json

import jsonpatch
import pytest

from kafkalite_core.model.pods import Amount
from kafkalite_core.resources.manifests import cluster_settings
from kafkalite_core.resources.resizing import amounts, refused_by_admission, resize_patch, without_values
from kafkalite_core.resources.rolling import parse_pod
from kafkalite_core.resources.statefulset import revision, wanted_amounts


def settings(resources=None, **pod):
    containers = [{"name": "broker", **({} if resources is None else {"resources": resources})}]
    spec = {"template": {"pod": {"spec": {"containers": containers, **pod}}}}
    return cluster_settings({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": spec})


def parts(resources=None, **pod):
    return revision(settings(resources, **pod)).split(".")


GIVEN = {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def test_other_values_change_the_last_part_of_a_revision_alone():
    before, after = parts(GIVEN), parts({**GIVEN, "limits": {"cpu": "1", "memory": "2Gi"}})
    assert before[:2] == after[:2]
    assert len(before) == 3
    assert before[2] != after[2]


@pytest.mark.parametrize(
    "other",
    [
        {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}},
        {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        {**GIVEN, "requests": {"cpu": "250m", "ephemeral-storage": "1Gi"}},
        None,
    ],
)
def test_what_is_added_or_taken_away_or_no_cpu_or_memory_changes_the_template(other):
    assert parts(GIVEN)[0] != parts(other)[0]


def test_who_says_nothing_of_resources_has_a_revision_of_two_parts():
    assert len(parts()) == 2
    assert len(parts({"limits": {"hugepages-2Mi": "2Mi"}})) == 2
    assert wanted_amounts(settings()) == ()


def test_a_request_that_is_not_there_is_the_limit():
    assert wanted_amounts(settings(GIVEN)) == (
        Amount("broker", "requests", "cpu", "250m"),
        Amount("broker", "requests", "memory", "1Gi"),
        Amount("broker", "limits", "cpu", "1"),
        Amount("broker", "limits", "memory", "1Gi"),
    )


def test_numbers_are_quantities_too_and_nonsense_is_nothing():
    assert amounts({"containers": [{"name": "b", "resources": {"limits": {"cpu": 2}}}]})[0].value == "2"
    for nonsense in (None, "x", [1, {"resources": "much"}], [{"name": "b", "resources": {"limits": []}}]):
        assert amounts({"containers": nonsense}) == ()


def test_blank_values_leave_the_template_as_it_was():
    template = {"spec": {"containers": [{"name": "broker", "resources": GIVEN}]}}
    before = json.dumps(template)
    assert without_values(template)["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "", "memory": ""}
    assert json.dumps(template) == before


def pod(*names, uid="u1"):
    containers = [{"name": n, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}} for n in names]
    return {"metadata": {"name": "c-0", "uid": uid}, "spec": {"containers": containers}}


def test_the_patch_reaches_the_container_by_its_name():
    found = pod("sidecar", "broker")
    known = parse_pod(found)
    assert known.containers == ("sidecar", "broker")
    changed = jsonpatch.apply_patch(
        found, resize_patch("u1", known.containers, [Amount("broker", "limits", "cpu", "2")])
    )
    assert parse_pod(changed).amounts == (
        Amount("sidecar", "requests", "cpu", "1"),
        Amount("sidecar", "limits", "cpu", "1"),
        Amount("broker", "requests", "cpu", "1"),
        Amount("broker", "limits", "cpu", "2"),
    )


@pytest.mark.parametrize("other", [pod("sidecar", "broker", uid="u2"), pod("broker", "sidecar")])
def test_the_patch_fails_on_another_pod_and_on_other_containers(other):
    operations = resize_patch("u1", ("sidecar", "broker"), [Amount("broker", "limits", "cpu", "2")])
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(other, operations)


def test_a_container_that_is_not_there_is_left_out():
    assert resize_patch("u1", ("broker",), [Amount("gone", "limits", "cpu", "2")]) == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"}
    ]


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ({"type": "PodResizePending", "status": "True", "reason": "Deferred"}, "Deferred"),
        ({"type": "PodResizePending", "status": "True", "reason": "Infeasible"}, "Infeasible"),
        ({"type": "PodResizeInProgress", "status": "True"}, "InProgress"),
        ({"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "in use"}, "Error"),
        ({"type": "PodResizePending", "status": "False", "reason": "Deferred"}, ""),
        ({"type": "Ready", "status": "True"}, ""),
    ],
)
def test_a_pod_tells_of_a_resize_that_is_not_over(condition, state):
    assert parse_pod({**pod("broker"), "status": {"conditions": [condition]}}).resize == state


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (403, 'pods "x" is forbidden: exceeded quota: q, requested: limits.memory=2Gi', True),
        (403, 'pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi', True),
        (403, 'admission webhook "w" denied the request: too big', True),
        (422, "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too big", True),
        (403, 'pods "x" is forbidden: User "u" cannot patch resource "pods/resize" in API group ""', False),
        (422, 'Pod "x" is invalid: spec: Forbidden: Pod QOS Class may not change as a result of resizing', False),
        (501, "not implemented", False),
    ],
)
def test_what_would_refuse_the_next_pod_as_well(status, message, expected):
    assert refused_by_admission(status, message) is expected
