"""Table columns of the built-in kinds, as `kubectl get` shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver.types import Column

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


def human_duration(seconds: float) -> str:
    """A duration in kubectl's short form, such as `5m10s` or `3d`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        years, rest = divmod(days, 365)
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{days // 365}y"


def age(moment: object) -> str:
    """Time since an RFC 3339 time, in kubectl's short form."""
    if not isinstance(moment, str) or not moment:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return "<invalid>"
    return human_duration((datetime.now(UTC) - then).total_seconds())


def path(*keys: str, default: Any = "") -> Callable[[Json], Any]:
    """A cell that shows the value at `keys`."""

    def cell(value: Json) -> Any:
        current: Any = value
        for key in keys:
            current = current.get(key) if isinstance(current, dict) else None
        return default if current is None else current

    return cell


NAME = Column(name="Name", type="string", format="name", cell=path("metadata", "name"))
AGE = Column(name="Age", type="string", cell=lambda value: age(value["metadata"].get("creationTimestamp")))


def _column(name: str, cell: Callable[[Json], Any], *, priority: int = 0, type_: str = "string") -> Column:
    return Column(name=name, type=type_, cell=cell, priority=priority)


def _statuses(value: Json) -> list[Json]:
    return value.get("status", {}).get("containerStatuses") or []


def _pod_ready(value: Json) -> str:
    ready = sum(1 for status in _statuses(value) if status.get("ready"))
    return f"{ready}/{len(value.get('spec', {}).get('containers', ()))}"


def _pod_status(value: Json) -> str:
    status = value.get("status", {})
    reason: str = status.get("reason") or status.get("phase") or "Unknown"
    for container in _statuses(value):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated:
            code, signal = terminated.get("exitCode", 0), terminated.get("signal")
            reason = terminated.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{code}")
    return "Terminating" if value["metadata"].get("deletionTimestamp") else reason


def _pod_restarts(value: Json) -> str:
    restarts = sum(status.get("restartCount", 0) for status in _statuses(value))
    ends = [
        ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or "" for status in _statuses(value)
    ]
    last = max(ends, default="")
    return f"{restarts} ({age(last)} ago)" if restarts and last else str(restarts)


def _images(value: Json) -> str:
    template = value.get("spec", {}).get("template", {}).get("spec", {})
    return ",".join(container.get("image", "") for container in template.get("containers", ()))


def _containers(value: Json) -> str:
    template = value.get("spec", {}).get("template", {}).get("spec", {})
    return ",".join(container.get("name", "") for container in template.get("containers", ()))


def _selector(value: Json) -> str:
    selector = value.get("spec", {}).get("selector") or {}
    labels = selector.get("matchLabels", selector) if isinstance(selector, dict) else {}
    return ",".join(f"{key}={item}" for key, item in sorted(labels.items())) or "<none>"


def _service_ports(value: Json) -> str:
    ports = value.get("spec", {}).get("ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _node_status(value: Json) -> str:
    ready = [item for item in value.get("status", {}).get("conditions") or () if item.get("type") == "Ready"]
    text = ("Ready" if ready[0].get("status") == "True" else "NotReady") if ready else "Unknown"
    return f"{text},SchedulingDisabled" if value.get("spec", {}).get("unschedulable") else text


def _node_roles(value: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = value["metadata"].get("labels") or {}
    return ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))) or "<none>"


def _ready_of(value: Json) -> str:
    ready = value.get("status", {}).get("readyReplicas", 0)
    return f"{ready}/{value.get('spec', {}).get('replicas', 1)}"


def _event_age(value: Json) -> str:
    series = value.get("series") or {}
    first = value.get("firstTimestamp") or value.get("deprecatedFirstTimestamp") or value.get("eventTime")
    last = series.get("lastObservedTime") or value.get("lastTimestamp") or value.get("deprecatedLastTimestamp") or first
    number = series.get("count") or value.get("count") or value.get("deprecatedCount") or 1
    return f"{age(last)} (x{number} over {age(first)})" if number > 1 else age(last)


def _event_object(value: Json) -> str:
    regarding = value.get("involvedObject") or value.get("regarding") or {}
    return f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}"


def _claim_modes(value: Json) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in value.get("spec", {}).get("accessModes") or ())


DEFAULT = (NAME, Column(name="Age", type="date", cell=AGE.cell))
LEASE = (NAME, _column("Holder", path("spec", "holderIdentity")), AGE)
NAMESPACE = (NAME, _column("Status", path("status", "phase")), AGE)
CRD = (NAME, _column("Created At", path("metadata", "creationTimestamp")))
CONFIG_MAP = (NAME, _column("Data", lambda value: len(value.get("data") or {}), type_="integer"), AGE)
SECRET = (
    NAME,
    _column("Type", path("type")),
    _column("Data", lambda value: len(value.get("data") or {}), type_="integer"),
    AGE,
)
POD = (
    NAME,
    _column("Ready", _pod_ready),
    _column("Status", _pod_status),
    _column("Restarts", _pod_restarts),
    AGE,
    _column("IP", path("status", "podIP", default="<none>"), priority=1),
    _column("Node", path("spec", "nodeName", default="<none>"), priority=1),
)
NODE = (
    NAME,
    _column("Status", _node_status),
    _column("Roles", _node_roles),
    AGE,
    _column("Version", path("status", "nodeInfo", "kubeletVersion")),
)
SERVICE = (
    NAME,
    _column("Type", path("spec", "type")),
    _column("Cluster-IP", path("spec", "clusterIP", default="<none>")),
    _column("External-IP", lambda _value: "<none>"),
    _column("Port(s)", _service_ports),
    AGE,
    _column("Selector", _selector, priority=1),
)
CLAIM = (
    NAME,
    _column("Status", path("status", "phase")),
    _column("Volume", path("spec", "volumeName")),
    _column("Capacity", path("status", "capacity", "storage")),
    _column("Access Modes", _claim_modes),
    _column("StorageClass", path("spec", "storageClassName")),
    AGE,
)
STATEFUL_SET = (
    NAME,
    _column("Ready", _ready_of),
    AGE,
    _column("Containers", _containers, priority=1),
    _column("Images", _images, priority=1),
)
DEPLOYMENT = (
    NAME,
    _column("Ready", _ready_of),
    _column("Up-to-date", path("status", "updatedReplicas", default=0), type_="integer"),
    _column("Available", path("status", "availableReplicas", default=0), type_="integer"),
    AGE,
    _column("Containers", _containers, priority=1),
    _column("Images", _images, priority=1),
)
BUDGET = (
    NAME,
    _column("Min Available", path("spec", "minAvailable", default="N/A")),
    _column("Max Unavailable", path("spec", "maxUnavailable", default="N/A")),
    _column("Allowed Disruptions", path("status", "disruptionsAllowed", default=0), type_="integer"),
    AGE,
)
EVENT = (
    _column("Last Seen", _event_age),
    _column("Type", path("type")),
    _column("Reason", path("reason")),
    _column("Object", _event_object),
    _column("Message", lambda value: str(value.get("message") or value.get("note") or "").strip()),
    Column(name="Name", type="string", format="name", cell=path("metadata", "name"), priority=1),
)
