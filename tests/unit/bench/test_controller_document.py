"""docs/scale.md says what was measured."""

import copy
import json
import re
from itertools import zip_longest
from string import Formatter

from bench import controller
from bench.controller import DOCUMENT
from bench.controller import RESULT as KEPT
from bench.controller_document import TEXT, pair, render

USED = {"seconds": 61.0, "cpu_s": {"one": 0.44, "two": 3.0}, "peak_mb": {"one": 70.2, "two": 90.7}}
RESULT = {
    "when": "2026-01-01 00:00 UTC",
    "commit": "abc1234",
    "machine": "2 cores",
    "python": "3.11.2",
    "load": 0.4,
    "topics": 1000,
    "partitions": 10_000,
    "brokers": 3,
    "place": {"created_s": 8.0, "placed_s": 9.1, "ready_s": 15.2, **USED},
    "list": {"s": 0.31, "topics": 1000, "mb": 5.5},
    "rest": {"writes": {}, "changes": 0, **USED},
    "fail": {
        "led": 3334,
        "detected_s": 5.6,
        "median_s": 1.25,
        "max_s": 3.75,
        "electing": {"seconds": 4.0, "cpu_s": {"one": 1.2, "kube-apiserver": 4.4}, "cpus": 2},
        **USED,
    },
    "hands": 0,
    "take_over": {"s": 6.2},
    "again": [{"max_s": 4.5, "electing": {"seconds": 4.6, "cpu_s": {"one": 1.5, "kube-apiserver": 5.6}, "cpus": 2}}],
}


def test_figures_machine_and_commit():
    text = render(RESULT)
    for part in ("1,000 topics with 10,000 partitions", "`abc1234`", "2 cores; load before: 0.4", "| none |"):
        assert part in text
    assert "| median 1.25 s, last 3.75 s |" in text
    assert "in all 2 runs, each on a control plane of its own | 3.75 s, 4.50 s (wanted: 5 s) |" in text
    assert "to that, run by run | 5.6 s, 7.1 s |" in text
    assert "| at rest, 61 s | 3.0 s, 0.4 s | 91 MB, 70 MB |" in text


def test_what_the_processors_did_while_leaders_were_elected():
    text = " ".join(render(RESULT).split())
    assert "4.0 s, the 2 CPUs could give 8.0 s, and 5.6 s were used: kube-apiserver 4.4 s, one 1.2 s." in text
    assert "it takes 2.8 s at least" in text


def test_what_should_not_be_is_told():
    worse = copy.deepcopy(RESULT)
    worse["rest"]["writes"] = {"PATCH kafkalitetopics": 7.0}
    worse["fail"]["max_s"] = 7.5
    text = render(worse)
    assert "| PATCH kafkalitetopics: 7 |" in text
    assert "| 7.50 s, 4.50 s (**wanted: 5 s**, kept by 1 of 2) |" in text


def test_the_one_that_acts_comes_first():
    assert pair({"a": 1.0, "b": 2.0}, " s", 0) == "2 s, 1 s"


def test_the_document_says_what_the_renderer_would_write():
    """A sentence that is added by hand would be gone with the next measurement."""
    for written, template in zip_longest(
        DOCUMENT.read_text().splitlines(), TEXT.splitlines(), fillvalue="no such line"
    ):
        pieces = [
            re.escape(words) + (".+" if figure is not None else "") for words, figure, *_ in Formatter().parse(template)
        ]
        assert re.fullmatch("".join(pieces), written), f"docs/scale.md has {written!r} where {template!r} belongs"
    if KEPT.exists():  # no figures are kept of runs of before
        assert render(json.loads(KEPT.read_text())) == DOCUMENT.read_text()


def test_without_a_result_there_is_nothing_to_write_of(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(controller, "RESULT", controller.ROOT / "bench" / "results" / "never-measured.json")
    monkeypatch.setattr(controller, "DOCUMENT", tmp_path / "scale.md")
    monkeypatch.setattr("sys.argv", ["controller", "--render"])
    assert controller.main() == 1
    assert capsys.readouterr().err == (
        "bench-controller: no result to write of in bench/results/never-measured.json: measure first\n"
    )
    assert not (tmp_path / "scale.md").exists()
