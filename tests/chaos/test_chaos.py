"""A few short scenarios with every test run: safety and convergence, with generous deadlines. `make chaos` runs them all.

Which ones follows from the hash of the program: the same program gets the same sample, the next one another.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.chaos.__main__ import play_apart, show
from tests.chaos.ledger import PASSED
from tests.chaos.scenarios import SAMPLE
from tools.tree_hash import tree_hash

SEED = int(tree_hash()[:8], 16)
CHOSEN = [Random(SEED).choice(group) for group in SAMPLE.values()]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CHOSEN)
def test_nothing_acknowledged_is_lost(name):
    print(f"python -m tests.chaos --scenario {name} --seed {SEED} --rounds 1")
    line = play_apart(name, SEED, rounds=1)
    show(line)
    assert line.verdict == PASSED, line.reason
