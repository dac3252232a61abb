"""What the machine has to have: root, and Debian's packages around Docker, which are installed without being started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.cluster.kind.stages import CACHE, call, say
from tests.cluster.processes import StartError

# Program -> the package that has it. /usr/local is not asked: whatever is there is not this Docker.
PACKAGES = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "tini": "tini",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
# What systemd, kubelet and Docker would set for the whole machine, below /proc/sys. node/files/kind/bin/own-sysctls keeps
# the nodes from it; Docker itself is not kept.
SYSCTLS = (
    "fs/file-max",
    "fs/nr_open",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
PROC_SYS = Path("/proc/sys")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
INSTALLED = CACHE / "packages"
POLICY = Path("/usr/sbin/policy-rc.d")
FORBID_STARTS = "#!/bin/sh\n# Packages that are being installed must not start their services: Docker would change the rules of the host.\nexit 101\n"


def require_root() -> None:
    """Raises StartError for anybody else."""
    if sys.platform != "linux":
        raise StartError("a cluster without Docker's help needs Linux: its nodes share the kernel of this machine")
    if os.geteuid() != 0:
        raise StartError(
            "root is needed (namespaces, mounts, packages): run this as root, or start Docker and let it pull"
        )


def program(name: str) -> Path:
    """Where one of Debian's programs is. Raises StartError when its package is not installed."""
    found = shutil.which(name, path=PATH)
    if found is None:
        raise StartError(f"{name} is missing: apt-get install {PACKAGES.get(name, name)}")
    return Path(found)


def missing() -> list[str]:
    """Packages that have to be installed."""
    return sorted({package for name, package in PACKAGES.items() if shutil.which(name, path=PATH) is None})


def install_packages() -> None:
    """With apt, nothing that is there already; services stay off. Raises StartError where there is no apt."""
    packages = missing()
    if not packages:
        return
    if shutil.which("apt-get", path=PATH) is None:
        raise StartError(f"no Docker runs here, and without apt it cannot be installed: install {' '.join(packages)}")
    say(f"installing {' '.join(packages)}; they stay installed: apt-get purge {' '.join(packages)}")
    INSTALLED.parent.mkdir(parents=True, exist_ok=True)
    with INSTALLED.open("a") as noted:  # before they are: who ends us meanwhile leaves them there all the same
        noted.write("".join(f"{package}\n" for package in packages))
    apt = {"DEBIAN_FRONTEND": "noninteractive"}
    call("apt-get", "update", "-qq", environment=apt)
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text(FORBID_STARTS)
        POLICY.chmod(0o755)
    try:
        call("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, environment=apt)
    finally:
        if ours:
            POLICY.unlink()


def left_installed() -> list[str]:
    """Packages that `install_packages` has installed, at any time, and that are here still."""
    noted = INSTALLED.read_text().split() if INSTALLED.exists() else []
    return sorted(set(noted) - set(missing()))


def sysctls() -> dict[str, str]:
    """Those that must not change, as they are."""
    return {name: (PROC_SYS / name).read_text().strip() for name in SYSCTLS if (PROC_SYS / name).exists()}


def restore_sysctls(before: dict[str, str]) -> None:
    """Set what differs from `before`, and say so."""
    now = sysctls()
    for name, value in before.items():
        if now.get(name, value) != value:
            say(f"{name.replace('/', '.')} was {value} and is {now[name]}: it is set back")
            (PROC_SYS / name).write_text(value)


def lacks_capabilities() -> bool:
    """Whether root here is less than root, as in some virtual machines and on some CI runners."""
    fields = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    return int(fields["CapBnd"], 16) != (1 << (last + 1)) - 1
