"""A copy of the program with a rule broken, to see that the judges notice.

    python -m tests.chaos --scenario power-loss-all/single --patch tests/chaos/broken/no-sync.patch

The patches of tests/mutants serve as well. Nothing is added to the ledger; the exit code is 0 when the run was judged broken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.chaos.cluster import ChaosError
from tools.tree_hash import PROVEN

if TYPE_CHECKING:
    from pathlib import Path


def patched_copy(root: Path, patch: Path, target: Path) -> str:
    """Copy what the tree hash covers, apply the patch; the PYTHONPATH that puts the copy first. Raises ChaosError."""
    shutil.rmtree(target, ignore_errors=True)
    for name in PROVEN:
        shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    # Without the repository around it git applies a patch to whatever lies here, as patch(1) does.
    environment = dict(os.environ, GIT_CEILING_DIRECTORIES=str(target.absolute().parent))
    command = ["git", "apply", "-p1", str(patch.absolute())]
    done = subprocess.run(command, cwd=target, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChaosError(f"{patch} does not apply: {done.stdout}{done.stderr}")
    return os.pathsep.join(str(target / name) for name in PROVEN)
