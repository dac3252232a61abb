"""One round: a topic under load, faults one after the other, healing, judgement. Whatever happens becomes a line."""

from __future__ import annotations

import subprocess
import time
import traceback
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from tests.chaos import cleanup
from tests.chaos.judge import Verdict
from tests.chaos.kind.faults import FAULTS
from tests.chaos.kind.judge import judge, judge_early
from tests.chaos.kind.schedule import WORKLOADS
from tests.chaos.kind.site import BITE_LIMIT_S, Site
from tests.chaos.kind.traffic import PodTraffic
from tests.chaos.ledger import BROKEN, CUT_OFF, JUDGES, KIND, PASSED, Line, harness_hash
from tests.chaos.metadata_log import MetadataLog
from tests.chaos.runner import LINE, commit, conclude, figures
from tests.cluster.processes import StartError
from tests.e2e.cluster import BROKER_PODS, OPERATOR_PODS, ROOT, CommandError, broker_pod
from tests.e2e.load import BROKERS, topic_object
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.chaos.kind.api import KindApi
    from tests.chaos.kind.hands import Hands
    from tests.chaos.kind.schedule import Plan, Step
    from tests.e2e.cluster import Cluster

WHOLE_LIMIT_S = 400
FRESH_LIMIT_S = 300
REASON_MAX = 1500
HARNESS = (*JUDGES, ROOT / "tests" / "e2e")


class Round:
    """One plan, in a folder of its own."""

    def __init__(self, plan: Plan, cluster: Cluster, hands: Hands, api: KindApi, folder: Path) -> None:
        self.plan, self.cluster, self.hands, self.api, self.folder = plan, cluster, hands, api, folder
        self.topic = f"chaos-{plan.seed}"
        self.verdict = Verdict()
        self.site: Site | None = None
        self.minutes = 0.0
        self._time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._began_s = time.monotonic()
        self._tree, self._commit, self._harness = tree_hash(), commit(), harness_hash(HARNESS)

    def run(self) -> Line:
        """Never raises but for who ends us; the line says what happened."""
        cleanup.claim(self.folder)
        # Whoever finds the folder of a round that was killed finds the line that it did not come to write.
        (self.folder / LINE).write_bytes(msgspec.json.encode(self.line(CUT_OFF, "killed before it had a verdict")))
        error = ""
        with ExitStack() as stack:
            try:
                self._play(stack)
            except Exception as problem:  # the task's root: a round must not end a run of hours
                error = self._note(problem)
            if (now := tree_hash()) != self._tree:
                error = "; ".join([*([error] if error else []), f"the program changed meanwhile, to {now[:16]}"])
            verdict, reason = conclude(self.site.harms if self.site else [], self.verdict, error)
            if verdict != PASSED:
                self._keep_story()
        line = self.line(verdict, reason)
        (self.folder / LINE).write_bytes(msgspec.json.encode(line))
        if verdict == BROKEN:
            (self.folder / cleanup.BROKEN_MARK).touch()
        (self.folder / cleanup.OWNER).unlink()
        return line

    def line(self, verdict: str, reason: str) -> Line:
        """Of the ledger."""
        harms = self.site.harms if self.site else []
        return Line(
            time=self._time,
            tree=self._tree,
            commit=self._commit,
            harness=self._harness,
            scenario=self.plan.name,
            seed=self.plan.seed,
            verdict=verdict,
            reason=reason[:REASON_MAX],
            minutes=round(self.minutes, 3),
            counts=dict(self.site.log.counts()) if self.site else {},
            where=KIND,
            **figures(harms, self.verdict),
        )

    def say(self, text: str) -> None:
        """A line of what happens, with the seconds since the beginning."""
        print(f"  {time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)

    def _note(self, problem: Exception) -> str:
        """The problem in a line; where it came from is written to the folder."""
        text = "".join(traceback.format_exception(problem))
        (self.folder / "traceback.txt").write_text(text, encoding="utf-8")
        return " ".join(f"{type(problem).__name__}: {problem}".split())[:REASON_MAX]

    # --- what happens

    def _play(self, stack: ExitStack) -> None:
        log = MetadataLog(self.api, self.folder / "metadata.jsonl")
        stack.callback(log.end)
        workload = WORKLOADS[self.plan.workload]
        load = PodTraffic(self.cluster, self.topic, workload)
        random = Random(f"{self.plan.name} {self.plan.seed}")
        site = self.site = Site(
            cluster=self.cluster, hands=self.hands, api=self.api, log=log, load=load, random=random, say=self.say
        )
        self._rest()
        log.start()
        stack.callback(self._remove)
        self.cluster.apply(topic_object(self.topic, partitions=workload.partitions))
        self._whole()
        log.wait(lambda: set(map(broker_pod, range(BROKERS))) <= set(log.objects("pods")), WHOLE_LIMIT_S)
        began_s = time.monotonic()
        load.start()
        self.say(f"the load is up: {self.plan.workload}")
        try:
            for step in self.plan.steps:
                self._step(site, step)
            self._mended(load)
            report = self._end(site, began_s)
        except AssertionError as problem:  # what a generous limit was not enough for
            self.verdict = judge_early(self.topic, self._note(problem), load.stop, self.folder / "metadata.jsonl")
        else:
            self._judge(site, report)

    def _step(self, site: Site, step: Step) -> None:
        """Harm, wait until it shows, and, where the plan says so, until all is whole and acknowledges again."""
        done = len(site.harms)
        FAULTS[step.fault].inject(site)
        for harm in site.harms[done:]:
            if not site.log.wait(harm.look, BITE_LIMIT_S):
                self.say(f"did not bite: {harm.name}: not seen: {', '.join(harm.unseen)}")
        if step.rests:
            self._mended(site.load)
            self.say(f"whole again, {site.load.tell('count'):,} acknowledged")

    def _mended(self, load: PodTraffic) -> None:
        self._whole()
        load.fault("whole again", [])
        load.progress()

    def _whole(self) -> None:
        partitions = WORKLOADS[self.plan.workload].partitions
        self.cluster.until(lambda: self.cluster.whole(self.topic, partitions, BROKERS), "every ISR full", WHOLE_LIMIT_S)

    def _end(self, site: Site, began_s: float) -> dict[str, Any]:
        """Stop the load; what its clients saw."""
        report = site.load.stop()
        self.minutes = (time.monotonic() - began_s) / 60
        self.say("the load has ended and everything was read once more")
        self._whole()
        site.log.sync()
        return report

    def _judge(self, site: Site, report: dict[str, Any]) -> None:
        floor = site.load.floor(report["seconds"])
        self.verdict = judge(self.topic, report, self._copies(), self.folder / "metadata.jsonl", floor)

    def _copies(self) -> dict[int, Path]:
        """Broker -> a copy of what its volume has of the topic."""
        found = {}
        for broker in range(BROKERS):
            pod, target = broker_pod(broker), self.folder / "replicas" / str(broker)
            volume = self.cluster.get(f"pvc/data-{pod}")["spec"]["volumeName"]
            self.hands.copy_logs(self.cluster.node_of(pod), volume, self.topic, target)
            found[broker] = target
        return found

    def _rest(self) -> None:
        """Replace pods whose container was started again: the kubelet holds them back, longer each time."""
        pods = [*self.cluster.items("pods", BROKER_PODS), *self.cluster.items("pods", OPERATOR_PODS)]
        worn = [each["metadata"]["name"] for each in pods if worn_out(each)]
        if worn:
            self.say(f"replaced, since they were restarted: {', '.join(worn)}")
            self.cluster.kubectl("delete", "pod", *worn, limit_s=FRESH_LIMIT_S)
        self.cluster.until(self._fresh, "brokers and operators are ready", FRESH_LIMIT_S)

    def _fresh(self) -> bool:
        wanted = BROKERS + self.cluster.items("deployments", OPERATOR_PODS)[0]["spec"]["replicas"]
        ready = self.cluster.containers_ready(BROKER_PODS) + self.cluster.containers_ready(OPERATOR_PODS)
        return ready == wanted and bool(self.cluster.leading_operator())

    # --- what stays, and what goes

    def _keep_story(self) -> None:
        """For who looks into it: what clients wrote, and what brokers, operators and resources say."""
        if self.site is None:
            return
        # What was broken may be what it is asked through.
        with suppress(AssertionError, OSError, subprocess.SubprocessError, StartError):
            self.site.load.save_histories(self.folder / "histories.tar")
            told = f"{self.cluster.story()}\n{self.site.load.story()}"
            (self.folder / "story.txt").write_text(told, encoding="utf-8")

    def _remove(self) -> None:
        """The load and the topic."""
        names = (f"pod/load-{self.topic}", f"klt/{self.topic}")
        with suppress(CommandError, subprocess.TimeoutExpired):
            self.cluster.kubectl("delete", *names, "--ignore-not-found", "--wait=false", limit_s=120)


def worn_out(pod: dict[str, Any]) -> bool:
    """Whether one of its containers was ever started again."""
    return any(status["restartCount"] for status in pod["status"].get("containerStatuses") or [])
