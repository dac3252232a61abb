"""What a killed run left is found by its folder; a run that goes on is left alone."""

import os
import subprocess
import sys

from tests.chaos import cleanup


def test_a_folder_whose_process_lives_is_no_orphan(tmp_path):
    cleanup.claim(tmp_path)
    assert not cleanup.is_orphan(tmp_path)
    assert cleanup.sweep(tmp_path.parent) == []


def test_a_folder_whose_process_is_gone_is_one_until_it_is_cleaned(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    code = f"from pathlib import Path; from tests.chaos import cleanup; cleanup.claim(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert cleanup.is_orphan(folder)
    assert cleanup.sweep(tmp_path) == ["run"]
    assert not cleanup.is_orphan(folder)


def test_a_pid_that_belongs_to_another_process_by_now_is_gone(tmp_path):
    (tmp_path / cleanup.OWNER).write_text(f"{os.getpid()} 1")
    assert cleanup.is_orphan(tmp_path)


def test_a_folder_that_nobody_claimed_is_not_touched(tmp_path):
    assert not cleanup.is_orphan(tmp_path)


def test_names_of_namespaces_fit_and_differ(tmp_path):
    first = cleanup.namespace_tag(tmp_path / "net-isolate-leader-steady-201501123")
    second = cleanup.namespace_tag(tmp_path / "net-isolate-leader-steady-201501124")
    assert first != second
