"""The mutants themselves: each patch fits the present core and makes a core that compiles and imports."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys

import pytest

from tests.mutants.catalog import WANTED, BadPatch, all_mutants, patched_core, read_mutant
from tests.mutants.hunting import Engine
from tests.search.configs import CONFIGS

MUTANTS = all_mutants()
ONE_LINE_FOR_BOTH = ({"M13", "M25"}, {"M14", "M22"})
"""Whether min ISR is asked for at all and which one; whether an election is tested at all and how much of it."""


def by_key(key):
    return next(mutant for mutant in MUTANTS if mutant.key == key)


def touched(mutant):
    text = mutant.path.read_text(encoding="utf-8")
    return re.findall(r"^\+\+\+ b/core/(\S+)", text, re.MULTILINE)


def test_there_is_one_for_each_number():
    assert [mutant.key for mutant in MUTANTS] == list(WANTED)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.path.stem)
def test_the_patch_fits_and_the_core_still_imports(mutant, tmp_path):
    core = patched_core(mutant, tmp_path)
    files = touched(mutant)
    for name in files:
        py_compile.compile(str(core / name), doraise=True)
    modules = [name.removesuffix(".py").replace("/", ".") for name in files]
    script = f"import {', '.join(modules)}; print({modules[0]}.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(core), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(core / files[0]), "another core than the patched one was imported"


def removed(mutant):
    """The lines of code that a patch takes away, as (file, line)."""
    lines, name = set(), ""
    for line in mutant.path.read_text(encoding="utf-8").splitlines():
        if line.startswith("--- "):
            name = line.removeprefix("--- ")
        elif name and line.startswith("-") and line[1:].strip():
            lines.add((name, line[1:].strip()))
    return lines


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.key)
def test_a_rule_is_broken_by_one_of_them(mutant):
    """What two patches take away belongs to one of their rules only, but where a line serves both."""
    others = [one for one in MUTANTS if one is not mutant and {one.key, mutant.key} not in ONE_LINE_FOR_BOTH]
    assert {one.key: both for one in others if (both := removed(one) & removed(mutant))} == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.key)
def test_the_configurations_that_reach_it_exist(mutant):
    assert set(mutant.searches) <= set(CONFIGS)


@pytest.mark.parametrize(
    ("key", "invariant"),
    [("M03", "NoCommittedRecordLost"), ("M07", "HighWatermarkWaitsForAll"), ("M23", "OneLeaderPerEpoch")],
)
def test_some_of_them_are_found_in_seconds(key, invariant, tmp_path):
    """A sample, for the whole chain: patch, copy, process, verdict. All of them: `python -m tests.mutants`."""
    mutant = by_key(key)
    found = Engine(core=patched_core(mutant, tmp_path)).explore(mutant.searches[0], budget_s=120.0)
    assert found.sighting is not None
    assert found.sighting.invariant == invariant
    assert found.sighting.trace


def test_a_patch_that_does_not_fit_is_an_error(tmp_path):
    broken = tmp_path / "M01-changed.patch"
    text = by_key("M01").path.read_text(encoding="utf-8")
    broken.write_text(text.replace("self._not_before_ms = 0.0", "self._not_before_ms = 0.5"), encoding="utf-8")
    with pytest.raises(BadPatch, match="does not apply"):
        patched_core(read_mutant(broken), tmp_path / "core")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Rule: ", "Rules: "), "lacks Rule"),
        (("Mutant: M01", "Mutant: M02"), "number of the file"),
        (("+++ b/core/", "+++ b/runtime/"), "touches runtime/"),
        (("\n--- ", "\n-- "), "no diff"),
    ],
)
def test_a_patch_must_say_what_it_is(change, message, tmp_path):
    path = tmp_path / "M01-changed.patch"
    path.write_text(by_key("M01").path.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(BadPatch, match=message):
        read_mutant(path)
