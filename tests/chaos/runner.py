"""Runs one scenario: cluster, load, rounds of harm and healing, judgement, and everything put away again."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
import traceback
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import KafkaException

from kafkalite_core.model.errors import KafkaLiteError
from tests.chaos import cleanup
from tests.chaos.cluster import BROKERS, NotHealedError, PromiseError
from tests.chaos.judge import Verdict, judge
from tests.chaos.ledger import BROKEN, CUT_OFF, FAILED, NO_BITE, NO_HEAL, PASSED, Line, harness_hash
from tests.chaos.rest import ends_at_rest
from tests.chaos.rig import build
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.faults import Harm, Run
    from tests.chaos.rest import Ends
    from tests.chaos.scenarios import Scenario

ROOT = Path(__file__).resolve().parents[2]
LINE = "line.json"  # in the folder of a run
BITE_LIMIT_S = 90.0
WHOLE_LIMIT_S = 180.0
PROGRESS_LIMIT_S = 120.0
EARLY_LIMIT_S = 30.0  # for each thing that is still waited for in a run that has ended early
REST_S = (0.5, 2.0)
PROBLEMS = (
    RuntimeError,  # ChaosError and ApiRefusedError among them
    KafkaLiteError,
    KafkaException,
    OSError,
    http.client.HTTPException,
    subprocess.SubprocessError,
)


def commit() -> str:
    """The revision, with a + when files had been changed."""
    command = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def conclude(harms: list[Harm], seen: Verdict, error: str) -> tuple[str, str]:
    """The verdict on a run and its reason: a broken promise first, then what went wrong, then what shows nothing.

    A broken promise stays one whatever else happened: who knows better writes `void` over it by hand.
    """
    further = [*seen.unjudged, *([error] if error else [])]
    if seen.broken:
        return BROKEN, "; ".join([*seen.broken, *seen.late, *seen.unfit, *further])
    if seen.unfit:
        return FAILED, "; ".join([*seen.unfit, *seen.late, *further])
    if seen.late:
        return NO_HEAL, "; ".join([*seen.late, *further])
    if further:
        return FAILED, "; ".join(further)
    if blunt := [f"{harm.name}: not seen: {', '.join(harm.unseen)}" for harm in harms if not harm.bit]:
        return NO_BITE, "; ".join(blunt)
    if not harms:
        return NO_BITE, "nothing was harmed"
    if seen.thin:
        return NO_BITE, "; ".join(seen.thin)
    return PASSED, ""


def figures(harms: list[Harm], seen: Verdict) -> dict[str, Any]:
    """What every line of the ledger says of a run: how it was harmed, and how much was judged."""
    return {
        "injected": len(harms),
        "bitten": sum(harm.bit for harm in harms),
        "acked": seen.acked,
        "read": seen.read,
        "replica_bytes": seen.replica_bytes,
        "metadata_changes": seen.metadata_changes,
        "longest_gap_ms": round(seen.longest_gap_ms, 1),
        "allowed": seen.allowed,
    }


class Runner:
    """One scenario with one seed in one folder."""

    def __init__(self, scenario: Scenario, seed: int, folder: Path, rounds: int | None = None) -> None:
        self.scenario, self.seed, self.folder = scenario, seed, folder
        self.rounds = rounds or scenario.fault.rounds
        self.verdict = Verdict()
        self.run_: Run | None = None
        self.minutes = 0.0
        self._time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._began_s = time.monotonic()
        self._tree, self._commit, self._harness = tree_hash(), commit(), harness_hash()

    def run(self) -> Line:
        """Never raises; the line says what happened."""
        cleanup.claim(self.folder)
        # Whoever finds the folder of a run that was killed finds the line that it did not come to write.
        (self.folder / LINE).write_bytes(msgspec.json.encode(self._line(CUT_OFF, "killed before it had a verdict")))
        error = ""
        try:
            with ExitStack() as stack:
                self._play(stack)
        except PROBLEMS as problem:
            error = self._note(problem)
        except Exception as problem:  # the task's root: a mistake in a scenario must not end a long run
            error = f"not foreseen: {self._note(problem)}"
        if (now := tree_hash()) != self._tree:
            # Processes that were started since are of another program than the line would say.
            self.verdict.unfit.append(f"the program changed meanwhile, to {now[:16]}")
        verdict, reason = conclude(self.run_.harms if self.run_ else [], self.verdict, error)
        return self._line(verdict, reason)

    def _line(self, verdict: str, reason: str) -> Line:
        run = self.run_
        harms = run.harms if run else []
        return Line(
            time=self._time,
            tree=self._tree,
            commit=self._commit,
            harness=self._harness,
            scenario=self.scenario.name,
            seed=self.seed,
            verdict=verdict,
            reason=reason[:3000],
            minutes=round(self.minutes, 3),
            counts=dict(run.cluster.log.counts()) if run else {},
            **figures(harms, self.verdict),
        )

    def _note(self, problem: Exception) -> str:
        """The problem in a line; where it came from is written to the folder."""
        text = "".join(traceback.format_exception(problem))
        with (self.folder / "traceback.txt").open("a", encoding="utf-8") as file:
            file.write(text)
        return f"{type(problem).__name__}: {problem}"

    def say(self, text: str) -> None:
        """A line of what happens, with the seconds since the beginning."""
        print(f"  {time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)

    def _play(self, stack: ExitStack) -> None:
        random = Random(f"{self.scenario.name} {self.seed}")
        run = self.run_ = build(self.scenario, self.folder, random, stack, self.say)
        run.traffic.allowed = self.scenario.fault.allowed
        stopping = stack.enter_context(ExitStack())
        stopping.callback(run.traffic.stop, 2.0)
        ends: Ends | None = None
        so_far: Verdict | None = None
        try:
            ends = self._harm_and_heal(run)
        except Exception as problem:  # whatever it was, what was acknowledged until then is looked for
            so_far = self.verdict = self._fell_short(problem)
            self._end_early(run, so_far)
        traffics = [run.traffic, *run.extra_traffic]
        self.verdict = judge(run.cluster, traffics, self.folder / "metadata.jsonl", ends=ends, so_far=so_far)
        if self.verdict.broken:
            self.keep_replicas()

    def _harm_and_heal(self, run: Run) -> Ends:
        """The scenario itself, up to a cluster at rest; the high watermarks that it came to."""
        run.traffic.start()
        began_s = time.monotonic()
        self.say(f"cluster and load are up: {self.scenario.workload.text}")
        try:
            for number in range(self.rounds):
                self._round(run, self.scenario.fault.inject, number)
            traffics = [run.traffic, *run.extra_traffic]
            for each in traffics:
                each.stop()
            run.cluster.wait_whole(WHOLE_LIMIT_S)
        finally:
            self.minutes = (time.monotonic() - began_s) / 60
        self.say("the load has ended and everything was read once more")
        ends = ends_at_rest(run.cluster, [each.topic for each in traffics])
        run.cluster.log.sync()
        return ends

    def _fell_short(self, problem: Exception) -> Verdict:
        """Of a run that did not come to its end: whether the program or the run itself is to blame."""
        said = self._note(problem)
        if isinstance(problem, PromiseError):
            return Verdict(broken=[said])
        if isinstance(problem, NotHealedError) and self.run_ is not None and self.run_.harms:
            return Verdict(late=[said])
        return Verdict(unfit=[said if isinstance(problem, PROBLEMS) else f"not foreseen: {said}"])

    def _end_early(self, run: Run, verdict: Verdict) -> None:
        """Stop the traffic and read what can be read; nothing here takes long on a cluster that does not answer."""
        self.say(f"ended early: {'; '.join([*verdict.broken, *verdict.late, *verdict.unfit])[:500]}")
        if not verdict.late:  # harmed a moment ago: the more of it is back, the more can be read
            with suppress(*PROBLEMS):
                run.cluster.wait_whole(EARLY_LIMIT_S)
        for each in [run.traffic, *run.extra_traffic]:
            with verdict.as_far_as_possible(f"the end of {each.topic}"):
                each.stop(EARLY_LIMIT_S)
        with verdict.as_far_as_possible("metadata history"):
            run.cluster.log.sync(EARLY_LIMIT_S)

    def keep_replicas(self) -> None:
        """Copy, once, what lies on the brokers' disks, which may be gone with the disks."""
        target = self.folder / "replicas"
        if self.run_ is None or target.exists():
            return
        for broker in range(BROKERS):
            with suppress(OSError, shutil.Error):  # what can be read of a disk that was harmed
                shutil.copytree(self.run_.cluster.data_directory(broker), target / str(broker))

    def _round(self, run: Run, inject: Callable[[Run], None], number: int) -> None:
        """Harm, wait until it shows, wait until all is whole and every partition acknowledges again."""
        done = len(run.harms)
        inject(run)
        limit = time.monotonic() + BITE_LIMIT_S
        for harm in run.harms[done:]:
            if not run.cluster.log.wait(harm.look, max(0.1, limit - time.monotonic())):
                self.say(f"did not bite: {harm.name}: not seen: {', '.join(harm.unseen)}")
        run.cluster.wait_whole(WHOLE_LIMIT_S)
        run.traffic.wait_progress(PROGRESS_LIMIT_S)
        self.say(f"round {number + 1} of {self.rounds} healed, {run.traffic.acked:,} acknowledged")
        run.sleep(*REST_S)


def play(scenario: Scenario, seed: int, folder: Path, *, rounds: int | None = None, keep: bool = False) -> Line:
    """Run a scenario in a new folder, which is removed when it passed (and is not to be kept)."""
    folder.mkdir(parents=True)
    runner = Runner(scenario, seed, folder, rounds)
    try:
        line = runner.run()
        if line.verdict != PASSED and runner.run_ is not None and runner.run_.disks is not None:
            runner.keep_replicas()
    finally:
        cleanup.clean(folder)
    (folder / LINE).write_bytes(msgspec.json.encode(line))
    if line.verdict == BROKEN:
        (folder / cleanup.BROKEN_MARK).touch()
    if line.verdict == PASSED and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return line
