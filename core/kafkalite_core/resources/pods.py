"""Exits of the broker container, as a Pod's status tells them (S7)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.foreign_json import parse_json
from kafkalite_core.resources.fields import Fields, open_object
from kafkalite_core.resources.naming import BROKER_CONTAINER, LABEL_CLUSTER, broker_id_of, stateful_set_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LENGTH_MAX = 4096
"""Kubernetes cuts termination messages at this length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExit:
    """An end of the broker container that names the incarnation which ended.

    Attributes:
        broker_id: Whose pod it is.
        incarnation: From the termination message; never empty.
        exit_code: Of the process; 128 + signal for a signal.
        reason: The broker's own reason, else the kubelet's.
    """

    broker_id: int
    incarnation: str
    exit_code: int
    reason: str


def container_exits(pod: Mapping[str, Any]) -> list[ContainerExit]:
    """Exits of the broker container that a Pod tells of, the current one first.

    An exit whose message names no incarnation is left out: nobody may be fenced on its account (S7). Nor on that of a
    pod which has not the name of a broker of its cluster, or which something else than the StatefulSet controls.

    Raises:
        ResourceError: it is not a Pod.
    """
    fields, metadata = open_object(pod)
    cluster = metadata.map("labels").texts_or_empty().get(LABEL_CLUSTER, "")
    broker_id = broker_id_of(cluster, metadata.text("name"))
    if broker_id is None or not _is_of(stateful_set_name(cluster), metadata):
        return []
    exits: list[ContainerExit] = []
    for status in fields.map("status").maps("containerStatuses"):
        if status.text("name", "") != BROKER_CONTAINER:
            continue
        for key in ("state", "lastState"):
            terminated = status.map(key).map("terminated")
            found = _exit(broker_id, terminated)
            if found is not None and all(found.incarnation != known.incarnation for known in exits):
                exits.append(found)
    return exits


def _is_of(stateful_set: str, metadata: Fields) -> bool:
    """Whether the pod is that StatefulSet's, or nobody's: one deleted with `--cascade=orphan` leaves its pods."""
    owners = [owner for owner in metadata.maps("ownerReferences") if owner.flag("controller")]
    return all((owner.text("kind", ""), owner.text("name", "")) == ("StatefulSet", stateful_set) for owner in owners)


def _exit(broker_id: int, terminated: Fields) -> ContainerExit | None:
    message = parse_termination_message(terminated.text("message", ""))
    incarnation = message.get("incarnation")
    if not isinstance(incarnation, str) or not incarnation:
        return None
    reason = message.get("reason")
    return ContainerExit(
        broker_id=broker_id,
        incarnation=incarnation,
        exit_code=terminated.integer("exitCode", -1),
        reason=_encodable(reason) if isinstance(reason, str) and reason else terminated.text("reason", ""),
    )


def _encodable(text: str) -> str:
    """Without halves of surrogate pairs, which JSON can spell and UTF-8 cannot: an error has some when it names a file
    whose name is damaged. The fence says this reason, and all that is planned waits for a fence.
    """
    return text.encode(errors="replace").decode()


def parse_termination_message(text: str) -> dict[str, Any]:
    """The JSON object that a broker writes to its termination message; empty for anything else."""
    if not text or len(text) > MESSAGE_LENGTH_MAX:
        return {}
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def render_termination_message(incarnation: str, broker_epoch: int | None, reason: str = "") -> str:
    """What a broker writes to its termination message once it holds the data directory's lock."""
    message: dict[str, Any] = {"incarnation": incarnation, "brokerEpoch": broker_epoch}
    if reason:
        message["reason"] = reason[:1024]
    return json.dumps(message)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the Pod's Ready condition is True."""
    fields, _ = open_object(pod)
    conditions = fields.map("status").maps("conditions")
    return any(c.text("type", "") == "Ready" and c.text("status", "") == "True" for c in conditions)
