"""With which Python the operators are measured."""

import platform
import subprocess
import sys

import pytest

from bench.processes import python_of_images


def fake(folder, version):
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_debian_s_python_of_the_same_version_imports_what_this_one_does(tmp_path):
    minor = ".".join(platform.python_version_tuple()[:2])
    path, imported, version = python_of_images(fake(tmp_path, f"{minor}.99"))
    assert (path, version) == (str(tmp_path / "python3"), f"{minor}.99 (Debian's, as in the images of the tests)")
    command = [sys.executable, "-S", "-c", "import kafkalite_operator.main"]
    subprocess.run(command, env={"PYTHONPATH": imported}, check=True, timeout=60)
    assert sys.base_prefix not in imported


@pytest.mark.parametrize("version", ["3.4.1", "", "3.110.2"])
def test_another_version_cannot_import_the_same(tmp_path, version):
    path, _, told = python_of_images(fake(tmp_path, version))
    assert (path, told) == (sys.executable, platform.python_version())


def test_where_there_is_none_this_one_runs(tmp_path):
    assert python_of_images(tmp_path / "none")[0] == sys.executable
