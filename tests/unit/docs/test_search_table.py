"""The tables of docs/exhaustive-search.md are those of the results, and say which program was searched."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench import search_table
from bench.search_table import OTHERS, NotFound, kept, looked_for, others
from tests.mutants import results
from tests.mutants.catalog import all_mutants
from tests.mutants.hunting import Attempt, Sighting

MUTANTS = {mutant.key: mutant for mutant in all_mutants()}
SEEN = {
    "invariant": "CommittedNeverChanges",
    "text": "it was [1@1]",
    "config": "epochs",
    "states": 42_442,
    "trace": ["the beginning", "broker 1 appends record 1", "broker 1 crashes"],
}


def test_the_table_has_what_was_found_by_the_search():
    known = {
        "M02": {"tree": "a" * 64, "search": {"found": SEEN}},
        "M05": {"tree": "a" * 64, "search": {"found": None}},
        "M09": {"tree": "a" * 64},
    }
    text = kept(known)
    assert "| M02 no epoch matching | `epochs` | 42,442 | 2 | `CommittedNeverChanges` |\n" in text
    assert f"`{'a' * 16}`" in text
    assert "M05" not in text
    both = kept(known | {"M03": {"tree": "b" * 64, "search": {"found": SEEN}}})
    assert f"`{'a' * 16}`, `{'b' * 16}`" in both


def test_the_page_has_the_table_of_the_results():
    """If it is of the same program: after another run of the mutants it stays true, since it names its own."""
    page, known = search_table.PAGE.read_text(encoding="utf-8"), results.load()
    assert "<!-- kept -->\nTree hash" in page
    assert "<!-- others -->\nTree hash" in page
    written = page.partition("<!-- kept -->\n")[2].partition("<!-- /kept -->")[0]
    table = kept(known)
    assert written == table or written.splitlines()[0] != table.splitlines()[0]


def engines(*, honest_fails=False, tried=7, blind=""):
    """Finds every mutant after seven states, but in that configuration; the core as it is is looked at so far."""

    def engine_of(core):
        def explore(config, *, budget_s, states_max=None):
            patched = "unpatched" not in str(core)
            if (patched and config != blind) or (honest_fails and not patched):
                sighting = Sighting(invariant="I", text="gone", seconds=0.1, config=config, states=7, trace=("a", "b"))
                return Attempt(sighting=sighting, tried=7, seconds=0.1)
            return Attempt(sighting=None, tried=tried, seconds=0.1)

        return SimpleNamespace(explore=explore)

    return engine_of


def test_the_others_are_looked_for_and_the_core_as_it_is_has_to_pass():
    found = looked_for(engines())
    assert [(each.mutant.key, each.config, each.states) for each in found] == [(*pair, 7) for pair in OTHERS]
    text = others(found, "c" * 64)
    assert "| M14 election without tests | `operator` | 7 | 1 | `I` |\n" in text
    assert "```\n   0 a\n   1 b\nI: gone\n```\n" in text
    with pytest.raises(NotFound, match="M12 is not found in restart"):
        looked_for(engines(blind="restart"))
    for bad in (engines(honest_fails=True), engines(tried=6)):
        with pytest.raises(NotFound, match="the core as it is does not pass 7 states of epochs"):
            looked_for(bad)


def test_no_other_is_one_that_the_header_of_its_patch_names():
    assert [pair for pair in OTHERS if pair[1] in MUTANTS[pair[0]].searches] == []
