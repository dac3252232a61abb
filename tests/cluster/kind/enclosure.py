"""Docker that the rest of the machine does not notice: in namespaces of its own for mounts, network and processes.

Its bridges, rules, sysctls of the network, sockets and mounts are inside, and gone with the last process: that is the
kernel's doing, whatever state Docker is in. Outside there are one end of a pair of network devices, by which the API
server is reached, a cgroup, and the folder with Docker's images and containers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite_local.processes import adopt, now_text
from kafkalite_runtime.home import ProcessRecord, start_time_of
from tests.cluster.kind.machine import PATH, lacks_capabilities, program, restore_sysctls, sysctls
from tests.cluster.kind.stages import CACHE, call
from tests.cluster.processes import StartError, die_with

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "kafkalite-kind"
# Link-local (RFC 3927): routed by nobody, and no network of anybody's is hidden by it.
OUTSIDE, INSIDE = "169.254.107.1", "169.254.107.2"
CGROUP = "kafkalite-kind"
CGROUPS = Path("/sys/fs/cgroup")
START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
POLL_S = 0.05
WRAPPER = Path(__file__).with_name("runc_within_bounds.py")
# The first process inside. /run is emptied so that no socket or lock of the host is met; modprobe is taken away because
# Docker would load br_netfilter, which changes how bridges of the whole machine behave.
SETUP = """\
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
if command -v modprobe >/dev/null; then mount --bind /bin/true "$(command -v modprobe)"; fi
ip link set lo up
exec tini -s -- dockerd "$@"
"""


class Enclosure:
    """The one of this checkout; there can be one on a machine.

    Attributes:
        ends_with_us: What is started is killed when this process ends, however it ends.
    """

    def __init__(self, folder: Path = CACHE) -> None:
        self.data = folder / "docker"
        self.record = folder / "enclosure.json"
        self.before = folder / "sysctls.json"
        self.ends_with_us = False
        self.log = folder / "dockerd.log"

    def running(self) -> ProcessRecord | None:
        """The process outside that everything inside ends with."""
        return adopt(self.record)

    @property
    def first(self) -> int:
        """The first process inside. Raises StartError when nothing runs."""
        if (outside := self.running()) is not None:
            children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            if children:
                return int(children[0])
        raise StartError(f"Docker has ended; the end of {self.log}:\n{self._last_words()}")

    def environment(self) -> dict[str, str]:
        """For docker and kind outside: its socket is seen through the first process."""
        return {
            "DOCKER_HOST": f"unix:///proc/{self.first}/root/run/docker.sock",
            "DOCKER_BUILDKIT": "0",  # BuildKit would call runc itself
            "DOCKER_CONFIG": str(self.data / "client"),  # neither contexts nor passwords of the user
            "PATH": PATH,
        }

    def docker(self, *arguments: str | Path, limit_s: float = 900.0) -> str:
        """The standard output of docker."""
        return call(program("docker"), *arguments, environment=self.environment(), limit_s=limit_s)

    def start(self) -> None:
        """Do nothing when it runs; else start it and wait for it.

        Raises:
            StartError: it did not start, with its log; what had been started is gone again.
        """
        if self.running() is not None:
            return
        if Path(f"/sys/class/net/{DEVICE}").exists():
            raise StartError(f"the device {DEVICE} is there: a cluster of another checkout runs; stop it there first")
        self._remove_cgroups()
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.before.exists():  # what is there is from a start that ended without a stop
            self.before.write_text(json.dumps(sysctls()))
        spaces = [program("unshare"), "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        us = os.getpid()
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [*spaces, "sh", "-c", SETUP, "dockerd", *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": PATH, "HOME": "/root"},
                start_new_session=True,
                preexec_fn=(lambda: die_with(us)) if self.ends_with_us else None,
            )
        try:
            if (started := start_time_of(process.pid)) is None:
                raise StartError(f"Docker did not start: {self._last_words()}")
            ProcessRecord(name="kind", pid=process.pid, start_time=started, started_at=now_text()).write(self.record)
            self._await(self._docker_answers)
            self._connect()
        except BaseException:
            process.kill()
            self.stop()
            raise

    def stop(self) -> None:
        """End everything inside, and remove what is outside but the images."""
        outside = self.running()
        if outside is not None:
            with contextlib.suppress(StartError, ProcessLookupError):
                os.kill(self.first, signal.SIGTERM)  # tini passes it on, and Docker stops its containers
            if not self._ends_within(outside, STOP_LIMIT_S):
                outside.signal(signal.SIGKILL)
                self._ends_within(outside, STOP_LIMIT_S)
        if Path(f"/sys/class/net/{DEVICE}").exists() and outside is not None:
            # The namespace is taken apart after its last process; the device would go then, but later than we return.
            subprocess.run([program("ip"), "link", "delete", DEVICE], capture_output=True, check=False)
        self._remove_cgroups()
        if self.before.exists():
            restore_sysctls(json.loads(self.before.read_text()))
            self.before.unlink()
        self.record.unlink(missing_ok=True)

    def nothing_is_left(self) -> list[str]:
        """What is still there of it outside, which should be nothing."""
        found = [f"cgroup {path}" for path in self._cgroups()]
        if Path(f"/sys/class/net/{DEVICE}").exists():
            found.append(f"device {DEVICE}")
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        return found + [f"mount {line.split()[1]}" for line in mounts if str(self.data) in line]

    # -- its parts -----------------------------------------------------------------------------------------------------

    def _options(self) -> list[str]:
        options = [
            "--host=unix:///run/docker.sock",
            f"--data-root={self.data}",
            "--exec-root=/run/docker",
            "--pidfile=/run/docker.pid",
            f"--cgroup-parent=/{CGROUP}",
            "--exec-opt=native.cgroupdriver=cgroupfs",  # systemd is not asked: its bus is out of reach
            "--log-level=warn",
        ]
        if lacks_capabilities():
            options += ["--oom-score-adjust=0", f"--add-runtime=bounded={WRAPPER}", "--default-runtime=bounded"]
        return options

    def _docker_answers(self) -> bool:
        try:
            self.docker("version", "--format", "{{.Server.Version}}", limit_s=10)
        except StartError:
            return False
        return True

    def _connect(self) -> None:
        """The pair of devices between the namespaces of host and Docker."""
        ip, inside = program("ip"), str(self.first)
        call(ip, "link", "add", DEVICE, "type", "veth", "peer", "name", "outside", "netns", inside)
        call(ip, "address", "add", f"{OUTSIDE}/30", "dev", DEVICE)
        call(ip, "link", "set", DEVICE, "up")
        enter = [program("nsenter"), f"--net=/proc/{inside}/ns/net", ip]
        call(*enter, "address", "add", f"{INSIDE}/30", "dev", "outside")
        call(*enter, "link", "set", "outside", "up")

    def _await(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not ready():
            if self.running() is None or time.monotonic() > deadline:
                raise StartError(f"Docker did not start; the end of {self.log}:\n{self._last_words()}")
            time.sleep(POLL_S)

    def _ends_within(self, process: ProcessRecord, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while process.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:]) if self.log.exists() else ""

    def _cgroups(self) -> list[Path]:
        """One per hierarchy: that is one with cgroup v2, several with v1."""
        return [place for place in (CGROUPS / CGROUP, *CGROUPS.glob(f"*/{CGROUP}")) if place.is_dir()]

    def _remove_cgroups(self) -> None:
        """Docker removes those of containers that it has stopped, but not their parent."""
        for place in self._cgroups():
            for path, _, _ in os.walk(place, topdown=False):
                try:
                    Path(path).rmdir()
                except OSError as error:  # a process is in it, or ends just now
                    raise StartError(f"the cgroup {path} cannot be removed: {error}") from error

    def remove_data(self) -> None:
        """Images and containers too."""
        shutil.rmtree(self.data, ignore_errors=True)
