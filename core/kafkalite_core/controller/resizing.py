"""CPU and memory of pods are changed while they run where the cluster can; where it cannot, pods are restarted.

a pod is resized only when it was made of other values than are wanted now, and has not had these since: what others
    set in it stays as it is
a pod is restarted for its resources only after the API server refused them for this one, or the kubelet called just
    these infeasible, or when it does not run anyway
a pod keeps what it has when admission refuses (a ResourceQuota, a LimitRange, a policy): it would refuse the next pod
    as well, and the broker would be gone
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.model.pods import Kept
from kafkalite_core.model.quantity import QuantityError, quantity
from kafkalite_core.model.topic import Condition

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.pods import Amount, Pod

RESIZED_CONDITION = "PodsResized"
INFEASIBLE = "Infeasible"
LISTED_MAX = 3
MESSAGE_MAX = 1000
ANY_TIME = Kept("", again=True)
WHAT_TO_DO = (
    "They keep what they have: ask for other resources in the spec, or change what refuses these. Where that refuses "
    "only changes of pods that run, kafkalite restart makes them anew"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A pod whose containers get other resources while they run.

    Attributes:
        broker_id: Of which broker.
        pod: Its name.
        uid: `metadata.uid`.
        containers: Names of all its containers in their order.
        amounts: Those that are to be changed, with the values that are wanted.
    """

    broker_id: int
    pod: str
    uid: str
    containers: tuple[str, ...]
    amounts: tuple[Amount, ...]


def resizes(snapshot: Snapshot) -> tuple[Resize, ...]:
    """The pods that are resized now."""
    if snapshot.cluster.paused or snapshot.cluster.deleting:
        return ()
    return tuple(
        Resize(broker_id=broker_id, pod=pod.name, uid=pod.uid, containers=pod.containers, amounts=differing)
        for broker_id, pod in sorted(snapshot.pods.items())
        if (differing := _differing(snapshot, pod))
        and not (_held(snapshot, broker_id) or why_restart(snapshot, pod))
        and snapshot.resize_kept.get(pod.uid, ANY_TIME).again
    )


def why_restart(snapshot: Snapshot, pod: Pod) -> str:
    """Why the pod has to be made again, as a sentence; "" when it may go on."""
    if not snapshot.revision or pod.deleting:
        return ""
    if _making(pod.revision) != _making(snapshot.revision):
        return why_outdated(pod.revision, snapshot.revision)
    if pod.resize == INFEASIBLE and has_wanted(pod, snapshot.amounts):
        return f"its resources cannot be had on its node ({pod.resize_message or 'the kubelet does not say why'})"
    if pod.uid in snapshot.resize_kept or not _differing(snapshot, pod):
        return ""
    if pod.uid in snapshot.resize_refused:
        return f"its resources changed, and not while it runs: {snapshot.resize_refused[pod.uid]}"
    return "its resources changed" if pod.stuck else ""


def why_outdated(old: str, new: str) -> str:
    """What differs between two revisions, see `resources.statefulset.revision`; resources aside."""
    if not old:
        return "its pod does not say what it was made of"
    (old_template, old_config), (new_template, new_config) = _making(old), _making(new)
    changed = [
        *(["the pod template changed"] if old_template != new_template else []),
        *(["configuration changed that needs a restart"] if old_config != new_config else []),
    ]
    return " and ".join(changed) or "it is of another revision"


def resizing_condition(snapshot: Snapshot) -> tuple[Condition, ...]:
    """`PodsResized` of the cluster. Nothing as long as there was never anything to say."""
    pods = [pod for _, pod in sorted(snapshot.pods.items()) if not pod.deleting]
    waiting = [pod for pod in pods if pod.resize and pod.resize != INFEASIBLE]
    kept = [(pod.name, snapshot.resize_kept[pod.uid].why) for pod in pods if pod.uid in snapshot.resize_kept]
    behind = [each.pod for each in resizes(snapshot)]
    if waiting:
        told = waiting[0]
        said = f": {told.resize_message}" if told.resize_message else ""
        message = f"{_listed([pod.name for pod in waiting])}{said}"
        return (Condition(type=RESIZED_CONDITION, status="False", reason=told.resize, message=message),)
    if kept:
        said = kept[0][1].rstrip(".")[:MESSAGE_MAX]
        message = f"{_listed([name for name, _ in kept])}: {said}. {WHAT_TO_DO}"
        return (Condition(type=RESIZED_CONDITION, status="False", reason="Refused", message=message),)
    if behind:
        return (Condition(type=RESIZED_CONDITION, status="False", reason="Resizing", message=_listed(behind)),)
    if any(condition.type == RESIZED_CONDITION for condition in snapshot.conditions):
        return (Condition(type=RESIZED_CONDITION, status="True", reason="Resized", message=""),)
    return ()


def _differing(snapshot: Snapshot, pod: Pod) -> tuple[Amount, ...]:
    """Wanted amounts that the pod has otherwise, if it was made of others."""
    made_of_them = _values(pod.revision) == _values(snapshot.revision) and pod.uid not in snapshot.resize_had_others
    if pod.deleting or not snapshot.revision or made_of_them or pod.uid in snapshot.resize_had:
        return ()
    return _lacking(pod, snapshot.amounts)


def _lacking(pod: Pod, wanted: tuple[Amount, ...]) -> tuple[Amount, ...]:
    has = {(each.container, each.kind, each.resource): each.value for each in pod.amounts}
    return tuple(
        each for each in wanted if not _equal(has.get((each.container, each.kind, each.resource), ""), each.value)
    )


def has_wanted(pod: Pod, wanted: tuple[Amount, ...]) -> bool:
    """Whether a pod's spec has these amounts."""
    return not _lacking(pod, wanted)


def _equal(left: str, right: str) -> bool:
    try:
        return quantity(left) == quantity(right)
    except QuantityError:
        return left == right


def _making(revision: str) -> tuple[str, str]:
    template, _, rest = revision.partition(".")
    return template, rest.partition(".")[0]


def _values(revision: str) -> str:
    return revision.partition(".")[2].partition(".")[2]


def _held(snapshot: Snapshot, broker_id: int) -> bool:
    return broker_id in snapshot.brokers and snapshot.brokers[broker_id].hold


def _listed(names: list[str]) -> str:
    rest = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {rest} more" if rest > 0 else "")
