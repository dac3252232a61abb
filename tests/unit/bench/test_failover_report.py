"""The failover report's figures, pictures and document, from results made by hand."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bench import failover_kind, failover_lab, failover_report
from bench.failover_document import BARS, CURVES, NAMES, newest, render
from bench.failover_lab import KINDS, Lab
from bench.failover_plots import COLOURS, Axis, Series, cumulative, histograms, percentile
from tests.chaos.cluster import ChaosError

SVG = "{http://www.w3.org/2000/svg}"


def line(kind, pauses, *, tree="a" * 64, **changes):
    made = {
        "kind": kind,
        "tree": tree,
        "commit": "deadbee",
        "machine": "2 CPUs",
        "load_before": 0.1,
        "rate": 1200.0,
        "partitions": 6,
        "client": {},
        "pauses_s": pauses,
        "partition_pauses_s": [*pauses, *pauses],
        "heal_s": [3.0] * len(pauses),
        "acked": 1000,
        "unknown": 0,
        "anomalies": {},
        "errors": {},
        "problem": "",
        "minutes": 1.0,
        "facts": {},
    }
    return {**made, **changes}


CALM = {
    "outages": 1, "away_s": 600.0, "acked": 720_000, "received": 719_990, "new_topic_in_sync_s": 1.5,
    "failed_produce_requests": 0.0, "failed_fetch_requests": 0.0,
    "client_errors": 0, "client_request_errors": 0, "client_timeouts": 0, "client_retries": 0, "unknown": 0,
    "elections": 0, "fencings": 0, "restarts": 0,
}  # fmt: skip
SHORT = {"outages": 2, "away_s": 20.0, "client_retries": 3}


def row(document, name):
    found = next(text for text in document.splitlines() if text.startswith(f"| {name} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def clauses(document, name):
    """What was asked for of a kind -> what was measured, and whether that keeps it."""
    rows = [text.strip("|").split(" | ") for text in document.splitlines() if text.startswith(f"| {name} |")]
    return {cells[1]: (cells[2], cells[3].strip()) for cells in rows if len(cells) == 4}


def test_percentiles_are_samples_that_so_many_do_not_exceed():
    samples = list(range(1, 101))
    assert [percentile(samples, percent) for percent in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert percentile([3.0], 99) == 3.0
    assert percentile([5, 1, 3], 50) == 3
    assert percentile(list(range(60)), 99) == 59, "of fewer than 100 it is the largest"


def test_results_of_one_tree_add_up_and_older_trees_do_not_count():
    lines = [line("kill", [9.0], tree="b"), line("kill", [1.0]), line("term", [5.0]), line("kill", [2.0])]
    assert [each["pauses_s"] for each in newest(lines, "kill")] == [[1.0], [2.0]]
    assert newest([*lines, line("kill", [], tree="c")], "kill")[-1]["pauses_s"] == [2.0], "a run without a sample"
    assert newest(lines, "stop") == []


def test_what_was_measured_beside_other_work_counts_where_there_is_nothing_better_and_is_told(tmp_path):
    lines = [line("kill", [9.0], beside="a compiler"), line("kill", [0.1]), line("term", [5.0], beside="a compiler")]
    assert [each["pauses_s"] for each in newest(lines, "kill")] == [[0.1]]
    assert [each["pauses_s"] for each in newest(lines, "term")] == [[5.0]]
    text = render(lines, tmp_path / "failover.md")[0].read_text()
    assert row(text, "SIGKILL")[1:3] == ["1", "0.10 s"]
    assert "| SIGKILL | a compiler | 1 | 9.00 s | 9.00 s |" in text
    assert "| graceful stop | a compiler |" not in text, "its figures are those above"
    assert text.count("a compiler") == 2, "where it counts, among the conditions"
    older = [line("kill", [9.0], beside="a compiler", tree="b"), line("kill", [0.1])]
    assert "a compiler" not in render(older, tmp_path / "failover.md")[0].read_text()


def test_the_document_has_figures_aims_and_what_was_missed(tmp_path):
    samples = [0.1] * 50 + [0.3] * 48 + [0.9, 2.5]
    lines = [line("kill", samples), line("term", [0.1, 1.2]), line("stop", [6.0], anomalies={"lost": 2})]
    written = render(lines, tmp_path / "failover.md")
    assert [path.name for path in written] == ["failover.md", CURVES, BARS]
    text = written[0].read_text()
    assert row(text, "SIGKILL")[1:] == ["100", "0.10 s", "0.30 s", "0.90 s", "2.50 s"]
    assert clauses(text, "SIGKILL") == {
        "n ≥ 100": ("100", "yes"),
        "p50 < 0.5 s": ("0.10 s", "yes"),
        "p99 < 2 s": ("0.90 s", "yes"),
        "0 anomalies, and it came to its end": ("0", "yes"),
    }
    assert clauses(text, "graceful stop") == {
        "n ≥ 100": ("2", "**no**"),
        "p99 < 1 s": ("1.20 s", "**no**"),
        "0 anomalies, and it came to its end": ("0", "yes"),
    }
    assert clauses(text, "SIGSTOP (silent)")["0 anomalies, and it came to its end"] == ("2 lost", "**no**")
    assert "socket.timeout.ms=2000" in text
    assert "Without API server" not in text


def test_a_run_that_ended_before_its_time_reached_nothing_and_is_told(tmp_path):
    stuck = "ChaosError: broker 1 was not started again"
    lines = [
        line("kill", [0.1, 0.2], problem=stuck),
        line("term", [0.1]),
        line("cut", [], problem="exit code -9\nof docker"),
    ]
    text = render(lines, tmp_path / "failover.md")[0].read_text()
    to_the_end = "0 anomalies, and it came to its end"
    assert clauses(text, "SIGKILL")[to_the_end] == ("ended before its time", "**no**")
    assert clauses(text, "graceful stop")[to_the_end] == ("0", "yes")
    assert clauses(text, "network cut (silent)")[to_the_end] == ("ended before its time", "**no**")
    later = render([*lines, line("term", [], problem="exit code 1", anomalies={"lost": 1})], tmp_path / "failover.md")[
        0
    ].read_text()
    assert clauses(later, "graceful stop")[to_the_end] == ("1 lost, ended before its time", "**no**")
    assert f"- *SIGKILL*, tree `aaaaaaaaaaaa`, samples until then: 2; {stuck}\n" in text
    one = "- *network cut (silent)*, tree `aaaaaaaaaaaa`, samples until then: 0; exit code -9 of docker\n"
    assert one in text, "one without any sample, too"
    assert "Of fewer than 100 failures the p99 is the longest pause of all." in text
    mended = [*lines, line("kill", [0.1], tree="b"), line("cut", [0.3], tree="b")]
    assert "ended before their time" not in render(mended, tmp_path / "failover.md")[0].read_text()


def test_a_run_that_crashes_leaves_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(failover_report.sys, "executable", "/bin/false")
    options = failover_report.parse(["--results", str(tmp_path / "failover.jsonl"), "--n", "2"])
    assert not failover_report.run_kind("kill", options)
    (found,) = failover_report.read(options.results)
    assert (found["kind"], found["problem"], found["pauses_s"]) == ("kill", "ended without a result (exit code 1)", [])


@pytest.mark.parametrize(
    ("kind", "n", "outages_s"), [("api", 100, [60.0]), ("api-short", 100, [2.0] * 30), ("api-short", 5, [2.0] * 5)]
)
def test_the_api_server_is_away_once_for_long_or_often_for_a_short_while(tmp_path, monkeypatch, kind, n, outages_s):
    asked, commands = [], []

    class Unharmed(Lab):
        def run(self, body):
            body(self)
            return {"problem": "", "anomalies": {}}

    monkeypatch.setattr(failover_report, "WORK", tmp_path)
    monkeypatch.setattr(failover_report, "Lab", Unharmed)
    monkeypatch.setattr(failover_report, "conditions", lambda *_: {})
    monkeypatch.setattr(failover_report, "without_api", lambda _lab, seconds: asked.extend(seconds))
    monkeypatch.setattr(failover_report.cleanup, "claim", lambda _: None)
    monkeypatch.setattr(failover_report.cleanup, "clean", lambda _: None)
    words = ["--n", str(n), "--api-minutes", "1", "--api-seconds", "2", "--results", str(tmp_path / "failover.jsonl")]
    run = SimpleNamespace(returncode=0)
    monkeypatch.setattr(failover_report.subprocess, "run", lambda words, **_: commands.append(words) or run)
    failover_report.run_kind(kind, failover_report.parse(words))
    options = failover_report.parse(commands[0][3:])
    failover_report.measure(options)
    assert asked == outages_s


def test_what_was_measured_until_something_broke_counts_in_the_local_report_too(tmp_path, monkeypatch):
    seen = [("kill broker 1", 120.0), ("healed", 9.0), ("kill broker 2", 70.0)]
    pauses = [SimpleNamespace(fault=what, gap_ms=ms, gaps_ms={0: ms}) for what, ms in seen]
    report = SimpleNamespace(acked=9, unknown=0, counts={}, pauses=pauses)
    acks = SimpleNamespace(highest={})
    load = SimpleNamespace(acks=acks, starts={}, errors={}, start=lambda: None, wait_acks=lambda *_: None)
    load.stop, load.report = lambda *_: None, lambda: report
    cluster = SimpleNamespace(bootstrap="", create_topic=lambda *_, **__: None, data_directory=lambda _: tmp_path)
    cluster.log = SimpleNamespace(sync=lambda: None)
    judged = SimpleNamespace(counts={}, changes=3, elections=2, uncompared=(), records=5)
    for name, fake in {
        "build": lambda *_: SimpleNamespace(cluster=cluster, network=None),
        "Load": lambda *_, **__: load,
        "check_metadata": lambda _: judged,
        "compare_replicas": lambda *_, **__: judged,
    }.items():
        monkeypatch.setattr(failover_lab, name, fake)

    def body(_lab):
        raise KeyError("leaderEpoch")

    line = Lab("kill", tmp_path, rate=1, partitions=6).run(body)
    assert (line["pauses_s"], line["partition_pauses_s"]) == ([0.12], [0.12])
    assert line["problem"] == "KeyError: 'leaderEpoch' (the longest pause since that failure began: 0.07 s)"


class Moving:
    """A cluster whose leaders move while the experiment waits for its moment."""

    def __init__(self, *led):
        self.led = list(led)

    def wait_whole(self, _limit_s):
        pass

    def led_by(self, _topic, _broker):
        return self.led.pop(0) if len(self.led) > 1 else self.led[0]

    def partitions(self, _topic):
        return {number: {"leaderEpoch": 1} for number in range(6)}


def test_what_is_measured_is_what_the_broker_leads_when_it_is_harmed(tmp_path, monkeypatch):
    lab = Lab("kill", tmp_path, rate=1, partitions=6)
    monkeypatch.setattr(Lab, "victim", lambda lab: lab.cluster.led_by("", 1) and 1)
    seen = []

    def harm(lab, _broker):
        seen.append(lab._led)
        raise ChaosError("harmed")

    lab.kind = replace(lab.kind, harm=harm)
    lab.cluster = Moving([1, 2], [2])
    with pytest.raises(ChaosError, match="harmed"):
        lab.fail(1)
    assert seen == [[2]]
    lab.cluster = Moving([1, 2], [])
    with pytest.raises(ChaosError, match="leads nothing"):
        lab.fail(2)


def test_the_document_tells_what_happened_without_api_server(tmp_path):
    lines = [line("api", [0.05], facts=CALM), line("api-short", [0.02, 0.03], facts={**CALM, **SHORT})]
    written = render(lines, tmp_path / "failover.md")
    text = written[0].read_text()
    found = row(text, "1 of 600 s")
    assert found[1:] == ["720,000", "719,990", "0, 0", "0, 0, 0, 0, 0", "50 ms", "0, 0, 0", "1.5 s"]
    assert row(text, "2 of 20 s")[3:6] == ["0, 0", "0, 0, 0, 3, 0", "30 ms"]
    assert row(text, "API server away, short") == ["API server away, short", "2", "0.02 s", *["0.03 s"] * 3]
    assert [path.name for path in written] == ["failover.md", CURVES, BARS]
    assert "API server away, short" in written[1].read_text()
    assert "API server away, long" not in written[1].read_text(), "one outage has no distribution"
    nothing = "brokers: produce 0, fetch 0; clients: errors 0, failed 0, timed out 0, sent again 0, no answer 0"
    assert clauses(text, "API server away, long") == {
        "away for 10 min": ("600 s", "yes"),
        "0 failed requests": (nothing, "yes"),
        "0 elections, 0 fencings, 0 restarts on its return": ("0, 0, 0", "yes"),
        "0 anomalies, and it came to its end": ("0", "yes"),
    }
    short = clauses(text, "API server away, short")
    assert short["n ≥ 30"] == ("2", "**no**")
    assert short["away for 20 s each time"] == ("20 s", "yes")
    assert short["0 failed requests"] == (nothing.replace("sent again 0", "sent again 3"), "**no**")


def test_what_was_not_counted_or_measured_keeps_nothing(tmp_path):
    facts = {name: count for name, count in CALM.items() if name not in {"failed_fetch_requests", "elections"}}
    text = render([line("api", [0.05], facts={**facts, "away_s": 60.0})], tmp_path / "failover.md")[0].read_text()
    found = clauses(text, "API server away, long")
    assert found["away for 10 min"] == ("60 s", "**no**")
    said, kept = found["0 failed requests"]
    assert ("fetch not counted" in said, kept) == (True, "**no**")
    asked = "0 elections, 0 fencings, 0 restarts on its return"
    assert found[asked] == ("not counted, 0, 0", "**no**")
    assert clauses(text, "SIGKILL") == {
        "n ≥ 100": ("0", "**no**"),
        "p50 < 0.5 s": ("not measured", "**no**"),
        "p99 < 2 s": ("not measured", "**no**"),
        "0 anomalies, and it came to its end": ("not measured", "**no**"),
    }
    assert "1 of 26 clauses are kept" in text


def test_no_result_is_no_document(tmp_path):
    assert render([], tmp_path / "failover.md") == []
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_well_formed_and_have_all_series():
    series = [Series("one & only", [0.1, 0.2, 0.4], {"p99": 1.0}), Series("two", [5.0])]
    for picture in (cumulative(series, "A < title"), histograms(series, "A < title")):
        root = ET.fromstring(picture)
        words = [element.text for element in root.iter(f"{SVG}text")]
        assert {"A < title", "one & only", "two"} <= set(words)
        for element in root.iter(f"{SVG}rect"):
            assert float(element.get("height")) > 0
            assert 0 <= float(element.get("x", 0)) <= float(root.get("width"))
    bars = [element for element in ET.fromstring(histograms(series, "x")).iter(f"{SVG}rect") if element.get("x")]
    assert len(bars) == 4, "each sample has a bin of its own"


def test_an_axis_holds_all_samples_in_their_order():
    axis = Axis([0.013, 7.0], 100, 500)
    assert (axis.low, axis.high) == (0.01, 10)
    assert axis.at(0.01) == 100
    assert axis.at(10) == pytest.approx(500)
    assert axis.at(1000) == pytest.approx(500)
    assert 100 < axis.at(0.1) < axis.at(1.0) < 500
    assert axis.ticks()[0] == 0.01
    assert axis.ticks()[-1] == 10


def test_every_kind_has_a_name_and_is_told_when_it_does_not_exist(capsys):
    assert set(NAMES) == set(KINDS)
    assert failover_report.parse(["--only", "kill,cut"]).kinds == ["kill", "cut"]
    with pytest.raises(SystemExit):
        failover_report.parse(["--only", "fire"])
    assert "no kind of failure: fire" in capsys.readouterr().err


def test_results_are_lines_that_are_read_again(tmp_path):
    path = tmp_path / "results" / "failover.jsonl"
    assert failover_report.read(path) == []
    failover_report.write(line("kill", [1.0]), path)
    failover_report.write(line("term", [2.0]), path)
    assert [each["kind"] for each in failover_report.read(path)] == ["kill", "term"]


def test_the_page_of_kind_has_its_own_kinds_aims_and_pictures(tmp_path):
    page = failover_kind.PAGE
    lines = [line("roll", [0.4, 1.2]), line("kill", [2.0]), line("stop", [8.0]), line("term", [0.1])]
    written = render(lines, tmp_path / "failover-kind.md", page)
    assert [path.name for path in written] == ["failover-kind.md", page.curves, page.bars]
    text = written[0].read_text()
    assert row(text, "rolling")[1:] == ["2", "0.40 s", "1.20 s", "1.20 s", "1.20 s"]
    assert clauses(text, "rolling")["p99 < 1 s, partition by partition"] == ("1.20 s", "**no**")
    assert clauses(text, "SIGKILL")["p99 < 3 s"] == ("2.00 s", "yes")
    assert clauses(text, "node stops")["p99 < 9 s"] == ("8.00 s", "yes")
    assert "graceful stop" not in text, "a kind of the local report"


def test_kinds_of_the_report_on_kind_are_chosen():
    assert failover_kind.parse(["--only", "kill,roll", "--n", "3"]).kinds == ["kill", "roll"]
    with pytest.raises(SystemExit):
        failover_kind.parse(["--only", "cut"])


@pytest.mark.parametrize("kinds", [failover_kind.KINDS, KINDS])
def test_no_two_kinds_share_a_colour(kinds):
    picture = cumulative([Series(name, [1.0]) for name in kinds], "title")
    root = ET.fromstring(picture)
    strokes = [each.get("stroke") for each in root.iter() if each.get("stroke-width")]
    curves = {stroke for stroke in strokes if stroke in COLOURS}
    assert len(curves) == len(kinds)
