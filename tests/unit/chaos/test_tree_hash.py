"""The hash under which proofs are recorded changes with the program, and with nothing else."""

import subprocess

import pytest

from tools.tree_hash import PROVEN, tree_hash


@pytest.fixture
def work_tree(tmp_path):
    for name in PROVEN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(f"NAME = {name!r}\n")
    (tmp_path / "README.md").write_text("words\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("name", PROVEN)
def test_a_changed_byte_changes_the_hash(work_tree, name):
    before = tree_hash(work_tree)
    (work_tree / name / "module.py").write_text("NAME = None\n")
    assert tree_hash(work_tree) != before


def test_names_count(work_tree):
    before = tree_hash(work_tree)
    (work_tree / "core" / "module.py").rename(work_tree / "core" / "other.py")
    subprocess.run(["git", "add", "."], cwd=work_tree, check=True)
    assert tree_hash(work_tree) != before


def test_what_is_not_the_program_does_not_count(work_tree):
    before = tree_hash(work_tree)
    (work_tree / "README.md").write_text("other words\n")
    (work_tree / "core" / "scratch.log").write_text("not tracked\n")
    assert tree_hash(work_tree) == before


def test_a_tracked_file_that_is_gone_changes_it_and_breaks_nothing(work_tree):
    before = tree_hash(work_tree)
    (work_tree / "runtime" / "module.py").unlink()
    assert tree_hash(work_tree) != before
