"""`status.rolling` of a `KafkaLiteCluster` and the brokers' pods: JSON <-> model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.pods import UNSCHEDULABLE, Blocked, Pod, Rolling
from kafkalite_core.resources.fields import Fields, open_object
from kafkalite_core.resources.naming import ANNOTATION_REVISION, BROKER_CONTAINER
from kafkalite_core.resources.pods import is_ready
from kafkalite_core.resources.resizing import amounts

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LENGTH_MAX = 200
VOLUME_ELSEWHERE = ("volume node affinity conflict", "didn't match PersistentVolume's node affinity")
"""The scheduler's words, until Kubernetes 1.33 and since."""

STUCK_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
        "StartError",
    }
)
"""Reasons for which a container waits that do not pass while the pod stays as it is, or seldom do."""


def parse_rolling(status: Fields) -> Rolling:
    """`status.rolling`; an absent one reads as one that is over. Raises `ResourceError`."""
    fields = status.map("rolling")
    return Rolling(
        in_progress=fields.flag("inProgress"),
        pending=_texts(fields, "pending"),
        restarting=_texts(fields, "restarting"),
        blocked_by=tuple(
            Blocked(each.text("pod", ""), each.text("partition", ""), each.text("reason", ""))
            for each in fields.maps("blockedBy")
        ),
    )


def _texts(fields: Fields, key: str) -> tuple[str, ...]:
    items = fields.raw.get(key)
    return tuple(str(item) for item in items) if isinstance(items, list) else ()


def render_rolling(rolling: Rolling) -> dict[str, Any]:
    """The JSON of `status.rolling`."""
    return {
        "inProgress": rolling.in_progress,
        "pending": list(rolling.pending),
        "restarting": list(rolling.restarting),
        "blockedBy": [render_blocked(each) for each in rolling.blocked_by],
    }


def render_blocked(blocked: Blocked) -> dict[str, str]:
    """The JSON of one entry of a `blockedBy`."""
    entry = {"pod": blocked.pod, "reason": blocked.reason}
    return {**entry, "partition": blocked.partition} if blocked.partition else entry


def parse_pod(obj: Mapping[str, Any], *, unready_since: float = 0.0, deleting_since: float = 0.0) -> Pod:
    """The pod of a broker. Raises `ResourceError`."""
    fields, metadata = open_object(obj)
    reason, message = _stuck(fields)
    resize, resize_message = _resize(fields)
    spec = fields.map("spec")
    return Pod(
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        revision=metadata.map("annotations").texts_or_empty().get(ANNOTATION_REVISION, ""),
        ready=is_ready(obj),
        deleting=metadata.has("deletionTimestamp"),
        running=any(
            each.text("name", "") == BROKER_CONTAINER and each.map("state").has("running")
            for each in fields.map("status").maps("containerStatuses")
        ),
        stuck=reason,
        stuck_message=message[:MESSAGE_LENGTH_MAX],
        volume_elsewhere=reason == UNSCHEDULABLE and any(words in message for words in VOLUME_ELSEWHERE),
        unready_since=unready_since,
        containers=tuple(each.text("name", "") for each in spec.maps("containers")),
        amounts=amounts(spec.raw),
        resize=resize,
        resize_message=resize_message[:MESSAGE_LENGTH_MAX],
        node=fields.map("spec").text("nodeName", ""),
        grace_s=metadata.number("deletionGracePeriodSeconds", 30.0),
        deleting_since=deleting_since,
    )


def _resize(fields: Fields) -> tuple[str, str]:
    """State of a change of resources that is not over, and what the kubelet says about it (KEP-1287)."""
    for condition in fields.map("status").maps("conditions"):
        if condition.text("status", "") != "True":
            continue
        if condition.text("type", "") == "PodResizePending":
            return condition.text("reason", "Deferred"), condition.text("message", "")
        if condition.text("type", "") == "PodResizeInProgress":
            return condition.text("reason", "") or "InProgress", condition.text("message", "")
    return "", ""


def _stuck(fields: Fields) -> tuple[str, str]:
    """Why the pod cannot run, in one word and in a sentence; empty texts when it runs or starts."""
    status = fields.map("status")
    phase = status.text("phase", "")
    if phase in {"Failed", "Succeeded"}:
        return status.text("reason", phase), status.text("message", "")
    for condition in status.maps("conditions"):
        unscheduled = condition.text("type", "") == "PodScheduled" and condition.text("status", "") == "False"
        if unscheduled and condition.text("reason", "") == UNSCHEDULABLE:
            return UNSCHEDULABLE, condition.text("message", "")
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.maps(key):
            waiting = container.map("state").map("waiting")
            if waiting.text("reason", "") in STUCK_REASONS:
                last = container.map("lastState").map("terminated")
                ended = f"exit code {last.integer('exitCode')}" if last.has("exitCode") else ""
                own = container.text("name", "") == BROKER_CONTAINER
                return waiting.text("reason"), (ended if own and ended else waiting.text("message", ""))
    return "", ""
