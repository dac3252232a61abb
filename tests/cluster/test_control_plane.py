"""The control plane itself: it is what it says, and it leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkalite_runtime.home import ProcessRecord
from tests.cluster import control_plane as module
from tests.cluster.control_plane import ROOT, ControlPlane
from tests.cluster.processes import Program, StartError


def command(folder: Path, name: str) -> list[str]:
    return [sys.executable, "-m", "tests.cluster", name, "--folder", str(folder)]


def call(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, name), cwd=ROOT, capture_output=True, text=True, check=False, timeout=250)


def processes_of(folder: Path) -> dict[int, str]:
    """Living processes whose command line names the folder."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line:
                found[int(place.name)] = line
    return found


@pytest.fixture(autouse=True)
def nothing_survives(tmp_path):
    """Ends what a failed test has left running."""
    yield
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while found := processes_of(folder):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_up_and_down_by_hand(tmp_path):
    folder = tmp_path / "plane"
    started = call(folder, "up")
    assert started.returncode == 0, started.stderr
    kubeconfig = folder / "state" / "kubeconfig"
    assert started.stdout.splitlines()[-1] == f"export KUBECONFIG={kubeconfig}"
    assert kubeconfig.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
    try:
        listed = subprocess.run(
            [module.programs() / "kubectl", "get", "crd,namespaces", "-o", "name"],
            env={"KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert "customresourcedefinition.apiextensions.k8s.io/kafkalitetopics.kafkalite.io" in listed
        again = call(folder, "up")
        assert again.returncode == 1
        assert "runs in" in again.stderr
        assert len(processes_of(folder)) == 4, "the holder and its three programs"
    finally:
        stopped = call(folder, "down")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert processes_of(folder) == {}
    assert not folder.exists()
    assert call(folder, "down").stdout == f"no control plane runs in {folder}\n"


def test_it_ends_with_its_holder_even_when_that_is_killed(tmp_path):
    folder = tmp_path / "plane"
    assert call(folder, "up").returncode == 0
    record = ProcessRecord.read(folder / "process.json")
    assert record is not None
    assert record.signal(signal.SIGKILL)
    wait_until_gone(folder)
    stopped = call(folder, "down")
    assert stopped.returncode == 0
    assert not folder.exists()


def test_a_program_that_dies_is_reported_and_the_rest_is_stopped(tmp_path):
    folder = tmp_path / "plane"
    holder = subprocess.Popen(
        command(folder, "run"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        while "KUBECONFIG" not in holder.stdout.readline():
            assert holder.poll() is None
        [etcd] = [pid for pid, line in processes_of(folder).items() if "--data-dir" in line]
        os.kill(etcd, signal.SIGKILL)
        _, complaint = holder.communicate(timeout=60)
    finally:
        if holder.poll() is None:
            holder.kill()
            holder.wait()
    assert holder.returncode == 1
    assert complaint.startswith("etcd ended with -9")
    wait_until_gone(folder)


def test_what_is_not_built_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "tools" / "kubernetes").mkdir(parents=True)
    (tmp_path / "tools" / "kubernetes" / "go.mod").write_text("require (\n\tk8s.io/kubernetes v1.99.0\n)\n")
    with pytest.raises(StartError, match=r"Kubernetes v1.99.0 is not built: run `make kubernetes`"):
        ControlPlane(tmp_path / "plane")


def test_a_program_that_cannot_start_says_why(tmp_path):
    program = Program("sh", ["/bin/sh", "-c", "echo no such thing >&2; exit 3"], tmp_path / "log")
    program.process.wait()
    with pytest.raises(StartError, match=r"sh ended with 3[^\n]*\nno such thing"):
        program.check()
