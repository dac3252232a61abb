"""State of a pod's one container, and its translation into a pod status."""

from dataclasses import dataclass, field
from typing import Any

from kafkalite_local.kubelet.pod_spec import POD_IP
from kafkalite_local.processes import Exit, now_text
from kafkalite_runtime.home import ProcessRecord

JsonObject = dict[str, Any]

BACKOFF_MAX_S = 30.0
BACKOFF_RESET_S = 10.0
"""A process that ran this long was well: its end counts as the first one. Kubernetes forgives after 10 minutes; on one
machine a broker that is killed on purpose, again and again, must come back at once, and a configuration with which it
cannot start ends it within a second or two."""


def restart_delay_s(failures: int) -> float:
    """0 for the first restart, then 1, 2, 4 … 30: Kubernetes' CrashLoopBackOff, quicker and with a shorter memory."""
    return 0.0 if failures <= 1 else min(BACKOFF_MAX_S, 2.0 ** (failures - 2))


@dataclass(slots=True)
class Container:
    """What the kubelet knows about a container; `failures` counts exits in a row for the back-off."""

    name: str
    image: str = ""
    state: JsonObject = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: JsonObject = field(default_factory=dict)
    container_id: str = ""
    restart_count: int = 0
    failures: int = 0
    started_at: float = 0.0  # wall clock, seconds: survives a restart of the kubelet
    ready: bool = False
    was_started: bool = False

    def running(self, record: ProcessRecord, *, started_at: float) -> None:
        """A new process."""
        self.container_id = f"local://{record.pid}-{record.start_time}"
        self.state = {"running": {"startedAt": record.started_at}}
        self.started_at = started_at
        self.ready = False

    def terminated(self, exit_: Exit, message: str, started: str, *, ran_s: float) -> None:
        """Its process ended after `ran_s` seconds."""
        ended: JsonObject = {
            "exitCode": exit_.code,
            "reason": "Completed" if exit_.code == 0 else "Error",
            "startedAt": started,
            "finishedAt": now_text(),
            "containerID": self.container_id,
        }
        if exit_.signal:
            ended["signal"] = exit_.signal
        if message:
            ended["message"] = message
        self.state = {"terminated": ended}
        self.ready = False
        self.was_started = False
        self.failures = 1 if ran_s >= BACKOFF_RESET_S else self.failures + 1

    def waiting(self, reason: str, message: str) -> None:
        """It will be started later; what ended moves to lastState."""
        self.remember_end()
        self.state = {"waiting": {"reason": reason, "message": message}}
        self.ready = False

    def remember_end(self) -> None:
        """Before a new state: the end of the previous process stays visible."""
        if "terminated" in self.state:
            self.last_state = self.state

    def to_status(self) -> JsonObject:
        """A `containerStatuses` entry."""
        status: JsonObject = {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": self.was_started,
            "restartCount": self.restart_count,
            "state": self.state,
            "lastState": self.last_state,
        }
        if self.container_id:
            status["containerID"] = self.container_id
        return status

    def save(self) -> JsonObject:
        """For the process record, so that a restarted kubelet goes on from here."""
        return {
            "container": self.name,
            "restartCount": self.restart_count,
            "failures": self.failures,
            "startedAtSeconds": self.started_at,
            "containerID": self.container_id,
            "lastState": self.last_state,
        }

    def restore(self, saved: JsonObject) -> None:
        """The opposite of `save`."""
        self.restart_count = int(saved.get("restartCount", 0))
        self.failures = int(saved.get("failures", 0))
        self.started_at = float(saved.get("startedAtSeconds", 0.0))
        self.container_id = str(saved.get("containerID", ""))
        self.last_state = saved.get("lastState") or {}


def pod_status(pod: JsonObject, container: Container, started: str, previous: JsonObject, phase: str) -> JsonObject:
    """The pod's `status`; transition times of conditions that did not change are kept from `previous`."""
    ready = container.ready and phase == "Running"
    why = (
        {}
        if ready
        else {"reason": "ContainersNotReady", "message": f"containers with unready status: [{container.name}]"}
    )
    conditions = [
        _condition("PodScheduled", True, {}, previous),
        _condition("Initialized", True, {}, previous),
        _condition("ContainersReady", ready, why, previous),
        _condition("Ready", ready, why, previous),
    ]
    status = {
        "phase": phase,
        "conditions": conditions,
        "hostIP": POD_IP,
        "hostIPs": [{"ip": POD_IP}],
        "podIP": POD_IP,
        "podIPs": [{"ip": POD_IP}],
        "startTime": started,
        "containerStatuses": [container.to_status()],
        "qosClass": "BestEffort",
    }
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    return status


def _condition(type_: str, value: bool, why: JsonObject, previous: JsonObject) -> JsonObject:
    text = "True" if value else "False"
    since = next(
        (
            old.get("lastTransitionTime")
            for old in previous.get("conditions") or []
            if old.get("type") == type_ and old.get("status") == text
        ),
        None,
    )
    return {"type": type_, "status": text, "lastTransitionTime": since or now_text()} | why
