"""A real control plane by hand, without nodes, or a whole cluster of four nodes.

python -m tests.cluster up       in the background; prints the KUBECONFIG to export
python -m tests.cluster down     stops it and removes its state
python -m tests.cluster run      in the foreground, until Ctrl-C

python -m tests.cluster kind up|down|status|load IMAGE ...       the same with nodes, by kind
python -m tests.cluster images                                   the images of broker and operator
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from kafkalite_local.processes import adopt, now_text
from kafkalite_runtime.home import ProcessRecord, start_time_of
from tests.cluster.control_plane import READY_LIMIT_S, ROOT, ControlPlane, programs
from tests.cluster.kind import commands as kind_commands
from tests.cluster.processes import StartError

DEFAULT_FOLDER = ROOT / ".cache" / "control-plane"
CHECK_INTERVAL_S = 0.5
STOP_LIMIT_S = 60.0


class Place:
    """The folder of a control plane that runs by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "process.json"
        self.log = folder / "control-plane.log"
        self.ready = folder / "ready"
        self.state = folder / "state"

    def running(self) -> ProcessRecord | None:
        return adopt(self.record)

    def claim(self) -> None:
        """Make it ours, and empty. Raises StartError when a control plane runs there, or something else is there."""
        if found := self.running():
            raise StartError(f"a control plane runs in {self.folder} already (pid {found.pid}): stop it with `down`")
        if self.folder.exists() and not self.record.exists() and any(self.folder.iterdir()):
            raise StartError(f"{self.folder} is not a folder of ours and not empty: name another with --folder")
        self.remove()
        self.folder.mkdir(parents=True, mode=0o700)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def run(place: Place) -> None:
    """Hold a control plane until a signal comes or one of its programs ends."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    # `up` has made the folder and the record of this process.
    if (found := place.running()) is None or found.pid != os.getpid():
        place.claim()
        write_record(place, os.getpid())
    plane = ControlPlane(place.state, say=lambda line: print(line, flush=True))
    try:
        plane.start()
        place.ready.touch()
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        while not asked.wait(CHECK_INTERVAL_S):
            plane.check()
    finally:
        plane.stop()
        if asked.is_set():  # else the logs are of use
            place.remove()


def up(place: Place) -> None:
    """Start `run` in the background and wait until it is ready."""
    programs()
    place.claim()
    with place.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster", "run", "--folder", str(place.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            start_new_session=True,
        )
    write_record(place, process.pid)
    deadline = time.monotonic() + 2 * READY_LIMIT_S
    while not place.ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            raise StartError(
                place.log.read_text() + f"\nthe control plane did not start; its logs are in {place.folder}"
            )
        time.sleep(0.05)
    print(place.log.read_text(), end="")


def write_record(place: Place, pid: int) -> None:
    started = start_time_of(pid)
    if started is not None:
        ProcessRecord(name="control-plane", pid=pid, start_time=started, started_at=now_text()).write(place.record)


def down(place: Place) -> None:
    """Stop it and wait until its folder is gone."""
    found = place.running()
    if found is None:
        print(f"no control plane runs in {place.folder}")
        if place.record.exists():
            place.remove()
        return
    found.signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_LIMIT_S
    while found.alive():
        if time.monotonic() > deadline:
            raise StartError(f"pid {found.pid} does not end; its log is {place.log}")
        time.sleep(0.05)
    print("stopped")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {"up": up, "down": down, "run": run}
    parsers = parser.add_subparsers(dest="command", required=True)
    for name, command in commands.items():
        parsers.add_parser(name, help=command.__doc__).add_argument(
            "--folder", type=Path, default=DEFAULT_FOLDER, help=f"its state while it runs ({DEFAULT_FOLDER})"
        )
    kind_commands.add_parser(parsers.add_parser("kind", help="a cluster of four nodes"))
    kind_commands.add_images_parser(parsers.add_parser("images", help="build the images of broker and operator"))
    arguments = parser.parse_args()
    try:
        if arguments.command == "images":
            kind_commands.run_images(arguments)
        elif arguments.command == "kind":
            kind_commands.run(arguments)
        else:
            commands[arguments.command](Place(arguments.folder.absolute()))
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
