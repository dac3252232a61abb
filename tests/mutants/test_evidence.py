"""What `docs/proof.md` says of the ledgers: sums of one program, and whatever broke is in bold."""

from __future__ import annotations

import msgspec
import pytest

from tests.chaos import ledger as chaos
from tests.mutants.evidence import FAULTS, HISTORIES, RECORDS, Ledgers, render
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


def attack(verdict=chaos.PASSED, *, tree=TREE, seed=1, acked=3_000):
    return chaos.Line(
        time="2026-11-01T00:00:00Z", tree=tree, commit="", scenario="kill/steady", seed=seed, verdict=verdict, reason="",
        minutes=90.0, injected=20, bitten=20, acked=acked,
    )  # fmt: skip


BOUNDS = {"isr": 2, "min_isr": 2, "crashes": 0, "min_isr_other": [1], "copies": 1, "lapses": True, "flushes": False}


def proof(verdict=search.CLEAN, *, tree=TREE, size="small"):
    return search.Line(
        time="2026-11-01T00:00:00Z", tree=tree, size=size, verdict=verdict, states=6_000_000, seconds=600.0,
        memory_mb=900, jobs=2, python="3.11.0",
        configs={
            "isr": search.Searched(states=5_800_000, depth=20, exhausted=False, bounds=BOUNDS),
            "old": search.Searched(states=200_000, depth=9, exhausted=True),
        },
    )  # fmt: skip


def page(*, simulated=(), attacked=(), searched=()):
    return render(Ledgers(list(simulated), list(attacked), list(searched)), TREE)


def cells(**ledgers):
    table = [line.strip("|").split(" | ") for line in page(**ledgers) if line.startswith("| [")]
    assert [len(row) for row in table] == [5] * 4
    return [[cell.strip() for cell in row] for row in table]


def rows(**ledgers):
    """Of each proof: what it came to, and what broke."""
    return [(row[2], row[4]) for row in cells(**ledgers)]


def reached(**ledgers):
    """Of each proof: whether what is asked for was reached."""
    return [row[3] for row in cells(**ledgers)]


def test_lines_of_one_program_add_up_and_others_count_nothing():
    simulated, attacked, small, full = rows(
        simulated=[histories(0, 200), histories(200, 300, limits={250: "S9"}), histories(300, 400, tree=OTHER)],
        attacked=[attack(seed=1), attack(seed=2), attack(seed=3, tree=OTHER), attack(chaos.NO_BITE, seed=4)],
        searched=[proof(), proof(search.VIOLATED, tree=OTHER)],
    )
    assert simulated[0].startswith("299 histories to their end, 10 faults of 1 kinds, 14 elections, 200 acknowledged")
    assert "; not counted: 1 that ended where nothing more is promised" in simulated[0]
    assert simulated[1] == "0"
    assert attacked[0].startswith(
        "3.00 h, 40 of 40 faults bit, 6,000 records, 1 scenarios; not counted: 1 that did not"
    )
    assert attacked[1] == "0"
    assert small[0].startswith(
        "6,000,000 distinct states of 2 configurations, 1 of them to the end, the others [to a depth]"
    )
    assert small[0].endswith("; 10 min, 900 MB")
    assert small[1] == "0"
    assert full == ("-", "-")


def test_only_histories_that_came_to_their_end_count_towards_what_is_asked_for():
    whole = histories(0, HISTORIES)
    assert reached(simulated=[whole])[0] == "yes"
    for cut in ({"limits": {7: "S9"}}, {"failed": {7: "one leader"}}):
        short = [histories(0, HISTORIES, **cut)]
        assert reached(simulated=short)[0] == "**no**"
        assert reached(simulated=[*short, histories(HISTORIES, HISTORIES + 1)])[0] == "yes"
    again = [whole, histories(0, 200, limits={7: "S9"}, time="2026-11-02T00:00:00Z")]
    assert rows(simulated=again)[0][0].startswith(f"{HISTORIES - 1:,} histories"), "a later simulator ended it there"
    beyond = [whole, histories(HISTORIES - 1, HISTORIES + 9, limits={HISTORIES + 3: "S9"}, time="2026-11-02T00:00:00Z")]
    assert reached(simulated=beyond)[0] == "yes", "of a line that counts nothing no limit counts"


def test_chaos_and_searches_say_whether_they_reached_what_is_asked_for():
    assert reached() == ["**no**"] * 4
    enough = [attack(seed=seed, acked=RECORDS) for seed in range(FAULTS // 20)]
    assert reached(attacked=enough)[1] == "yes"
    assert reached(attacked=enough[1:])[1] == "**no**", "too few faults"
    assert reached(attacked=[attack(seed=seed) for seed in range(FAULTS // 20)])[1] == "**no**", "too few records"
    assert reached(searched=[proof(), proof(search.SHORT, size="full")])[2:] == ["yes", "**no**"]


def test_each_configuration_says_how_far_it_was_searched():
    lines = page(searched=[proof()])
    assert "| `isr` | isr 2, min isr 2, min isr other 1, lapses | 5,800,000 | 20 | no |" in lines
    assert "| `old` | not written down | 200,000 | 9 | yes |" in lines
    assert "`make proof` has not come to its end on this program." in lines
    assert not any(line.startswith("| `isr`") for line in page(searched=[proof(tree=OTHER), proof(search.SHORT)]))


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


def test_a_run_that_did_not_heal_stands_beside_what_broke():
    attacked = [attack(), attack(chaos.NO_HEAL, seed=2), attack(chaos.FAILED, seed=3)]
    came_to, broken = rows(attacked=attacked)[1]
    assert broken == "0; **1** that did not heal"
    assert came_to.endswith("not counted: 1 that failed")


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
