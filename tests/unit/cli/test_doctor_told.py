"""What `kafkalite doctor` passes on of the conditions of a cluster that speak of nothing else."""

import pytest

from kafkalite_runtime.kube import CLUSTERS
from tests.unit.cli.world import one


@pytest.fixture
def told(world, doctor):
    def say(type_, status, reason, *, rc=1):
        said = {"type": type_, "status": status, "reason": reason, "message": f"why {reason}"}
        world.patch(CLUSTERS, "kafkalite", {"status": {"conditions": [said]}}, status=True)
        return doctor(rc=rc)

    return say


@pytest.mark.parametrize(
    ("type_", "reason", "what"),
    [
        ("LeasesRead", "LeasesNotRead", "nobody notices when a broker of kafkalite hangs"),
        ("ListenersReady", "WaitingForAddresses", "clients cannot reach every broker of kafkalite from outside"),
        ("VolumesSized", "ExpansionRefused", "volumes of kafkalite are not as large"),
        ("PodsResized", "Refused", "pods of kafkalite do not have the CPU and memory"),
        ("RacksKnown", "NoLabel", "racks of brokers of kafkalite are not known"),
        ("Replacing", "Blocked", "a broker of kafkalite that is to get a new volume does not get it"),
        ("Replacing", "NodesNotReadable", "a broker of kafkalite that is to get a new volume does not get it"),
    ],
)
def test_what_calls_for_somebody_is_a_problem(told, world, type_, reason, what):
    found = told(type_, "False", reason)
    assert list(found) == [reason]
    finding = one(found, reason)
    assert finding["what"].startswith(what)
    assert finding["why"] == f"why {reason}"
    assert finding["todo"].endswith(world.kubectl("describe klc kafkalite"))
    assert told(type_, "True", "Fine", rc=0) == {}


def test_a_cluster_that_is_treated_as_paused_for_its_template(told):
    finding = one(told("ReconciliationPaused", "True", "NotUnderstood"), "NotUnderstood")
    assert "is treated as paused: its spec.template cannot be understood" in finding["what"]
    assert finding["why"] == "why NotUnderstood"


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        ("VolumesSized", "Growing"),
        ("PodsResized", "Resizing"),
        ("PodsResized", "InProgress"),
        ("Replacing", "NotReplacing"),
        ("Replacing", "VolumeLost"),
    ],
)
def test_what_ends_by_itself_or_is_told_with_the_claims_is_none(told, type_, reason):
    assert told(type_, "False", reason, rc=0) == {}
