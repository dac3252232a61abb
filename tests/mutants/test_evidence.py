"""What `docs/proof.md` says of the ledgers: sums of one program, and whatever broke is in bold."""

from __future__ import annotations

import msgspec
import pytest

from tests.chaos import ledger as chaos
from tests.mutants.evidence import Ledgers, render
from tests.search import ledger as search
from tests.simulation import ledger as simulation

TREE, OTHER = "a" * 64, "b" * 64


def histories(first, last, *, tree=TREE, simulator="one", time="2026-11-01T00:00:00Z", failed=None, limits=None):
    return simulation.Line(
        time=time, tree=tree, simulator=simulator, first=first, last=last, histories=last - first, events=10, acked=100,
        elections=7, faults={"crash": 5}, median_events=1, median_faults=1, median_acked=1,
        verdict=simulation.VIOLATED if failed else simulation.CLEAN, failed=failed or {}, limits=limits or {},
        seconds=1.0, cpu_seconds=1.0,
    )  # fmt: skip


def attack(verdict=chaos.PASSED, *, tree=TREE, seed=1):
    return chaos.Line(
        time="2026-11-01T00:00:00Z", tree=tree, commit="", scenario="kill/steady", seed=seed, verdict=verdict, reason="",
        minutes=90.0, injected=20, bitten=20, acked=3_000,
    )  # fmt: skip


def proof(verdict=search.CLEAN, *, tree=TREE, size="small"):
    return search.Line(
        time="2026-11-01T00:00:00Z", tree=tree, size=size, verdict=verdict, states=6_000_000, seconds=600.0,
        memory_mb=900, jobs=2, python="3.11.0",
        configs={"isr": search.Searched(states=6_000_000, depth=20, exhausted=False)},
    )  # fmt: skip


def rows(*, simulated=(), attacked=(), searched=()):
    """The cells of each row but the first: came to, broken."""
    lines = render(Ledgers(list(simulated), list(attacked), list(searched)), TREE)
    table = [line.strip("|").split(" | ") for line in lines if line.startswith("| [")]
    assert len(table) == 4
    return [(cells[2].strip(), cells[3].strip()) for cells in table]


def test_lines_of_one_program_add_up_and_others_count_nothing():
    simulated, attacked, small, full = rows(
        simulated=[histories(0, 200), histories(200, 300, limits={250: "S9"}), histories(300, 400, tree=OTHER)],
        attacked=[attack(seed=1), attack(seed=2), attack(seed=3, tree=OTHER), attack(chaos.NO_BITE, seed=4)],
        searched=[proof(), proof(search.VIOLATED, tree=OTHER)],
    )
    assert simulated[0].startswith("300 histories, 10 faults of 1 kinds, 14 elections, 200 acknowledged records")
    assert "; 1 of them ended where nothing more is promised" in simulated[0]
    assert simulated[1] == "0"
    assert attacked[0].startswith(
        "3.00 h, 40 of 40 faults bit, 6,000 records, 1 scenarios; not counted: 1 that did not"
    )
    assert attacked[1] == "0"
    assert small == ("6,000,000 distinct states of 1 configurations in 10 min, 900 MB", "0")
    assert full == ("-", "-")


@pytest.mark.parametrize(
    ("found", "row"),
    [
        ({"simulated": [histories(0, 200, failed={7: "one leader"})]}, 0),
        ({"attacked": [attack(chaos.BROKEN)]}, 1),
        ({"searched": [proof(search.VIOLATED)]}, 2),
        ({"searched": [proof(), proof(search.VIOLATED)]}, 2),
    ],
)
def test_what_broke_is_shown(found, row):
    assert rows(**found)[row][1] == "**1**"


def test_a_seed_that_the_mended_simulator_passes_is_named():
    simulated = [histories(0, 200, failed={7: "one leader"})]
    simulated.append(histories(7, 8, simulator="two", time="2026-11-02T00:00:00Z"))
    assert rows(simulated=simulated)[0][1] == "0; seed 7 (one leader) before the simulator was mended"


def test_a_proof_that_falls_short_is_none():
    assert rows(searched=[proof(search.SHORT)])[2] == ("-", "-")


def test_a_line_of_the_ledger_comes_back(tmp_path):
    path = tmp_path / "ledger.jsonl"
    simulation.append(path, proof())
    simulation.append(path, proof(size="full"))
    assert [line.size for line in search.read(path)] == ["small", "full"]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(msgspec.DecodeError):
        search.read(path)
