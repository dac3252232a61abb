"""The second face of the virtual environment: its scripts wait, read their settings, and become the real programs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.launcher import Launcher


@pytest.fixture
def launcher(tmp_path):
    """Of an environment whose broker prints what it was started with."""
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    (tmp_path / "venv" / "lib").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (binaries / "python").symlink_to(sys.executable)
    program = binaries / "kafkalite-broker"
    program.write_text('#!/bin/sh\necho "$$ ${CHOSEN:-none} $*"\n')
    program.chmod(0o755)
    made = Launcher(tmp_path / "launch er", binaries / "python")
    made.make()
    return made


def start(launcher: Launcher) -> subprocess.Popen:
    return subprocess.Popen(
        [launcher.python.with_name("kafkalite-broker"), "one", "two words"],
        env=dict(os.environ, POD_NAME="kafkalite-broker-1"),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_program_gets_the_arguments_and_the_pid(launcher):
    with start(launcher) as process:
        assert process.communicate(timeout=10)[0] == f"{process.pid} none one two words\n"


def test_settings_of_its_pod_apply_and_those_of_others_do_not(launcher):
    launcher.configure("kafkalite-broker-0", ["export CHOSEN=other"])
    launcher.configure("kafkalite-broker-1", ["export CHOSEN=mine", "prefix='env EXTRA=1'"])
    with start(launcher) as process:
        assert process.communicate(timeout=10)[0] == f"{process.pid} mine one two words\n"


def test_a_pod_that_is_held_back_waits(launcher):
    with launcher.held("kafkalite-broker-1"):
        process = start(launcher)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        assert launcher.is_waiting(process.pid)
    with process:
        assert process.communicate(timeout=10)[0].endswith("one two words\n")


def test_it_is_the_same_environment(tmp_path):
    """An interpreter started here sees the packages of the real one."""
    made = Launcher(tmp_path / "launcher")
    made.make()
    code = "import sys, kafkalite_core, msgspec; print(sys.executable)"
    done = subprocess.run([made.python, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert Path(done.stdout.strip()) == made.python


def test_settings_are_replaced_in_one_step(launcher):
    launcher.configure("p", ["a"])
    launcher.configure("p", ["b"])
    folder = launcher.folder / "settings"
    assert [path.name for path in folder.iterdir()] == ["p.sh"]
    assert time.time() - (folder / "p.sh").stat().st_mtime < 60
