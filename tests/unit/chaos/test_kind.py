"""Rounds on the kind cluster: what a seed chooses, what proves a bite, what is written down."""

import json
import signal
import subprocess
from collections import Counter
from random import Random
from types import SimpleNamespace

import msgspec
import pytest

from tests.chaos import cleanup, ledger
from tests.chaos.judge import Verdict
from tests.chaos.kind import __main__ as program
from tests.chaos.kind import faults, images, rounds
from tests.chaos.kind.api import SILENCE_S, KindApi
from tests.chaos.kind.hands import CONTINUE, SIGNAL
from tests.chaos.kind.schedule import FAULTS_MAX, FAULTS_MIN, WORKLOADS, Plan, Step, plan
from tests.chaos.kind.site import Site, Victim
from tests.chaos.ledger import BROKEN, CUT_OFF, FAILED, KIND, PASSED, Line, summarize

TOPIC = "chaos-7"
SEEDS = range(300)


# --- what a seed chooses


def test_a_seed_chooses_the_same_round_every_time():
    assert [plan(seed) for seed in SEEDS] == [plan(seed) for seed in SEEDS]
    assert len({plan(seed).name for seed in SEEDS}) > len(SEEDS) // 2


def test_the_seeds_choose_everything_there_is():
    plans = [plan(seed) for seed in SEEDS]
    assert {step.fault for each in plans for step in each.steps} == set(faults.FAULTS)
    assert {each.workload for each in plans} == set(WORKLOADS)
    assert {len(each.steps) for each in plans} == set(range(FAULTS_MIN, FAULTS_MAX + 1))
    assert {step.rests for each in plans for step in each.steps} == {True, False}


def test_a_coordinator_is_killed_only_where_there_is_a_group():
    for each in map(plan, SEEDS):
        assert WORKLOADS[each.workload].members or not any(faults.FAULTS[step.fault].group for step in each.steps)


def test_what_wants_a_whole_cluster_has_one_before_and_after_and_so_has_the_end():
    for each in map(plan, SEEDS):
        assert each.steps[-1].rests
        for step, following in zip(each.steps, each.steps[1:], strict=False):
            if faults.FAULTS[step.fault].alone or faults.FAULTS[following.fault].alone:
                assert step.rests, each


def test_faults_that_are_named_are_all_done():
    found = plan(3, ["drain", "kill-coordinator"])
    assert found.workload == "group"
    assert {step.fault for step in found.steps} == {"drain", "kill-coordinator"}


# --- what proves a bite


class Log:
    """The metadata log, with what a test puts there."""

    def __init__(self):
        self.kinds = {}
        self.numbers = {}

    def counts(self):
        return Counter(self.numbers)

    def objects(self, plural):
        return self.kinds.get(plural, {})

    def wait(self, predicate, timeout_s):
        return predicate()


def entry(leader, epoch):
    return {"leader": leader, "leaderEpoch": epoch}


@pytest.fixture
def site():
    """A site whose load notes faults."""
    noted = []
    load = SimpleNamespace(topic=TOPIC, fault=lambda name, led: noted.append((name, led)))
    made = Site(cluster=None, hands=None, api=None, log=Log(), load=load, random=Random(1), say=lambda text: None)
    return SimpleNamespace(site=made, log=made.log, noted=noted)


VICTIM = Victim(1, "kafkalite-worker", "uid-1", "10.0.0.1", {0: 4, 2: 6})


def test_everything_that_the_victim_led_has_to_have_another_epoch_and_a_leader(site):
    (moved,) = site.site.moved(VICTIM)
    assert not moved.seen()
    for entries, seen in (
        ({"0": entry(2, 5), "2": entry(1, 6)}, False),
        ({"0": entry(2, 5), "2": entry(-1, 7)}, False),
        ({"0": entry(2, 5), "2": entry(0, 7)}, True),
    ):
        site.log.kinds["kafkalitetopics"] = {TOPIC: {"status": {"partitions": entries}}}
        assert moved.seen() == seen


def test_a_broker_that_led_nothing_has_no_elections_to_show(site):
    assert site.site.moved(Victim(1, "n", "u", "a", {})) == ()


def test_counters_count_from_the_moment_of_the_harm(site):
    site.log.numbers = {"restarts/kafkalite-broker-1": 2, "incarnations/1": 5}
    harm = site.site.harm("SIGKILL", VICTIM, site.site.restarted(VICTIM.pod), site.site.incarnation(VICTIM))
    assert site.noted == [("SIGKILL, broker 1", [0, 2])]
    assert not harm.look()
    site.log.numbers = {"restarts/kafkalite-broker-1": 3, "incarnations/1": 5}
    assert not harm.look()
    assert harm.unseen == ["incarnations/1 + 1"]
    site.log.numbers["incarnations/1"] = 6
    assert harm.look()


def test_another_pod_another_disk_and_another_controller(site):
    log = site.log
    pod = {"metadata": {"uid": "uid-1"}}
    broker = {"status": {"registration": {"directoryId": "d1"}}}
    cluster = {"status": {"controller": {"epoch": 3}}}
    log.kinds = {
        "pods": {VICTIM.pod: pod}, "kafkalitebrokers": {VICTIM.pod: broker}, "kafkaliteclusters": {"kafkalite": cluster},
    }  # fmt: skip
    bites = [
        site.site.another_pod(VICTIM.pod, "uid-1"), site.site.another_disk(VICTIM), site.site.another_controller(),
    ]  # fmt: skip
    assert [bite.seen() for bite in bites] == [False] * 3
    log.kinds |= {"pods": {}, "kafkalitebrokers": {}, "kafkaliteclusters": {}}
    assert [bite.seen() for bite in bites] == [False] * 3, "what is not there is no other one"
    log.kinds |= {
        "pods": {VICTIM.pod: {"metadata": {"uid": "uid-2"}}},
        "kafkalitebrokers": {VICTIM.pod: {"status": {"registration": {"directoryId": "d2"}}}},
        "kafkaliteclusters": {"kafkalite": {"status": {"controller": {"epoch": 4}}}},
    }
    assert [bite.seen() for bite in bites] == [True] * 3


def test_a_signal_hits_the_program_of_the_pod_and_nobody_else(tmp_path):
    """The script that nodes do, on processes made by hand: each is a folder with its cgroup and command line."""
    for number, (uid, command) in {
        "11": ("aa_bb", b"/opt/python3\0/opt/kafkalite-broker\0"),
        "12": ("aa_bb", b"/pause\0"),
        "13": ("cc_dd", b"/opt/python3\0/opt/kafkalite-broker\0"),
    }.items():
        folder = tmp_path / number
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubelet.slice/kubelet-pod{uid}.slice/x\n")
        (folder / "cmdline").write_bytes(command)
    script = SIGNAL.format(uid="aa-bb", program="kafkalite-broker", name="KILL")
    script = script.replace("/proc/", f"{tmp_path}/").replace("[0-9]*", "1*").replace("kill -KILL", "echo killed")
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["killed", "11", "1"]
    assert "kafkalite_chaos" in CONTINUE.format(table="inet kafkalite_chaos", manifests="/m")


# --- what is written down

CHOSEN = Plan(7, "steady", (Step("kill-leader", True), Step("drain", True)))


def line(**fields):
    values = {
        "time": "2026-01-01T00:00:00Z", "tree": "a" * 64, "commit": "c", "scenario": CHOSEN.name, "seed": 7,
        "verdict": PASSED, "reason": "", "minutes": 3.0, "injected": 2, "bitten": 2, "acked": 1000, "where": KIND,
    }  # fmt: skip
    return Line(**(values | fields))


class Playing(rounds.Round):
    """A round that comes to an end of the test's choice."""

    end = Verdict(acked=9)

    def _play(self, stack):
        harm = SimpleNamespace(bit=True, name="n", unseen=[])
        log = SimpleNamespace(counts=lambda: {"incarnations/1": 1})
        self.site = SimpleNamespace(harms=[harm], log=log, load=SimpleNamespace(save_histories=lambda path: None))
        if isinstance(self.end, BaseException):
            raise self.end
        self.verdict = self.end

    def _keep_story(self):
        (self.folder / "story.txt").write_text("")


@pytest.fixture
def round_(tmp_path):
    """Plays a round that ends as given; its line and its folder."""

    def play(end):
        folder = tmp_path / "round"
        folder.mkdir()
        made = Playing(CHOSEN, None, None, None, folder)
        made.end = end
        return made.run(), folder

    return play


def test_a_line_says_where_and_has_the_faults_and_the_hash_of_the_program(round_):
    found, folder = round_(Verdict(acked=9))
    written = json.loads(msgspec.json.encode(found))
    assert (written["where"], written["scenario"], written["seed"]) == ("kind", "kill-leader+drain/steady", 7)
    assert (written["verdict"], written["acked"], written["bitten"]) == (PASSED, 9, 1)
    assert written["tree"] == rounds.tree_hash()
    assert not (folder / cleanup.OWNER).exists()


@pytest.mark.parametrize(
    ("end", "verdict"),
    [(Verdict(broken=["lost 1"]), BROKEN), (KeyError("leader"), FAILED), (AssertionError("not within 400 s"), FAILED)],
)
def test_whatever_a_round_comes_to_is_its_line(round_, end, verdict):
    found, folder = round_(end)
    assert found.verdict == verdict
    assert (folder / cleanup.BROKEN_MARK).exists() == (verdict == BROKEN)
    assert (folder / "story.txt").exists()


def test_a_round_that_is_killed_leaves_its_line_behind(round_, tmp_path, monkeypatch):
    """Who begins the next campaign adds it to the ledger, once."""
    with pytest.raises(SystemExit):
        round_(SystemExit(143))
    monkeypatch.setattr(program, "WORK", tmp_path)
    assert program.left_behind() == [], "its process is this one, and lives"
    (tmp_path / "round" / cleanup.OWNER).write_text("1 1")
    (found,) = program.left_behind()
    assert (found.verdict, found.seed, found.where) == (CUT_OFF, 7, KIND)
    assert program.left_behind() == []


def test_the_summary_adds_rounds_on_kind_and_shows_them_apart():
    local = line(scenario="kill-leader/steady", where="", acked=500, injected=4, bitten=4)
    lines = [local, line(), line(seed=8, scenario="drain/group"), line(seed=9, verdict=FAILED, reason="why")]
    (summary,) = summarize(lines)
    assert (summary.runs, summary.minutes, summary.acked, summary.bitten) == (4, 9.0, 2500, 8)
    assert summary.passed_scenarios == {"kill-leader/steady"}
    assert "2,500 acknowledged records, 1 scenarios" in summary.text(), "of local processes"
    assert "on kind: 2 rounds, 0.10 h, 4 faults of 2 kinds, 2,000 acknowledged records" in summary.text()
    assert "on kind: kill-leader+drain/steady seed 9: failed: why" in summary.text()
    assert "on kind" not in summarize([local])[0].text()


# --- a campaign


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """Runs a campaign whose rounds are of the given verdicts, or raise; (installations, healings, ledger)."""
    said = {"installed": 0, "healed": 0}

    class Installed:
        def __enter__(self):
            said["installed"] += 1

        def __exit__(self, *_):
            return False

    def heal():
        said["healed"] += 1
        return []

    def run(*ends, minutes=60.0):
        left = list(ends)

        class Ended(Playing):
            def run(self):
                end = left.pop(0)
                if isinstance(end, BaseException):
                    raise end
                return self.line(end, "")

        clock = iter([0.0, *(0.0 for _ in ends[1:]), *(1e9 for _ in range(9))])
        monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        monkeypatch.setattr(program, "WORK", tmp_path / "work")
        monkeypatch.setattr(program, "Round", Ended)
        monkeypatch.setattr(program, "KindApi", lambda path, namespace: None)
        monkeypatch.setattr(program, "installed", lambda cluster: Installed())
        monkeypatch.setattr(program, "brokers", lambda cluster: None)
        monkeypatch.setattr(program, "foreign", lambda cluster: [])
        monkeypatch.setenv("KUBECONFIG", "/none")
        path = tmp_path / "ledger.jsonl"
        options = program.parse(["--minutes", str(minutes), "--seed", "5", "--ledger", str(path)])
        made = program.Campaign(None, SimpleNamespace(heal=heal), options)
        try:
            made.run()
        finally:
            found = ledger.read(path)
        return made.ok, said, found

    return run


def test_rounds_of_successive_seeds_share_an_installation(campaign):
    ok, said, lines = campaign(PASSED, PASSED, PASSED)
    assert (ok, said["installed"]) == (True, 1)
    assert [each.seed for each in lines] == [5, 6, 7]


def test_after_a_round_that_did_not_pass_the_nodes_are_healed_and_the_chart_is_installed_anew(campaign):
    ok, said, lines = campaign(PASSED, BROKEN, PASSED)
    assert (ok, said["installed"], said["healed"]) == (False, 2, 3)
    assert [each.verdict for each in lines] == [PASSED, BROKEN, PASSED]


def test_a_campaign_is_given_up_when_nothing_passes_any_more(campaign):
    _, _, lines = campaign(*[FAILED] * (program.FAILURES_MAX + 3))
    assert len(lines) == program.FAILURES_MAX


def test_a_round_that_a_signal_ends_has_its_line(campaign, tmp_path):
    with pytest.raises(SystemExit):
        campaign(PASSED, SystemExit(128 + signal.SIGTERM))
    assert [each.verdict for each in ledger.read(tmp_path / "ledger.jsonl")] == [PASSED, CUT_OFF]


def test_pods_of_other_sources_are_named(monkeypatch):
    def kubectl(*words):
        return images.here(words[6:]) if words[1] != "client" else "other\n"

    pods = [{"metadata": {"name": "operator-1"}}]
    cluster = SimpleNamespace(items=lambda *_: pods, kubectl=kubectl)
    assert images.foreign(cluster) == ["client"]


# --- the API


def test_the_api_is_asked_in_the_namespace_and_is_silent_for_a_minute_between_bookmarks(tmp_path):
    asked = []

    class Connection:
        def request(self, method, path, body, headers):
            asked.append(path)

        def getresponse(self):
            return SimpleNamespace(status=200, readline=lambda: b"", read=lambda: b'{"items": []}')

        def close(self):
            pass

    class Here(KindApi):
        def _connect(self, timeout_s):
            asked.append(timeout_s)
            return Connection()

    kubeconfig = tmp_path / "config"
    user = {"name": "u", "user": {"token": "t"}}
    context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
    place = {"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [place], "contexts": [context],
        "users": [user],
    }))  # fmt: skip
    api = Here(kubeconfig, "kafkalite-chaos")
    assert api.list("pods") == {"items": []}
    assert list(api.watch("pods", "3", timeout_s=12)) == []
    assert asked[1] == "/api/v1/namespaces/kafkalite-chaos/pods"
    assert asked[2] == SILENCE_S
