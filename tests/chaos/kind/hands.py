"""What is done within the nodes, which are containers of Docker: it needs no API server, and can be taken back."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafkalite_core.storage.checkpoints import CLEANER, HIGH_WATERMARK, LOG_START
from kafkalite_core.storage.identity import IDENTITY_FILE
from tests.cluster.kind import cluster as kind
from tests.cluster.processes import StartError
from tests.e2e.cluster import CommandError
from tests.e2e.harm import CONTROL_PLANE, MANIFESTS, Nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VOLUMES = "/var/local-volumes"
TABLE = "inet kafkalite_chaos"
COPY_LIMIT_S = 300
WAYS = {"out": "saddr", "in": "daddr"}
# cgroup drivers write the uid of a pod with hyphens or with underscores. What is not there any more is nobody's.
SIGNAL = """\
found=0
for place in /proc/[0-9]*; do
    if tr _ - <$place/cgroup | grep -q {uid} && tr '\\0' ' ' <$place/cmdline | grep -q {program}; then
        kill -{name} ${{place#/proc/}} && found=$((found + 1))
    fi
done 2>/dev/null
echo $found
"""
CONTINUE = """\
for place in /proc/[0-9]*; do
    if tr '\\0' ' ' <$place/cmdline | grep -qE 'kafkalite-(broker|operator)|kube-apiserver'; then
        kill -CONT ${{place#/proc/}}
    fi
done 2>/dev/null
nft delete table {table} 2>/dev/null
if [ -e /etc/kubernetes/kube-apiserver.yaml ]; then mv /etc/kubernetes/kube-apiserver.yaml {manifests}/; fi
"""
# Indexes are large and mostly holes, and nobody compares them.
COPY = "cd {folder} && tar -cf - --exclude='*index' $(ls -d {names} 2>/dev/null)"
COPIED = (IDENTITY_FILE, HIGH_WATERMARK, LOG_START, CLEANER)


class Hands(Nodes):
    """As `Nodes`, and more."""

    def run(self, node: str, script: str) -> str:
        """What a script prints that a node's shell does. Raises StartError when it fails."""
        return self.docker("exec", node, "sh", "-c", script)

    def signal(self, node: str, uid: str, program: str, name: str) -> int:
        """Send a signal (as KILL) to the processes of a program in the pod with this uid; how many there were."""
        return int(self.run(node, SIGNAL.format(uid=uid, program=program, name=name)))

    def api_server(self) -> str:
        """The process of the API server; empty while there is none."""
        return self.run(CONTROL_PLANE, "pidof kube-apiserver || true").strip()

    @contextmanager
    def dropped(self, node: str, address: str, way: str) -> Iterator[None]:
        """Packets of the pod with this address, on this node, are dropped one way: `out` those that it sends, or `in`."""
        forward = "{ type filter hook forward priority -50; }"
        self.run(node, f"nft add table {TABLE} && nft add chain {TABLE} forward '{forward}' && "
                       f"nft add rule {TABLE} forward ip {WAYS[way]} {address} counter drop")  # fmt: skip
        try:
            yield
        finally:
            self.run(node, f"nft delete table {TABLE}")

    def packets_dropped(self, node: str) -> int:
        """By what `dropped` does at present."""
        return sum(int(each) for each in re.findall(r"packets (\d+)", self.run(node, f"nft list table {TABLE}")))

    def wipe(self, node: str, volume: str) -> None:
        """Remove everything from a volume, which is a folder of the node."""
        self.run(node, f"cd {VOLUMES}/{volume} && find . -mindepth 1 -delete")

    def copy_logs(self, node: str, volume: str, topic: str, target: Path) -> None:
        """The segments of the topic on a broker's volume, with the checkpoints, into a new folder."""
        names = " ".join([*COPIED, f"{topic}-[0-9]*"])
        script = COPY.format(folder=f"{VOLUMES}/{volume}", names=names)
        target.mkdir(parents=True)
        with tempfile.TemporaryFile(dir=target.parent) as file:
            words, environment = ["docker", "exec", node, "sh", "-c", script], {**os.environ, **self._environment}
            done = subprocess.run(
                words, stdout=file, stderr=subprocess.PIPE, timeout=COPY_LIMIT_S, check=False, env=environment
            )
            if done.returncode > 1:  # 1: a checkpoint of other topics was written meanwhile
                raise StartError(f"{node}: {done.stderr.decode(errors='replace')[-500:]}")
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                tar.extractall(target, filter="data")

    def heal(self) -> list[str]:
        """Take back whatever may have been done to nodes and control plane; what had been. Harmless when it was nothing."""
        healed = []
        mine = f"label=io.x-k8s.kind.cluster={kind.NAME}"
        form = "{{.Names}} {{.State}}"
        for line in self.docker("ps", "--all", f"--filter={mine}", f"--format={form}").splitlines():
            node, state = line.split()
            if state == "paused":
                self.docker("unpause", node)
            elif state != "running":
                self.docker("start", node)
            healed += [] if state == "running" else [f"{node} was {state}"]
            self.run(node, CONTINUE.format(table=TABLE, manifests=MANIFESTS))
        self._api_answers()
        for node in self.cluster.items("nodes"):
            name = node["metadata"]["name"]
            if node["spec"].get("unschedulable"):
                self.cluster.kubectl("uncordon", name)
                healed.append(f"{name} was cordoned")
            with suppress(CommandError, subprocess.TimeoutExpired):  # whoever needs it waits for it
                self._ready(name)
        return healed
