"""The broken copies: every patch of ours still applies, and breaks what it says it breaks."""

import re
from pathlib import Path

import pytest

from tests.chaos.cluster import ChaosError
from tests.chaos.patched import patched_copy
from tools.tree_hash import PROVEN

ROOT = Path(__file__).resolve().parents[3]
PATCHES = sorted((ROOT / "tests" / "chaos" / "broken").glob("*.patch"))


def test_there_are_patches():
    assert PATCHES


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_a_patch_applies_to_the_program(patch, tmp_path):
    path = patched_copy(ROOT, patch, tmp_path / "copy")
    assert [Path(entry).name for entry in path.split(":")] == list(PROVEN)
    changed = [
        str(file.relative_to(tmp_path / "copy"))
        for file in (tmp_path / "copy").glob("**/*.py")
        if file.read_bytes() != (ROOT / file.relative_to(tmp_path / "copy")).read_bytes()
    ]
    assert sorted(changed) == sorted(re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE))


def test_a_patch_that_does_not_apply_is_an_error(tmp_path):
    patch = tmp_path / "old.patch"
    patch.write_text("--- a/core/none.py\n+++ b/core/none.py\n@@ -1,1 +1,1 @@\n-x\n+y\n")
    with pytest.raises(ChaosError, match="does not apply"):
        patched_copy(ROOT, patch, tmp_path / "copy")
