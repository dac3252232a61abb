"""Root file systems of images, from Debian's packages: what `FROM` is where no registry can be asked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster.kind.machine import program
from tests.cluster.kind.stages import CACHE, call, say

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "bookworm"
# Read by nobody in an image; half of a small root.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class Root:
    """One root file system.

    Attributes:
        variant: of mmdebstrap: minbase is a Debian with apt, extract the unpacked files of the packages and nothing else.
    """

    name: str
    variant: str
    packages: tuple[str, ...]

    def tar(self) -> Path:
        """Its archive, made once for each list of packages."""
        options = [
            f"--variant={self.variant}",
            f"--include={','.join(self.packages)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT),
            "--skip=output/dev",  # who runs the image makes these
        ]
        key = hashlib.sha256("\n".join([SUITE, *options]).encode()).hexdigest()[:12]
        folder = CACHE / "roots"
        target = folder / f"{self.name}-{key}.tar"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            say(f"fetching the packages of {target.name} (once; up to a minute) ...")
            unfinished = target.with_suffix(".new.tar")
            call(program("mmdebstrap"), "--quiet", *options, SUITE, unfinished)
            unfinished.rename(target)
        return target


NODE = Root(
    "node",
    "minbase",
    # systemd runs the node, containerd the pods; the rest is called by kind, kubelet, kubeadm and kube-proxy.
    ("systemd", "systemd-sysv", "dbus", "containerd", "runc", "containernetworking-plugins", "conntrack", "iptables",
     "nftables", "iproute2", "ethtool", "mount", "util-linux", "kmod", "procps", "socat", "ca-certificates", "curl", "jq",
     "hostname"),
)  # fmt: skip
PROXY = Root("kube-proxy", "extract", ("iptables",))
PYTHON = Root("python", "extract", ("base-files", "dash", "python3"))
PYTHON_BUILD = Root("python-build", "extract", ("base-files", "coreutils", "dash", "grep", "python3-venv", "sed"))
JAVA = Root(
    "java",
    "extract",
    ("base-files", "bash", "coreutils", "dash", "grep", "openjdk-17-jre-headless", "procps", "python3", "sed"),
)
