"""A run that does not come to its end is judged all the same: what was acknowledged until then is looked for."""

import itertools
from random import Random
from types import SimpleNamespace

import pytest

from kafkalite_cli.verify.checker import check
from kafkalite_cli.verify.history import Ack, Assign, End, Header, Read
from tests.chaos import judge as judging
from tests.chaos import runner
from tests.chaos.cluster import ChaosError, NotHealedError, PromiseError
from tests.chaos.faults import Bite, Harm
from tests.chaos.judge import Verdict, judge
from tests.chaos.ledger import BROKEN, FAILED, NO_HEAL, PASSED
from tests.chaos.scenarios import scenarios
from tests.chaos.workloads import Judgement

NAME = "kill-leader/single"
HEAD = [Header(1, "run", "chaos", 1, 0), Ack(0, 0, 1, 0, 0, 1, 2), Ack(0, 0, 2, 0, 1, 3, 4), Assign(1 << 16, 0, 0, 5)]
WHOLE = [*HEAD, Read(1 << 16, 0, 0, 0, 0, 1, 6), Read(1 << 16, 0, 1, 0, 0, 2, 7), End(1 << 16, 0, 2, 8)]
LOST = [*HEAD, Read(1 << 16, 0, 0, 0, 0, 1, 6), End(1 << 16, 0, 2, 8)]
UNSEEN = [*HEAD, Read(1 << 16, 0, 0, 0, 0, 1, 6), End(1 << 16, 0, 1, 8)]


class Traffic:
    """A load whose clients saw a history made by hand."""

    topic = "chaos"
    load = SimpleNamespace(acks=SimpleNamespace(highest={0: 1}), starts={0: 0})
    acked = 2

    def __init__(self, history, progress=None):
        self.history, self.progress, self.stopped = history, progress, []

    def start(self):
        pass

    def stop(self, timeout_s=120.0):
        self.stopped.append(timeout_s)

    def wait_progress(self, timeout_s):
        if self.progress is not None:
            raise self.progress

    def floor(self):
        return 1

    def judge(self):
        report = check(self.history)
        examples = tuple(str(each) for each in report.examples)
        return Judgement(report.ok, report.acked, report.read, dict(report.counts), examples, 5.0)


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays a scenario with a history and a problem: of the cluster, of progress, or of the fault itself."""

    numbers = itertools.count()

    def run(history, *, cluster=None, progress=None, inject=None, harmed=True):
        def wait_whole(timeout_s):
            if cluster is not None:
                raise cluster

        def harm(run):
            if harmed:
                run.harms.append(Harm("SIGKILL", (Bite("an election", lambda: True),)))
            if inject is not None:
                raise inject

        log = SimpleNamespace(
            wait=lambda predicate, timeout_s: predicate(), sync=lambda timeout_s=60.0: None, counts=dict
        )
        world = SimpleNamespace(
            cluster=SimpleNamespace(log=log, wait_whole=wait_whole, data_directory=lambda broker: tmp_path / str(broker)),
            traffic=Traffic(history, progress), harms=[], extra_traffic=[], disks=None, sleep=lambda *_: None, random=Random(1),
        )  # fmt: skip
        replicas = SimpleNamespace(ok=True, counts={}, examples=[], bytes=10, uncompared=[])
        metadata = SimpleNamespace(ok=True, counts={}, examples=[], changes=7)
        monkeypatch.setattr(judging, "compare_replicas", lambda *_, **__: replicas)
        monkeypatch.setattr(judging, "check_metadata", lambda _: metadata)
        monkeypatch.setattr(runner, "build", lambda *_: world)
        monkeypatch.setattr(runner, "ends_at_rest", lambda *_: {("chaos", 0): 2})
        scenario = scenarios()[NAME]
        fault = SimpleNamespace(inject=harm, rounds=1, allowed=())
        scenario = SimpleNamespace(name=NAME, workload=scenario.workload, fault=fault)
        return runner.play(scenario, 3, tmp_path / f"run-{next(numbers)}"), world.traffic

    return run


def test_a_run_that_comes_to_its_end_passes(played):
    line, traffic = played(WHOLE)
    assert (line.verdict, line.acked, traffic.stopped[0]) == (PASSED, 2, 120.0)


@pytest.mark.parametrize("where", ["cluster", "progress", "inject"])
def test_a_cluster_that_does_not_become_whole_is_judged_and_did_not_heal(played, where):
    line, traffic = played(WHOLE, **{where: NotHealedError("not whole after 180 s: chaos-0")})
    assert (line.verdict, line.acked) == (NO_HEAL, 2)
    assert line.reason == "NotHealedError: not whole after 180 s: chaos-0"
    assert traffic.stopped[0] == runner.EARLY_LIMIT_S, "a cluster that does not answer is not waited for that long"


@pytest.mark.parametrize("problem", [NotHealedError("not whole"), ChaosError("no nft"), KeyError("leader")])
def test_a_loss_is_found_whatever_ended_the_run(played, problem):
    line, _ = played(LOST, inject=problem)
    assert line.verdict == BROKEN
    assert "'lost': 1" in line.reason
    assert str(problem) in line.reason


def test_what_was_not_served_any_more_is_no_loss_while_the_cluster_is_not_whole(played):
    line, _ = played(UNSEEN, cluster=NotHealedError("not whole"))
    assert line.verdict == NO_HEAL
    assert "'unseen': 1" in line.reason
    assert played(UNSEEN)[0].verdict == BROKEN, "but it is where everything was back"


def test_what_the_scenario_saw_with_its_own_eyes_breaks_a_promise(played):
    line, _ = played(WHOLE, inject=PromiseError("3 acknowledged without a member of the ISR"))
    assert (line.verdict, line.acked) == (BROKEN, 2)


def test_a_mistake_of_the_harness_is_not_the_program_s(played):
    line, _ = played(WHOLE, inject=ChaosError("nft: no"))
    assert (line.verdict, line.acked) == (FAILED, 2)
    line, _ = played(UNSEEN, inject=KeyError("leader"))
    assert line.verdict == FAILED
    assert line.reason.startswith("not foreseen: KeyError: 'leader'; chaos: {'unseen': 1}")


def test_a_cluster_that_was_never_harmed_did_not_fail_to_heal(played):
    assert played(WHOLE, cluster=NotHealedError("not whole"), harmed=False)[0].verdict == FAILED


def test_the_other_judges_are_heard_when_one_cannot_judge(tmp_path, monkeypatch):
    def unreadable(*_, **__):
        raise OSError("not mounted")

    report = {"ok": True, "counts": {}, "examples": [], "changes": 7}
    monkeypatch.setattr(judging, "compare_replicas", unreadable)
    monkeypatch.setattr(judging, "check_metadata", lambda _: SimpleNamespace(**report))
    cluster = SimpleNamespace(data_directory=lambda broker: tmp_path / str(broker))
    verdict = judge(cluster, [Traffic(LOST)], tmp_path / "m", so_far=Verdict(late=["not whole"]))
    assert verdict.unjudged == ["replicas: OSError: not mounted"]
    assert "'lost': 1" in verdict.broken[0]
    assert verdict.metadata_changes == 7
