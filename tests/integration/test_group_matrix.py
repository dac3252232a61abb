"""Some cells of the matrix of clients, group sizes, assignors and harms; `python -m tests.integration.group_matrix` has
all of them, and stricter limits for what is called stuck. KAFKALITE_MATRIX_SEED chooses other cells and other victims.
"""

import os

import pytest

from tests.integration.coordinators import without_initial_delay
from tests.integration.group_matrix.cells import sample
from tests.integration.group_matrix.run import GENEROUS, CellRun, last_words

SEED = int(os.environ.get("KAFKALITE_MATRIX_SEED", "7"))
CELLS = 8


@pytest.fixture(scope="module", autouse=True)
def no_initial_delay(shared_cluster):
    with without_initial_delay(shared_cluster):
        yield


CHOSEN = [cell for cell in sample(SEED, CELLS) if (cell.client, cell.harm) != ("kcat", "at once")]
"""Without one kind, which `make group-matrix` judges: once in about 30 of its cells kcat (librdkafka 2.0.2) took over a
partition that had no commit while its leader was dead, and did not fetch it within a minute. Why is not known yet."""


@pytest.mark.parametrize("cell", CHOSEN, ids=lambda cell: cell.name)
def test_members_and_coordinators_are_killed(cluster, cell, tmp_path):
    print(f"KAFKALITE_MATRIX_SEED={SEED}")
    run = CellRun(cluster, cell, tmp_path, SEED)
    verdict = run.run(GENEROUS)
    print(verdict.figures)
    errors = {path.name: path.read_text()[-500:] for path in tmp_path.glob("*.err")}
    assert verdict.problems == [], (last_words(run.history)[-40:], errors)
