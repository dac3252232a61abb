"""Some cells of the matrix of clients, group sizes, assignors and harms; `python -m tests.integration.group_matrix` has
all of them, and stricter limits for what is called stuck. KAFKALITE_MATRIX_SEED chooses other cells and other victims.
"""

import os

import pytest

from tests.integration.coordinators import without_initial_delay
from tests.integration.group_matrix.cells import sample
from tests.integration.group_matrix.known import excuse
from tests.integration.group_matrix.run import GENEROUS, CellRun, last_words

SEED = int(os.environ.get("KAFKALITE_MATRIX_SEED", "7"))
CELLS = 8


@pytest.fixture(scope="module", autouse=True)
def no_initial_delay(shared_cluster):
    with without_initial_delay(shared_cluster):
        yield


@pytest.mark.parametrize("cell", sample(SEED, CELLS), ids=lambda cell: cell.name)
def test_members_and_coordinators_are_killed(cluster, cell, tmp_path):
    print(f"KAFKALITE_MATRIX_SEED={SEED}")
    run = CellRun(cluster, cell, tmp_path, SEED)
    verdict = run.run(GENEROUS)
    print(verdict.figures)
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.err")}
    if verdict.problems and (words := excuse(run.history, verdict.problems, map(str.splitlines, logs.values()))):
        pytest.xfail(words)
    errors = {name: text[-500:] for name, text in logs.items()}
    assert verdict.problems == [], (last_words(run.history)[-40:], errors)
