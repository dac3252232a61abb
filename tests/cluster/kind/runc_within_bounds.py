#!/usr/bin/python3 -IS
"""runc where root lacks capabilities: a privileged container asks for all there are, and gets those that we have.

Without this, runc fails with "unable to apply caps". Docker calls it in place of runc (`dockerd --add-runtime`).
"""

import json
import os
import sys
from pathlib import Path

# The numbers of include/uapi/linux/capability.h, in their order.
NAMES = """chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service
net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot
sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog
wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore""".split()  # noqa: SIM905


def held():
    """Names of the capabilities that this process may pass on."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            bits = int(line.split()[1], 16)
    return {f"CAP_{name.upper()}" for number, name in enumerate(NAMES) if bits >> number & 1}


def documents(arguments):
    """The files that say what a container (create, run) or a process in it (exec) may do."""
    for option, name in (("--bundle", "config.json"), ("-b", "config.json"), ("--process", ""), ("-p", "")):
        for index, word in enumerate(arguments):
            if word == option:
                yield Path(arguments[index + 1], name)
            elif word.startswith(option + "="):
                yield Path(word.split("=", 1)[1], name)


def cut(path, limit):
    document = json.loads(path.read_text())
    process = document.get("process", document)
    capabilities = process.get("capabilities") or {}
    process["capabilities"] = {kind: [name for name in names if name in limit] for kind, names in capabilities.items()}
    path.write_text(json.dumps(document))


if __name__ == "__main__":
    for place in documents(sys.argv[1:]):
        if place.is_file():
            cut(place, held())
    os.execv("/usr/sbin/runc", ["runc", *sys.argv[1:]])
