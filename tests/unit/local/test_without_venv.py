"""`make down` and `make clean` where `kafkalite` is not installed (any more)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkalite_cli.local_mode import folder
from kafkalite_runtime.home import Home, ProcessRecord, start_time_of

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path):
    """The folder of a local cluster beside a Makefile."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/local_without_venv.sh", tmp_path / "tools")
    home = Home(tmp_path / ".kafkalite")
    folder.claim(home)
    (home.volumes / "data").mkdir()
    (home.volumes / "data" / "log").write_text("precious")
    for name in folder.FILES:
        (home.root / name.replace("*", "7")).touch()
    return home


def make(home, target, **environ):
    environ = {
        name: value for name, value in os.environ.items() if name not in {"KAFKALITE_HOME", "MAKEFLAGS"}
    } | environ
    return subprocess.run(
        ["make", "--no-print-directory", target], cwd=home.root.parent, env=environ, text=True, capture_output=True
    )


def note(path, *, later=0):
    """A record of this very process, or of one that had its pid before."""
    start_time = start_time_of(os.getpid()) + later
    ProcessRecord(name="x", pid=os.getpid(), start_time=start_time, started_at="now", details={"x": 1}).write(path)


@pytest.mark.parametrize("target", ["down", "clean"])
@pytest.mark.parametrize("record", ["run/supervisor.json", "run/pods/kafkalite-broker-0.json"])
def test_a_cluster_that_runs_is_left_alone(home, target, record):
    note(home.root / record)
    done = make(home, target)
    assert done.returncode
    assert f"the cluster in .kafkalite runs (pid {os.getpid()})" in done.stderr
    assert f"run `make install` and then `make {target}`" in done.stderr
    assert (home.volumes / "data" / "log").read_text() == "precious"


def test_one_that_does_not_run_is_removed_and_nothing_else(home):
    note(home.record("supervisor"), later=1)
    done = make(home, "down")
    assert (done.returncode, done.stdout) == (0, "nothing runs in .kafkalite\n")
    mine = home.root / "mine"
    mine.touch()
    assert make(home, "clean").stdout == "removed the cluster in .kafkalite; what else is in the folder stays\n"
    assert list(home.root.iterdir()) == [mine]
    mine.unlink()
    folder.claim(home)
    assert make(home, "clean").stdout == "removed .kafkalite\n"
    assert make(home, "clean").stdout == "nothing to remove: .kafkalite does not exist\n"


def test_a_folder_that_is_not_marked_is_left_alone(home):
    other = home.root.with_name("other")
    home.root.rename(other)
    (other / folder.MARKER).unlink()
    done = make(home, "clean", KAFKALITE_HOME=str(other))
    assert done.returncode
    assert "is not marked as a folder that `kafkalite up` has made; nothing was stopped or removed" in done.stderr
    assert (other / "volumes" / "data" / "log").exists()
