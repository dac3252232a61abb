"""What a run is worth: nothing that is broken, blunt, thin or unfinished passes."""

from types import SimpleNamespace

import pytest

from tests.chaos import judge as judging
from tests.chaos.faults import Bite, Harm
from tests.chaos.judge import Verdict, judge
from tests.chaos.ledger import BROKEN, FAILED, NO_BITE, NO_HEAL, PASSED
from tests.chaos.runner import conclude
from tests.chaos.workloads import Judgement


def harm(bit: bool) -> Harm:
    made = Harm("SIGKILL leader", (Bite("an election", lambda: bit),))
    made.look()
    return made


def test_a_run_that_bit_healed_and_broke_nothing_passes():
    assert conclude([harm(True)], Verdict(acked=10), "") == (PASSED, "")


def test_one_harm_without_effect_spoils_the_run():
    assert conclude([harm(True), harm(False)], Verdict(), "") == (NO_BITE, "SIGKILL leader: not seen: an election")


def test_no_harm_at_all_is_no_chaos():
    assert conclude([], Verdict(), "") == (NO_BITE, "nothing was harmed")


def test_traffic_below_its_floor_shows_nothing():
    assert conclude([harm(True)], Verdict(thin=["too little"]), "") == (NO_BITE, "too little")


def test_a_run_that_did_not_heal_failed():
    assert conclude([harm(True)], Verdict(), "ChaosError: not whole") == (FAILED, "ChaosError: not whole")


def test_a_broken_promise_comes_first():
    verdict, reason = conclude([harm(False)], Verdict(broken=["lost 3"], thin=["x"]), "ChaosError: y")
    assert (verdict, reason) == (BROKEN, "lost 3; ChaosError: y")


def test_a_broken_promise_stays_one_when_the_traffic_was_unfit():
    seen = Verdict(unfit=["3 records were refused"], broken=["lost 12"], late=["one was late"])
    assert conclude([harm(True)], seen, "") == (BROKEN, "lost 12; one was late; 3 records were refused")
    seen = Verdict(unfit=["3 records were refused"])
    assert conclude([harm(True)], seen, "") == (FAILED, "3 records were refused")


def test_who_did_not_come_back_is_against_the_program_whatever_failed_afterwards():
    seen = Verdict(late=["not whole"], unjudged=["replicas: gone"])
    assert conclude([harm(True)], seen, "down failed") == (NO_HEAL, "not whole; replicas: gone; down failed")


class Traffic:
    topic = "chaos"
    load = SimpleNamespace(acks=SimpleNamespace(highest={0: 99}), starts={0: 0})

    def __init__(self, **fields) -> None:
        values = {"ok": True, "acked": 100, "read": 200, "anomalies": {}, "examples": (), "longest_gap_ms": 5.0}
        self.seen = Judgement(**(values | fields))

    def judge(self) -> Judgement:
        return self.seen

    def floor(self) -> int:
        return 50


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A function that judges one traffic with replicas and metadata as given."""

    def run(traffic: Traffic, replicas=None, metadata=None) -> Verdict:
        asked = {}

        def compare(directories, *, topics, high_watermarks, starts, copies):
            asked.update(directories=directories, topics=topics, ends=high_watermarks, starts=starts, copies=copies)
            found = {"ok": True, "counts": {}, "examples": [], "bytes": 10, "uncompared": []}
            return SimpleNamespace(**(found | (replicas or {})))

        def check(path):
            return SimpleNamespace(**({"ok": True, "counts": {}, "examples": [], "changes": 7} | (metadata or {})))

        monkeypatch.setattr(judging, "compare_replicas", compare)
        monkeypatch.setattr(judging, "check_metadata", check)
        cluster = SimpleNamespace(data_directory=lambda broker: tmp_path / str(broker))
        verdict = judge(cluster, [traffic], tmp_path / "metadata.jsonl")
        assert len(asked["directories"]) == 3
        assert (asked["topics"], asked["ends"]) == ({"chaos"}, {("chaos", 0): 100})
        assert (asked["starts"], asked["copies"]) == ({("chaos", 0): 0}, 3)
        return verdict

    return run


def test_a_good_run_has_nothing_against_it(judged):
    verdict = judged(Traffic())
    assert (verdict.broken, verdict.thin, verdict.acked, verdict.metadata_changes) == ([], [], 100, 7)


@pytest.mark.parametrize(
    ("traffic", "replicas", "metadata", "word"),
    [
        ({"ok": False, "anomalies": {"lost": 1}}, {}, {}, "lost"),
        ({}, {"ok": False, "counts": {"different": 1}}, {}, "different"),
        ({}, {"bytes": 0}, {}, "0 bytes"),
        ({}, {"uncompared": ["chaos-0"]}, {}, "chaos-0"),
        ({}, {}, {"ok": False, "counts": {"two-leaders": 1}}, "two-leaders"),
        ({}, {}, {"changes": 0}, "0 changes"),
    ],
)
def test_each_judge_can_break_the_run(judged, traffic, replicas, metadata, word):
    (broken,) = judged(Traffic(**traffic), replicas, metadata).broken
    assert word in broken


def test_a_load_whose_records_are_refused_is_unfit(judged):
    (unfit,) = judged(Traffic(too_large=3)).unfit
    assert "3 records of the load were refused as too large" in unfit
    assert judged(Traffic()).unfit == []


def test_a_reader_in_the_load_that_stands_still_did_not_heal(judged):
    verdict = judged(Traffic(unread=3))
    assert (verdict.broken, len(verdict.late)) == ([], 1)
    said, reason = conclude([harm(True)], verdict, "")
    assert said == NO_HEAL
    assert "was not given 3 acknowledged records" in reason


def test_too_few_records_are_thin(judged):
    assert len(judged(Traffic(acked=49)).thin) == 1
