"""Sends a signal to the program of a pod, from a pod of the same node that sees its processes: kill.py POD-UID PROGRAM SIGNAL

From within its own pod the first process of a container cannot be killed, or stopped.
"""

import os
import signal
import sys
from pathlib import Path

uid, program, name = sys.argv[1:]
found = []
for place in Path("/proc").iterdir():
    if place.name.isdigit():
        try:
            cgroup, command = (place / "cgroup").read_text(), (place / "cmdline").read_text()
        except OSError:
            continue
        # cgroup drivers write the uid with hyphens or with underscores
        if uid in cgroup.replace("_", "-") and program in command:
            found.append(int(place.name))
if len(found) != 1:
    sys.exit(f"{len(found)} processes of {program} in the pod {uid}: {found}")
os.kill(found[0], signal.Signals[name])
