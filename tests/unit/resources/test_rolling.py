"""`status.rolling`, pods and claims: JSON <-> model; what a pod is made of."""

from fractions import Fraction

import pytest

from kafkalite_core.controller.volumes import is_growing, smaller, to_grow, volumes_condition
from kafkalite_core.model.config import static_broker_config
from kafkalite_core.model.pods import Blocked, Rolling
from kafkalite_core.model.quantity import QuantityError, quantity
from kafkalite_core.model.topic import Condition
from kafkalite_core.model.volumes import Volume
from kafkalite_core.resources.brokers import parse_broker
from kafkalite_core.resources.claims import broker_of_claim, growth, parse_claim, templates_differ
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.fields import Fields
from kafkalite_core.resources.manifests import broker_config, cluster_settings
from kafkalite_core.resources.rolling import parse_pod, parse_rolling, render_rolling
from kafkalite_core.resources.statefulset import revision, stateful_set
from tests.unit.controller.builders import snapshot


def cluster(**spec):
    return cluster_settings({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": spec})


def test_the_status_is_read_as_it_was_written():
    rolling = Rolling(
        in_progress=True,
        pending=("c-broker-1", "c-broker-2"),
        restarting=("c-broker-0",),
        blocked_by=(Blocked("c-broker-1", "orders-0", "why"), Blocked("c-broker-2", "", "hold")),
    )
    assert parse_rolling(Fields({"rolling": render_rolling(rolling)}, "status")) == rolling
    assert parse_rolling(Fields({}, "status")) == Rolling()
    assert render_rolling(rolling)["blockedBy"][1] == {"pod": "c-broker-2", "reason": "hold"}


def test_what_a_user_sets_for_restarts_is_read():
    obj = {"metadata": {"name": "c", "uid": "u"}, "spec": {"rolling": {"maxUnavailable": 2}}}
    assert parse_cluster(obj).max_unavailable == 2
    assert parse_cluster({**obj, "spec": {}}).max_unavailable is None
    broker = {"metadata": {"name": "b"}, "spec": {"brokerId": 1, "hold": True}}
    assert parse_broker(broker).hold


# --- what pods are made of -------------------------------------------------------------------------------------------


def template_of(settings):
    return stateful_set(settings, 3)["spec"]["template"]


def test_pods_say_what_they_are_made_of():
    user = {"metadata": {"annotations": {"team": "a"}}}
    annotations = template_of(cluster(template={"pod": user}))["metadata"]["annotations"]
    assert annotations == {"team": "a", "kafkalite.io/revision": revision(cluster(template={"pod": user}))}


@pytest.mark.parametrize(
    "spec",
    [
        {"config": {"replica.lag.time.max.ms": "1000", "log.retention.ms": "5"}},
        {"config": {"no.such.key": "1", "log.retention.check.interval.ms": "many"}},
        {"config": {"log.retention.check.interval.ms": "300000"}},
        {"config": {"max.connections": "5000", "num.io.threads": "4", "producer.id.expiration.ms": "5"}},
        {
            "config": {
                "log.cleaner.threads": "2",
                "log.cleaner.backoff.ms": "5",
                "log.cleaner.dedupe.buffer.size": "9999999",
            }
        },
        {"replicas": 5},
        {"storage": {"size": "20Gi"}},
        {"rolling": {"maxUnavailable": 1}},
        {"failureDetection": {"leaseDurationSeconds": 9, "renewIntervalSeconds": 2}},
    ],
)
def test_what_brokers_follow_while_they_run_takes_no_restart(spec):
    assert revision(cluster(**spec)) == revision(cluster())


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"image": "other:1"}, 0),
        ({"template": {"pod": {"spec": {"nodeSelector": {"a": "b"}}}}}, 0),
        ({"rack": {"topologyKey": "zone"}}, 0),
        ({"config": {"log.retention.check.interval.ms": "4"}}, 1),
        ({"listeners": [{"name": "plain", "type": "internal", "port": 9092, "host": "x"}]}, 1),
    ],
)
def test_what_takes_a_restart_says_by_which_half_it_does(spec, part):
    old, new = revision(cluster()).split("."), revision(cluster(**spec)).split(".")
    assert [a != b for a, b in zip(old, new, strict=True)] == [i == part for i in range(2)]


def test_wrong_keys_never_reach_a_broker():
    config = {"num.io.threads": "many", "no.such.key": "1", "log.retention.check.interval.ms": "5000"}
    assert broker_config(cluster(config=config))["config"] == {"log.retention.check.interval.ms": "5000"}
    assert static_broker_config(config) == {"log.retention.check.interval.ms": "5000"}


# --- pods ------------------------------------------------------------------------------------------------------------


def pod(status=None, **metadata):
    return {"metadata": {"name": "c-broker-0", "uid": "p", **metadata}, "status": status or {}}


def waiting(reason, **more):
    return {"containerStatuses": [{"name": "broker", "state": {"waiting": {"reason": reason, "message": "m"}}, **more}]}


@pytest.mark.parametrize(
    ("status", "stuck"),
    [
        ({}, ""),
        ({"phase": "Pending"}, ""),
        (waiting("ContainerCreating"), ""),
        (waiting("ImagePullBackOff"), "ImagePullBackOff"),
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff"),
        ({"initContainerStatuses": waiting("ErrImagePull")["containerStatuses"]}, "ErrImagePull"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "Evicted"),
        ({"phase": "Failed"}, "Failed"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, ""),
        ({"containerStatuses": [{"name": "broker", "state": {"running": {}}}]}, ""),
    ],
)
def test_a_pod_that_cannot_run_is_told_from_one_that_starts(status, stuck):
    assert parse_pod(pod(status)).stuck == stuck


@pytest.mark.parametrize(
    ("said", "elsewhere"),
    [
        ("0/3 nodes are available: 3 Insufficient cpu.", False),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {x: y}, 2 node(s) had volume node affinity conflict",
            True,
        ),
        ("x" * 300 + "2 node(s) didn't match PersistentVolume's node affinity", True),
    ],
)
def test_a_volume_that_is_elsewhere(said, elsewhere):
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    assert parse_pod(pod({"conditions": [scheduled]})).volume_elsewhere is elsewhere


def test_whether_the_container_of_the_broker_runs():
    def of(name, **state):
        return parse_pod(pod({"containerStatuses": [{"name": name, "state": state}]})).running

    assert of("broker", running={"startedAt": "2026-01-01T00:00:00Z"})
    assert of("broker", running={})
    assert not of("sidecar", running={})
    assert not of("broker", waiting={"reason": "CrashLoopBackOff"})
    assert not of("broker", terminated={"exitCode": 0})
    assert not parse_pod(pod()).running


def test_a_crashing_container_is_described_by_its_exit():
    status = waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 64}})
    assert parse_pod(pod(status)).stuck_message == "exit code 64"


def test_a_pod():
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    found = parse_pod(
        pod(status, deletionTimestamp="now", annotations={"kafkalite.io/revision": "t.c"}), unready_since=5.0
    )
    assert (found.name, found.uid, found.revision, found.ready, found.deleting) == (
        "c-broker-0",
        "p",
        "t.c",
        True,
        True,
    )
    assert found.unready_since == 5.0


# --- volumes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gi", 10 * 2**30),
        ("1.5k", 1500),
        ("500M", 500 * 10**6),
        ("1e3", 1000),
        ("1E2", 100),
        ("1E", 10**18),
        ("1500m", Fraction(3, 2)),
        (".5Ki", 512),
        ("-1", -1),
        ("5e-1", Fraction(1, 2)),
        ("1e99", 10**99),
        ("9" * 32, 10**32 - 1),
    ],
)
def test_quantities(text, value):
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "Gi", "10 Gi", "ten", "1KiB", "0x10", "1e999999999", "1e-999999999", "1e100", "9" * 33, f"0.{'0' * 33}",
        f".{'1' * 5000}", "\N{ARABIC-INDIC DIGIT ONE}",
    ],
)  # fmt: skip
def test_what_is_no_quantity(text):
    with pytest.raises(QuantityError):
        quantity(text)


def volume(requested="10Gi", capacity=None, **more):
    return Volume(name="data-c-broker-0", uid="v", requested=requested, capacity=capacity or requested, **more)


def test_only_what_is_smaller_grows():
    assert to_grow([volume("10Gi"), volume("20Gi"), volume("10737418240")], "10Gi") == []
    assert to_grow([volume("10Gi")], "11Gi") == [volume("10Gi")]
    assert not smaller("ten", "11Gi")
    assert is_growing([volume("11Gi", "10Gi")], "11Gi")
    assert not is_growing([volume("12Gi")], "11Gi")


def said(*volumes, size="10Gi", conditions=()):
    return volumes_condition(snapshot(storage_size=size, volumes=volumes, conditions=conditions))


def test_the_condition_says_what_cannot_be_and_what_to_do():
    assert said(volume()) == ()
    (shrink,) = said(volume("20Gi"), size="10Gi")
    assert (shrink.status, shrink.reason) == ("False", "ShrinkNotSupported")
    assert shrink.message.endswith("data-c-broker-0 has 20Gi; set it back to 20Gi")
    (refused,) = said(volume(refused="only dynamically provisioned pvc can be resized"), size="20Gi")
    assert (refused.status, refused.reason) == ("False", "ExpansionRefused")
    assert "only dynamically provisioned" in refused.message
    assert "allowVolumeExpansion" in refused.message
    (growing,) = said(volume("20Gi", "10Gi", resizing="FileSystemResizePending"), size="20Gi")
    assert (growing.status, growing.reason) == ("False", "Growing")
    assert growing.message == "to 20Gi: data-c-broker-0 has 10Gi; FileSystemResizePending"
    before = Condition(type="VolumesSized", status="False", reason="Growing", message="")
    (over,) = said(volume("20Gi"), size="20Gi", conditions=(before,))
    assert (over.status, over.reason) == ("True", "Sized")


def test_a_claim_is_read_and_asked_for_more():
    conditions = [{"type": "Resizing", "status": "True"}, {"type": "Other", "status": "True"}]
    obj = {
        "metadata": {"name": "data-c-broker-12", "uid": "v"},
        "spec": {"resources": {"requests": {"storage": "10Gi"}}},
        "status": {"capacity": {"storage": "8Gi"}, "conditions": conditions},
    }
    found = parse_claim(obj)
    assert (found.requested, found.capacity, found.resizing) == ("10Gi", "8Gi", "Resizing")
    assert growth(found, "20Gi")[-1] == {"op": "replace", "path": "/spec/resources/requests/storage", "value": "20Gi"}
    assert [each["value"] for each in growth(found, "20Gi")[:2]] == ["v", "10Gi"]
    assert broker_of_claim("c", found.name) == 12
    assert broker_of_claim("d", found.name) is None
    assert broker_of_claim("c", "logs-c-broker-12") is None


@pytest.mark.parametrize(
    ("storage", "differs"),
    [
        ({"size": "10Gi"}, False),
        ({"size": "20Gi"}, True),
        ({"size": "5Gi"}, False),
        ({"size": "10Gi", "storageClassName": "fast"}, True),
    ],
)
def test_when_a_stateful_set_has_to_be_made_again(storage, differs):
    before = stateful_set(cluster(storage={"size": "10Gi"}), 3)
    assert templates_differ(before, stateful_set(cluster(storage=storage), 3)) is differs


def test_a_class_that_the_server_filled_in_is_no_difference():
    before = stateful_set(cluster(storage={"size": "10Gi", "storageClassName": "default"}), 3)
    assert not templates_differ(before, stateful_set(cluster(storage={"size": "10Gi"}), 3))
