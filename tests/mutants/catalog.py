"""The mutants: patches that each break one rule of the core, and a copy of the core with one of them applied.

A patch is a unified diff against the repository root that touches `core/` only. What stands before the diff says which
rule is broken, in what way, what should notice it, and which configurations of the exhaustive search can reach it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATCHES: Final = Path(__file__).resolve().parent
WANTED: Final = tuple(f"M{number:02}" for number in range(1, 31))

_FIELDS: Final = ("Mutant", "Rule", "Broken", "Expected", "Search")


class BadPatch(Exception):
    """A patch that is no mutant: it does not apply, touches something else than the core, or its header is wrong."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One way to break the core.

    Attributes:
        key: `M01` to `M30`.
        name: What the file is called, without number.
        rule: The rules that are broken.
        broken: In what way.
        expected: What should notice it.
        searches: Configurations of the exhaustive search that can reach it; none when only the simulator can.
        remark: Why it is broken that way and no other; empty when nothing needs to be said.
        path: The patch.
    """

    key: str
    name: str
    rule: str
    broken: str
    expected: str
    searches: tuple[str, ...]
    remark: str
    path: Path

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("-", " ")


def read_mutant(path: Path) -> Mutant:
    """The mutant in a file. Raises `BadPatch`."""
    text = path.read_text(encoding="utf-8")
    header, separator, diff = text.partition("\n--- ")
    if not separator:
        raise BadPatch(f"{path.name}: no diff")
    fields = dict(re.findall(r"^([A-Z][a-z]+): (.+)$", header, re.MULTILINE))
    missing = [name for name in _FIELDS if name not in fields]
    if missing or fields["Mutant"] != path.name[:3]:
        raise BadPatch(f"{path.name}: the header lacks {', '.join(missing) or 'the number of the file'}")
    touched = re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", "\n--- " + diff, re.MULTILINE)
    foreign = [name for name in touched if not name.startswith("core/")]
    if foreign or not touched:
        raise BadPatch(f"{path.name}: touches {', '.join(foreign) or 'nothing'}")
    searches = () if fields["Search"] == "none" else tuple(fields["Search"].split(", "))
    return Mutant(
        key=fields["Mutant"],
        name=path.stem[4:],
        rule=fields["Rule"],
        broken=fields["Broken"],
        expected=fields["Expected"],
        searches=searches,
        remark=fields.get("Remark", ""),
        path=path,
    )


def all_mutants(directory: Path = PATCHES) -> list[Mutant]:
    """Every mutant, by number."""
    return [read_mutant(path) for path in sorted(directory.glob("M[0-9][0-9]-*.patch"))]


def copy_core(target: Path, root: Path = ROOT) -> Path:
    """A copy of `core/` under `target`; returns what belongs on PYTHONPATH."""
    shutil.copytree(root / "core", target / "core", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    return target / "core"


def patched_core(mutant: Mutant, target: Path, root: Path = ROOT) -> Path:
    """A copy of `core/` with the mutant's patch applied, exactly as it is written. Raises `BadPatch`."""
    core = copy_core(target, root)
    command = ["patch", "-p1", "--fuzz=0", "--batch", "--no-backup-if-mismatch", "-i", str(mutant.path)]
    try:
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BadPatch("the program `patch` is missing: install the package of that name") from error
    if done.returncode:
        raise BadPatch(f"{mutant.path.name} does not apply to the present core:\n{done.stdout}{done.stderr}")
    return core
