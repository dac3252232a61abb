"""The failover report of a real cluster, with a cluster that is none: what is kept when something breaks."""

from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from bench import failover_first, failover_kind
from bench.failover_clauses import of_pauses
from bench.failover_lab import Result
from bench.failover_results import read
from tests.cluster.processes import StartError


class FakeLoad:
    """Says a pause of so many hundredths of a second for each fault as there were before it, and one more."""

    stopping = None

    def __init__(self, _cluster, topic, *, rate):
        self.topic, self.rate, self.pod = topic, rate, f"load-{topic}"
        self.faults = []

    def whole(self):
        pass

    def start(self):
        pass

    def fault(self, name, _partitions):
        self.faults.append(name)

    def stop(self):
        if self.stopping is not None:
            raise self.stopping
        gaps_ms = [10.0 * (number + 1) for number in range(len(self.faults))]
        pauses = [
            {"fault": name, "gap_ms": ms, "gaps_ms": {"0": ms}} for name, ms in zip(self.faults, gaps_ms, strict=True)
        ]
        return {"pauses": pauses, "acked": 100, "unknown": 0, "counts": {}, "errors": {}}


class FakeCluster:
    """Deployed, and without pods."""

    def __init__(self):
        self.deleted = []

    def apply(self, *_objects):
        pass

    def items(self, what, _selector):
        return [{"metadata": {"name": "operator"}}] if what == "deployments" else []

    def kubectl(self, command, *names, limit_s):
        if command == "delete":
            self.deleted += names

    def acting_operator(self, _limit_s):
        pass


class Breaks:
    """Harm that is done so often, and raises then."""

    def __init__(self, count, error):
        self.left, self.error = count, error

    def __call__(self, lab):
        lab.load.fault(lab.kind, [0])
        if not self.left:
            raise self.error
        self.left -= 1


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Runs the whole report with harm of one's own for some kinds; gives exit code, lines and document."""
    cluster, metadata = FakeCluster(), SimpleNamespace(counts={}, elections=7)

    @contextmanager
    def recorded(_cluster, _folder):
        yield lambda: metadata

    killer, nodes = SimpleNamespace(install=lambda: None), SimpleNamespace(of=lambda _cluster: object())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(FakeLoad, "stopping", None)
    for name, fake in {
        "Load": FakeLoad,
        "Cluster": lambda *_: cluster,
        "Killer": lambda _: killer,
        "Nodes": nodes,
        "recorded": recorded,
        "installed": nullcontext,
        "build": lambda _: tmp_path,
        "random": SimpleNamespace(random=lambda: 0.0),
    }.items():
        monkeypatch.setattr(failover_kind, name, fake)

    def run(n=3, **harms):
        for kind, harm in harms.items():
            if harm is None:
                continue
            monkeypatch.setitem(failover_kind.KINDS, kind, replace(failover_kind.KINDS[kind], harm=harm))
        results, document = tmp_path / "results.jsonl", tmp_path / "failover-kind.md"
        words = ["failover_kind", "--n", str(n), "--only", ",".join(harms)]
        monkeypatch.setattr(failover_kind.sys, "argv", [*words, "--results", str(results), "--document", str(document)])
        code = failover_kind.main()
        return (
            code,
            {line["kind"]: line for line in read(results)},
            document.read_text() if document.exists() else "",
            cluster,
        )

    return run


def well(lab):
    lab.load.fault(lab.kind, [0])


def test_all_kinds_that_come_to_their_end(measured):
    code, lines, text, cluster = measured(kill=well, delete=well)
    assert code == 0
    assert lines["kill"]["pauses_s"] == lines["kill"]["partition_pauses_s"] == [0.01, 0.03, 0.05]
    assert (lines["kill"]["problem"], lines["kill"]["acked"], lines["kill"]["facts"]) == (
        "",
        100,
        {"elections_judged": 7},
    )
    assert "before their time" not in text
    assert {"pod/load-failover-kill", "klt/failover-kill", "pod/load-failover-delete"} <= set(cluster.deleted)


@pytest.mark.parametrize(
    "error",
    [StartError("docker pause worker3: exit code 1\nunable to freeze"), AssertionError(), KeyError("leaderEpoch")],
    ids=lambda error: type(error).__name__,
)
def test_what_was_measured_until_something_broke_is_kept_and_the_other_kinds_go_on(measured, error):
    code, lines, text, cluster = measured(pause=Breaks(2, error), kill=well)
    assert code == 1
    assert lines["pause"]["pauses_s"] == [0.01, 0.03]
    assert len(lines["pause"]["heal_s"]) == 2
    assert lines["kill"]["pauses_s"] == [0.01, 0.03, 0.05]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    assert lines["pause"]["problem"] == f"{said} (the longest pause since that failure began: 0.05 s)"
    assert f"- *node hangs*, tree `{lines['pause']['tree'][:12]}`, samples until then: 2; {said} (the longest" in text
    assert "| node hangs | 2 | 0.01 s | 0.03 s | 0.03 s | 0.03 s |" in text
    assert "| node hangs | p99 < 9 s | 0.03 s | yes |" in text
    assert "| node hangs | 0 anomalies, and it came to its end | ended before its time | **no** |" in text
    assert "| SIGKILL | 3 |" in text
    assert "pod/load-failover-pause" in cluster.deleted, "its clients do not load the machine any more"


def test_a_load_that_breaks_too_has_no_samples_and_both_reasons(measured, monkeypatch):
    monkeypatch.setattr(FakeLoad, "stopping", AssertionError("nobody listens"))
    code, lines, _, cluster = measured(kill=Breaks(1, OSError("no route")))
    assert code == 1
    assert lines["kill"]["problem"] == "OSError: no route; AssertionError: nobody listens"
    assert (lines["kill"]["pauses_s"], len(lines["kill"]["heal_s"])) == ([], 1)
    assert "pod/load-failover-kill" in cluster.deleted


def test_a_cluster_that_cannot_be_cleared_does_not_cost_the_document(measured, monkeypatch, tmp_path):
    @contextmanager
    def installed(_cluster):
        yield
        raise AssertionError("the namespace stays")

    monkeypatch.setattr(failover_kind, "installed", installed)
    with pytest.raises(AssertionError, match="the namespace stays"):
        measured(kill=well)
    assert "| SIGKILL | 3 |" in (tmp_path / "failover-kind.md").read_text()


# --- the operator's roll


class RollingCluster:
    """An operator that sees the change at the second question, restarts a broker for each, and is done at the sixth."""

    def __init__(self):
        self.patched, self.asked = [], 0
        self.back = True

    def epochs(self):
        self.asked += 1
        if not self.patched:
            return dict.fromkeys(range(3), 10)
        restarted = self.asked - 1
        return {broker: 10 + len(self.patched) - (broker >= restarted) for broker in range(3)}

    def patch(self, name, change):
        self.patched.append((name, change))
        self.asked = 0

    def read(self, _kind, name):
        assert name == "kafkalite"
        return {"status": {"rolling": {"inProgress": 1 < self.asked < 6}}}

    def partitions(self, _topic):
        leader = 0 if self.back else 1
        return {0: {"leader": leader, "replicas": [0, 1, 2]}}

    def until(self, true, what, _limit_s):
        for _ in range(20):
            if true():
                return
        raise AssertionError(what)


@pytest.fixture
def rolled():
    said, cluster = [], RollingCluster()
    lab = SimpleNamespace(cluster=cluster, load=FakeLoad(None, "failover-roll", rate=1), say=said.append, said=said)
    lab.load.fault = lambda name, partitions: said.append((name, list(partitions), len(cluster.patched)))
    return lab


def test_a_roll_is_the_operators_and_over_when_it_says_so(rolled):
    failover_kind.roll(rolled)
    assert rolled.said == [("roll", [0, 1, 2, 3, 4, 5], 0)], "noted before it is asked for"
    [(name, change)] = rolled.cluster.patched
    assert name == "klc/kafkalite"
    [(key, first)] = change["spec"]["template"]["pod"]["metadata"]["annotations"].items()
    assert rolled.cluster.asked == 6, "neither before it has begun, nor while it is in progress"
    failover_kind.roll(rolled)
    second = rolled.cluster.patched[1][1]["spec"]["template"]["pod"]["metadata"]["annotations"][key]
    assert second != first, "the same annotation would be no change"


def test_leaderships_that_do_not_go_back_do_not_break_the_run(rolled):
    rolled.cluster.back = False
    failover_kind.roll(rolled)
    assert rolled.said[1:] == ["not every partition is led by its first replica again"]


def test_the_limit_of_a_roll_is_for_single_partitions(measured):
    code, lines, text, _ = measured(roll=well)
    assert code == 0
    assert "| rolling | p99 < 1 s, partition by partition | 0.05 s | yes |" in text
    assert "| rolling | n ≥ 30 | 3 | **no** |" in text
    slow = {**lines["roll"], "pauses_s": [0.1], "partition_pauses_s": [0.1] * 98 + [1.5] * 2}
    [clause] = of_pauses(replace(failover_kind.KINDS["roll"], least=0), [slow])
    assert (clause.measured, clause.kept) == ("1.50 s", False)


def test_restarts_by_command_are_few(measured):
    counted = []
    code, lines, text, _ = measured(n=30, restart=lambda lab: counted.append(well(lab)))
    assert (code, len(counted)) == (0, 10)
    assert len(lines["restart"]["pauses_s"]) == 10
    assert "| restart --all | 10 |" in text
    assert "| restart --all | n ≥" not in text


# --- the first record


@pytest.fixture
def installing(monkeypatch):
    """Clusters in which the chart is installed; the seconds until it is, the topic is Ready, and its records are read."""
    now = [0.0]
    cluster = SimpleNamespace(installed=0, times=[], applied=[], records=["first-0"], breaks_at=None)

    @contextmanager
    def installed(_cluster):
        cluster.installed += 1
        if cluster.installed == cluster.breaks_at:
            raise StartError("no node is left")
        began = now[0]
        now[0] += cluster.times[cluster.installed - 1][0]
        yield began

    def wait(*_, limit_s):
        now[0] += cluster.times[cluster.installed - 1][1]

    def consumed(_topic):
        now[0] += cluster.times[cluster.installed - 1][2]
        return cluster.records

    cluster.apply, cluster.wait, cluster.consumed = cluster.applied.append, wait, consumed
    monkeypatch.setattr(failover_first, "installed", installed)
    monkeypatch.setattr(failover_first, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(failover_first, "start_producing", lambda _cluster, _prefix, topic: topic)
    monkeypatch.setattr(failover_first, "end_producing", lambda _producer: ["first-0"])
    return cluster


def page_of(line, tmp_path):
    made = {"tree": "a" * 64, "commit": "deadbee", "machine": "2 CPUs", "load_before": 0.1, **line}
    return failover_kind.render([made], tmp_path / "failover-kind.md", failover_kind.PAGE)[0].read_text()


def test_the_first_record_is_measured_from_the_beginning_of_the_installation(installing, tmp_path):
    installing.times = [(20, 5, 4), (22, 6, 4), (30, 7, 4)]
    line = failover_first.measured_first(installing, 1)
    assert line["problem"] == ""
    assert line["facts"] == {
        "installed_s": [20.0, 22.0, 30.0], "topic_ready_s": [25.0, 28.0, 37.0], "first_record_s": [29.0, 32.0, 41.0],
    }  # fmt: skip
    assert (installing.installed, len(installing.applied)) == (3, 3), "three times at least"
    text = page_of(line, tmp_path)
    assert "| its records are read | 3 | 32.0 s | 41.0 s |" in text
    assert "| first record | n ≥ 3 | 3 | yes |" in text
    assert "| first record | each < 60 s | 41.0 s at most | yes |" in text


def test_one_that_takes_a_minute_is_told(installing, tmp_path):
    installing.times = [(20, 5, 4), (50, 6, 4), (20, 7, 4)]
    text = page_of(failover_first.measured_first(installing, 3), tmp_path)
    assert "| first record | each < 60 s | 60.0 s at most | **no** |" in text


def test_installations_until_something_broke_are_kept(installing, tmp_path):
    installing.times, installing.breaks_at = [(20, 5, 4)] * 5, 3
    line = failover_first.measured_first(installing, 30)
    assert (line["facts"]["first_record_s"], line["problem"]) == ([29.0, 29.0], "StartError: no node is left")
    text = page_of(line, tmp_path)
    assert "| first record | n ≥ 3 | 2 | **no** |" in text
    assert "- *first record*, tree `aaaaaaaaaaaa`, samples until then: 2; StartError: no node is left" in text


def test_records_that_are_not_read_are_no_first_record(installing):
    installing.times, installing.records = [(20, 5, 4)] * 5, []
    line = failover_first.measured_first(installing, 30)
    assert line["facts"]["first_record_s"] == []
    assert line["problem"] == "AssertionError: 1 acknowledged, 0 read"


def test_the_first_record_can_be_measured_alone(measured, monkeypatch):
    line = {
        **asdict(Result("first", 200, 3, {})),
        "facts": {"installed_s": [20.0], "topic_ready_s": [25.0], "first_record_s": [29.0]},
    }
    monkeypatch.setattr(failover_kind, "measured_first", lambda _cluster, count: {**line, "minutes": count})
    monkeypatch.setattr(failover_kind, "installed", lambda _: pytest.fail("nothing else is measured"))
    code, lines, text, _ = measured(first=None)
    assert (code, list(lines), lines["first"]["minutes"]) == (0, ["first"], 3)
    assert "## First record" in text
    assert "## Pauses" not in text
