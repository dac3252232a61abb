"""The processes of a local cluster, as their records and /proc tell."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkalite_runtime.home import API_SERVER, KUBELET, NODE_NAME, SUPERVISOR, Home, ProcessRecord, stat_fields

OPERATOR_POD = f"kafkalite-operator-{NODE_NAME}"
BROKER_POD = re.compile(r"((?:[a-z0-9-]+\.)?)kafkalite-(broker-\d+)")
MARKER = "KAFKALITE_LOCAL_POD"
LISTENING = "0A"


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the cluster; `state` is running, stopped (by SIGSTOP) or dead; `restarts` of pods only."""

    name: str
    record: ProcessRecord
    state: str
    restarts: int = 0

    @property
    def alive(self) -> bool:
        """Running or stopped by a signal."""
        return self.state != "dead"


def display_name(record_name: str) -> str:
    """`operator`, `broker-0`, and `x.broker-0` for the pod of namespace x; the others keep their name.

    The log files of the processes are named alike.
    """
    if record_name == OPERATOR_POD:
        return "operator"
    match = BROKER_POD.fullmatch(record_name)
    return match[1] + match[2] if match else record_name


def record_name(namespace: str, pod: str) -> str:
    """How the record of a pod's process is named: as the pod in namespace `default`, else with the namespace."""
    return pod if namespace == "default" else f"{namespace}.{pod}"


def list_processes(home: Home) -> list[Process]:
    """Supervisor and its children first, then the pods' processes by name."""
    found = []
    for path in [home.record(name) for name in (SUPERVISOR, API_SERVER, KUBELET)] + sorted(
        home.pod_records.glob("*.json")
    ):
        if record := ProcessRecord.read(path):
            restarts = int(record.details.get("restartCount", 0))
            found.append(Process(display_name(path.stem), record, state_of(record), restarts))
    return found


def state_of(record: ProcessRecord) -> str:
    """running, stopped or dead."""
    fields = stat_fields(record.pid)
    if fields is None or int(fields[19]) != record.start_time or fields[0] in {"Z", "X"}:
        return "dead"
    return "stopped" if fields[0] in {"T", "t"} else "running"


def find(home: Home, name: str) -> Process | None:
    """A process by the name that the user knows it by."""
    return next((process for process in list_processes(home) if process.name == name), None)


def supervisor_alive(home: Home) -> ProcessRecord | None:
    """The running supervisor of this home."""
    record = ProcessRecord.read(home.record(SUPERVISOR))
    return record if record is not None and record.alive() else None


def unrecorded(home: Home) -> list[int]:
    """Processes of this home's pods that no record names."""
    needle = f"{MARKER}={home.root}#".encode()
    pids = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if needle in (process / "environ").read_bytes():
                    pids.append(int(process.name))
            except OSError:
                continue
    return pids


def port_holder(port: int, host: str = "127.0.0.1") -> str | None:
    """None when the port is free; else who has it: `pid 123 (python3 -m http.server)`, a connection, or a process."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            pid = _listener(port)
            return f"pid {pid} ({command_line(pid)})" if pid else _connection(port) or "another process"
    return None


def port_holder_pid(port: int) -> int | None:
    """Pid of the process that listens on a port, when it can be seen."""
    return _listener(port)


def _sockets(port: int) -> Iterator[tuple[str, str]]:
    """State and inode of every TCP socket that has this local port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[3], columns[9]


def _connection(port: int) -> str:
    """Words for a port that the kernel gave to an outgoing connection, which may have ended a moment ago."""
    if not any(state != LISTENING for state, _ in _sockets(port)):
        return ""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return "a connection"
    return f"a connection (it gets any port from {first} to {last}, and keeps it for up to a minute)"


def _listener(port: int) -> int | None:
    inodes = {f"socket:[{inode}]" for state, inode in _sockets(port) if state == LISTENING}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(descriptor.readlink()) in inodes:
                return int(descriptor.parts[2])
        except OSError:
            continue
    return None


def command_line(pid: int) -> str:
    """What the process was started as, at most 80 characters."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "?"
    return text if len(text) <= 80 else text[:77] + "…"


def kill_all(home: Home, number: int = signal.SIGKILL) -> list[str]:
    """Signal every process of this home that still runs, the supervisor first; their names."""
    hit = [each.name for each in list_processes(home) if each.alive and each.record.signal(number)]
    for pid in unrecorded(home):
        try:
            os.kill(pid, number)
            hit.append(str(pid))
        except ProcessLookupError:
            continue
    return hit
