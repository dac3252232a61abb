"""Which pods get other resources while they run, which are restarted for them, and what is said of it."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ResizePods, RestartPods
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.resizing import resizes, resizing_condition, why_restart
from kafkalite_core.controller.rolling import roll
from kafkalite_core.model.pods import Amount, Kept
from kafkalite_core.model.topic import Condition
from tests.unit.controller.builders import NOW, apply
from tests.unit.controller.rolling_world import cluster

MADE, WANTED = "t1.c1.r1", "t1.c1.r2"
ALL = ((0, 1, 2), 2)


def amount(value, resource="memory"):
    return Amount("broker", "limits", resource, value)


def state(*, value="1Gi", wanted="2Gi", made=MADE, changes=None, **more):
    """Three brokers, whose pods were made of `made` and have `value`; `changes` of pod 0."""
    base = cluster(ALL, wanted=WANTED, amounts=(amount(wanted),), **more)
    pods = {
        i: replace(p, revision=made, containers=("broker",), amounts=(amount(value),)) for i, p in base.pods.items()
    }
    pods[0] = replace(pods[0], **(changes or {}))
    return replace(base, pods=pods)


def resized(snapshot):
    return [each.broker_id for each in resizes(snapshot)]


def restarted(snapshot):
    return roll(snapshot, NOW).status.pending


def test_running_pods_get_other_values_and_nobody_is_restarted():
    before = state()
    actions = plan(before, NOW)
    assert [each.amounts for a in actions if isinstance(a, ResizePods) for each in a.resizes] == [(amount("2Gi"),)] * 3
    assert not [a for a in actions if isinstance(a, RestartPods)]
    after = apply(before, actions)
    assert not [a for a in plan(after, NOW) if isinstance(a, ResizePods | RestartPods)]


def test_the_same_in_other_words_is_no_difference():
    assert resized(state(value="2048Mi")) == []


def test_what_others_changed_in_a_pod_of_the_wanted_values_stays():
    assert resized(state(made=WANTED, value="7Gi")) == []


def test_a_pod_of_before_this_part_of_the_revision_is_looked_at():
    assert resized(state(made="t1.c1")) == [0, 1, 2]
    assert resized(state(made="t1.c1", value="2Gi")) == []
    assert not restarted(state(made="t1.c1"))


def test_what_is_not_wanted_is_not_looked_at():
    """A LimitRange gave the pod a limit of CPU."""
    assert resized(state(value="2Gi", changes={"amounts": (amount("2Gi"), amount("1", "cpu"))})) == []


def test_a_value_that_nobody_understands_is_different_from_every_other():
    assert resized(state(wanted="a lot")) == [0, 1, 2]
    assert resized(state(wanted="a lot", value="a lot")) == []


def test_a_pod_that_has_to_be_restarted_anyway_is_not_resized():
    before = state(changes={"revision": "t0.c1.r1"})
    assert resized(before) == [1, 2]
    assert why_restart(before, before.pods[0]) == "the pod template changed"


def test_who_has_had_the_wanted_values_is_left_to_others():
    before = state(value="7Gi")
    before = replace(before, resize_had=frozenset({before.pods[0].uid}))
    assert resized(before) == [1, 2]
    assert not restarted(before)


def test_who_was_resized_gets_the_values_that_it_was_made_of_when_these_are_wanted_again():
    before = state(made=WANTED, value="7Gi")
    assert resized(replace(before, resize_had_others=frozenset({before.pods[1].uid}))) == [1]


@pytest.mark.parametrize("made", [MADE, WANTED])
def test_what_others_want_in_vain_restarts_nobody(made):
    before = state(made=made, value="7Gi", changes={"resize": "Infeasible", "resize_message": "too big"})
    assert not restarted(before)
    assert resized(before) == ([0, 1, 2] if made == MADE else [])


def test_a_pod_keeps_what_it_has_when_admission_refuses_and_is_asked_again_later():
    before = state(changes={"stuck": "CrashLoopBackOff", "ready": False})
    uid = before.pods[0].uid
    kept = replace(before, resize_kept={uid: Kept("exceeded quota: q.")})
    assert not restarted(kept)
    assert resized(kept) == [1, 2]
    (told,) = resizing_condition(kept)
    assert (told.status, told.reason) == ("False", "Refused")
    assert told.message.startswith("kafkalite-broker-0: exceeded quota: q. They keep what they have")
    later = replace(kept, resize_kept={uid: Kept("exceeded quota: q.", again=True)})
    assert resized(later) == [0, 1, 2]
    assert not restarted(later)
    assert resizing_condition(later) == (told,)


@pytest.mark.parametrize(
    ("changes", "refused", "why"),
    [
        ({}, "no", "its resources changed, and not while it runs: no"),
        (
            {"resize": "Infeasible", "resize_message": "too big", "amounts": (amount("2Gi"),)},
            "",
            "its resources cannot be had on its node (too big)",
        ),
        ({"stuck": "CrashLoopBackOff", "ready": False}, "", "its resources changed"),
    ],
)
def test_what_cannot_be_resized_is_restarted(changes, refused, why):
    before = state(changes=changes)
    before = replace(before, resize_refused={before.pods[0].uid: refused} if refused else {})
    assert why_restart(before, before.pods[0]) == why
    assert restarted(before) == (before.pods[0].name,)
    assert resized(before) == [1, 2]


@pytest.mark.parametrize("resize", ["Deferred", "InProgress", "Error"])
def test_what_the_kubelet_is_still_at_is_waited_for(resize):
    before = state(value="2Gi", changes={"resize": resize, "resize_message": "no room yet"})
    assert not restarted(before)
    assert resizing_condition(before) == (
        Condition(type="PodsResized", status="False", reason=resize, message="kafkalite-broker-0: no room yet"),
    )


def test_the_condition_comes_with_the_first_change_and_stays():
    assert resizing_condition(state(value="2Gi")) == ()
    growing = resizing_condition(state())
    assert [(c.status, c.reason) for c in growing] == [("False", "Resizing")]
    done = resizing_condition(replace(state(value="2Gi"), conditions=growing))
    assert [(c.status, c.reason) for c in done] == [("True", "Resized")]


def test_who_is_held_deleted_or_of_a_paused_cluster_is_left_alone():
    assert resized(state(changes={"deleting": True})) == [1, 2]
    base = state()
    held = replace(base, brokers={**base.brokers, 1: replace(base.brokers[1], hold=True)})
    assert resized(held) == [0, 2]
    for flag in ("paused", "deleting"):
        assert resized(replace(base, cluster=replace(base.cluster, **{flag: True}))) == []
    assert resized(replace(base, revision="")) == []
