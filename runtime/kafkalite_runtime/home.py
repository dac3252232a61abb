"""Where local mode keeps things: folders, ports and the records of running processes.

The supervisor, the kubelet and the command line agree here; none of them imports another.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

DEFAULT_HOME = ".kafkalite"
DEFAULT_PORT = 9092
METRICS_OFFSET = 100
OPERATOR_OFFSET = 110
API_SERVER_OFFSET = 120

SUPERVISOR = "supervisor"
API_SERVER = "apiserver"
KUBELET = "kubelet"
NODE_NAME = "local"


@dataclass(frozen=True, slots=True)
class Ports:
    """All TCP ports of one local cluster, derived from the first broker's (`KAFKALITE_PORT`)."""

    base: int = DEFAULT_PORT

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Ports":
        """Raises ValueError with a sentence when KAFKALITE_PORT is not a usable number."""
        text = environ.get("KAFKALITE_PORT", "") or str(DEFAULT_PORT)
        if not text.isdigit() or not 1 <= int(text) <= 65535 - API_SERVER_OFFSET:
            raise ValueError(f"KAFKALITE_PORT={text}: expected a number from 1 to {65535 - API_SERVER_OFFSET}")
        return cls(int(text))

    def broker(self, broker_id: int) -> int:
        """Where Kafka clients reach the broker."""
        return self.base + broker_id

    def broker_metrics(self, broker_id: int) -> int:
        """Telemetry endpoint of the broker."""
        return self.base + METRICS_OFFSET + broker_id

    @property
    def operator_metrics(self) -> int:
        """Telemetry endpoint of the operator."""
        return self.base + OPERATOR_OFFSET

    @property
    def api_server(self) -> int:
        """The embedded Kubernetes API."""
        return self.base + API_SERVER_OFFSET


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one local cluster; absolute."""

    root: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Home":
        """`KAFKALITE_HOME`, else `.kafkalite` of the working directory."""
        return cls(Path(environ.get("KAFKALITE_HOME", "") or DEFAULT_HOME).absolute())

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and everything else that talks to the embedded API server."""
        return self.root / "kubeconfig"

    @property
    def database(self) -> Path:
        """The API server's SQLite file."""
        return self.root / "control-plane.db"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """One record per running process."""
        return self.root / "run"

    @property
    def pod_records(self) -> Path:
        """One record per pod's process."""
        return self.run / "pods"

    @property
    def exits(self) -> Path:
        """Exit statuses of processes whose parent died before them, noted by the supervisor."""
        return self.run / "exits"

    @property
    def volumes(self) -> Path:
        """One folder per PersistentVolumeClaim."""
        return self.root / "volumes"

    @property
    def pods(self) -> Path:
        """One folder per pod: materialised volumes, termination message, last known object."""
        return self.root / "pods"

    @property
    def manifests(self) -> Path:
        """Static pods of the kubelet."""
        return self.root / "manifests"

    def log(self, name: str) -> Path:
        """The log file of a process."""
        return self.logs / f"{name}.log"

    def record(self, name: str) -> Path:
        """The record of the supervisor or one of its children."""
        return self.run / f"{name}.json"

    def create(self) -> None:
        """Make the folders; harmless when they are there."""
        for folder in (self.logs, self.pod_records, self.exits, self.volumes, self.pods, self.manifests):
            folder.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """Names one process for good: a pid alone may be given to another process later.

    Attributes:
        start_time: field 22 of /proc/<pid>/stat, in ticks since boot.
        started_at: the same as RFC 3339 text, for people.
        details: whatever else the writer keeps; stored on the same level.
    """

    name: str
    pid: int
    start_time: int
    started_at: str
    details: dict[str, Any] = field(default_factory=dict)

    def alive(self) -> bool:
        """Whether that very process still runs; a zombie does not."""
        return start_time_of(self.pid) == self.start_time

    def signal(self, number: int) -> bool:
        """Send a signal to that very process; False when it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor pins the process: what is checked now is what the signal reaches.
            if not self.alive():
                return False
            import signal

            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        document = {
            "name": self.name,
            "pid": self.pid,
            "startTime": self.start_time,
            "startedAt": self.started_at,
        } | self.details
        write_atomically(path, msgspec.json.format(msgspec.json.encode(document), indent=2))

    @classmethod
    def read(cls, path: Path) -> "ProcessRecord | None":
        """None when there is no such file, or only the rest of one."""
        try:
            document = msgspec.json.decode(path.read_bytes())
            return cls(
                name=str(document.pop("name")),
                pid=int(document.pop("pid")),
                start_time=int(document.pop("startTime")),
                started_at=str(document.pop("startedAt")),
                details=document,
            )
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            return None


def start_time_of(pid: int) -> int | None:
    """Start time in ticks of a living process, None when there is none (or a zombie)."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in {"Z", "X"} else None


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the third (state) on; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field, the name in parentheses, may itself hold spaces and parentheses.
    return text.rpartition(")")[2].split()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader sees the old or the new content, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
