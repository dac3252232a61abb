"""What `kafkalite doctor` says of objects of a cluster that the operator could not apply, as its condition tells."""

import pytest

from kafkalite_runtime.kube import CLUSTERS, CONFIG_MAPS, STATEFUL_SETS
from tests.unit.cli.world import one, only

FORBIDDEN = (
    'ConfigMap kafkalite-identity refused: 403 Forbidden: configmaps "kafkalite-identity" is forbidden: User "o" '
    'cannot get resource "configmaps" in API group "" in the namespace "n"'
)
FOREIGN = "Service kafkalite-broker-1: it is somebody else's and is left alone, ConfigMap other controls it; delete it"
TAKEN = 'Service kafkalite-external-0 refused: 422 Invalid: Service "kafkalite-external-0" is invalid: port is taken'
QUOTA = (
    'StatefulSet kafkalite-broker refused: 403 Forbidden: statefulsets "kafkalite-broker" is forbidden: exceeded quota'
)


@pytest.fixture
def applied(world):
    def tell(reason, message="", status="False"):
        condition = {"type": "ObjectsApplied", "status": status, "reason": reason, "message": message}
        world.patch(CLUSTERS, "kafkalite", {"status": {"conditions": [condition]}}, status=True)

    return tell


@pytest.mark.parametrize(
    ("reason", "message", "todo"),
    [
        ("ObjectRefused", TAKEN, "correct what it names in spec of the cluster"),
        ("ObjectRefused", QUOTA, "the quota or policy that refuses it"),
        ("ObjectRefused", FORBIDDEN, "list it in brokers.namespaces of the chart"),
        ("ObjectForeign", FOREIGN, "make the cluster anew under another name"),
        ("NotYetCollected", "Service kafkalite: it belongs to the cluster of that name that was deleted", "collector"),
        ("OfALaterVersion", "something", "describe klc kafkalite"),
    ],
)
def test_objects_that_the_operator_could_not_apply(doctor, applied, reason, message, todo):
    applied(reason, message)
    found = doctor()
    only(found, reason)
    finding = one(found, reason)
    assert (finding["about"], finding["why"], finding["severity"]) == ("cluster/kafkalite", message, "problem")
    assert "could not apply every object of the cluster kafkalite" in finding["what"]
    assert todo in finding["todo"]


def test_nothing_is_said_when_every_object_is_applied(doctor, applied):
    applied("Applied", "every object is as it should be", status="True")
    assert doctor(rc=0) == {}


def test_a_stateful_set_that_is_refused_does_not_wait_for_the_operator(world, doctor, applied):
    world.delete(STATEFUL_SETS, "kafkalite-broker")
    assert one(doctor(), "StatefulSetMissing")["why"] == "the operator makes it as soon as it acts"
    applied("ObjectRefused", f"{TAKEN}; {QUOTA}")
    missing = one(doctor(), "StatefulSetMissing")
    assert missing["why"] == "the operator could not make it"
    assert missing["todo"] == "look at what is said about the objects of the cluster"
    world.stateful_set(2)
    assert one(doctor(), "StatefulSetTooSmall")["why"] == "the operator could not change it"
    applied("ObjectRefused", TAKEN)
    assert "somebody else scaled it" in one(doctor(), "StatefulSetTooSmall")["why"]


def test_what_is_somebody_elses_is_told_once(world, doctor, applied):
    world.delete(STATEFUL_SETS, "kafkalite-broker")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "controller": True}
    owner["uid"] = world.make(CONFIG_MAPS, "other", {})["metadata"]["uid"]
    world.stateful_set(3, ownerReferences=[owner])
    only(doctor(), "ForeignObject")
    applied("ObjectForeign", "StatefulSet kafkalite-broker: it is somebody else's, ConfigMap other controls it")
    only(doctor(), "ObjectForeign")
