"""Chaos on the cluster of `make kind-up`, judged by what clients saw, by the bytes of the replicas and by the metadata.

    make chaos CONTEXT=kind HOURS=2
    python -m tests.chaos.kind --minutes 20 --seed 7
    python -m tests.chaos.kind --faults drain,kill-leader --seed 7     # one round with these
    python -m tests.chaos.kind --plan 7                                # what the seeds from 7 on would choose
    python -m tests.chaos.kind --list                                  # the kinds of faults

It uses the cluster that KUBECONFIG names or `make kind-up` has started; where none runs, one of its own, which it takes
away again. The chart is installed once, in a namespace of its own, and anew after a round that did not pass. Every round
adds a line to the ledger. Exit code 1 when a round did not pass, 2 when none could be played.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.chaos import cleanup, ledger
from tests.chaos.kind.api import KindApi
from tests.chaos.kind.faults import FAULTS
from tests.chaos.kind.hands import Hands
from tests.chaos.kind.images import foreign
from tests.chaos.kind.rounds import Round
from tests.chaos.kind.schedule import plan
from tests.chaos.ledger import CUT_OFF, PASSED, Line
from tests.chaos.runner import LINE
from tests.cluster.kind import cluster as kind
from tests.cluster.kind.commands import ended_by_signals
from tests.cluster.kind.stages import build
from tests.cluster.processes import StartError
from tests.e2e.cluster import ROOT, Cluster
from tests.e2e.installation import installed
from tests.e2e.load import BROKERS, topic_object

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "kafkalite-chaos"
WORK = ROOT / ".cache" / "chaos-kind"
KEPT_MAX = 10  # folders of rounds that did not pass; those that show a broken promise stay beyond it
KEPT_BYTES_MAX = 2 << 30
FAILURES_MAX = 3  # in a row: then the cluster or the machine is to blame, and a long run ends
PLANS_SHOWN = 10
FIRST = "first"  # a topic that stays for all rounds, at rest
READY_LIMIT_S = 180


class UnfitError(Exception):
    """Nothing can be played here; the text says why."""


class Campaign:
    """Rounds of successive seeds until the time is over, or one of chosen faults."""

    def __init__(self, cluster: Cluster, hands: Hands, options: argparse.Namespace) -> None:
        self.cluster, self.hands, self.options = cluster, hands, options
        self.api = KindApi(Path(os.environ["KUBECONFIG"]), NAMESPACE)
        self.ok = True
        self._seeds = self._numbers()

    def _numbers(self) -> Iterator[int]:
        """Seeds of rounds, as long as there is time."""
        number, limit = self.options.seed, time.monotonic() + self.options.minutes * 60
        while number == self.options.seed or (not self.options.faults and time.monotonic() < limit):
            yield number
            number += 1

    def run(self) -> None:
        """All of them; `ok` says whether all passed. The nodes are healed however it ends."""
        failures = 0
        seed = next(self._seeds, None)
        while seed is not None and failures < FAILURES_MAX:
            self._heal()
            with installed(self.cluster):
                brokers(self.cluster)
                if pods := foreign(self.cluster):
                    raise UnfitError(f"{', '.join(pods)} run other sources than those here: make images")
                while seed is not None:
                    line = self._round(seed)
                    self.ok = self.ok and line.verdict == PASSED
                    failures = 0 if line.verdict == PASSED else failures + 1
                    seed = next(self._seeds, None)
                    if line.verdict != PASSED:
                        self._heal()
                        break
        if seed is not None:
            print(f"{failures} rounds in a row did not pass: given up", flush=True)

    def _round(self, seed: int) -> Line:
        chosen = plan(seed, self.options.faults)
        print(f"--- seed {seed}: {chosen.name}", flush=True)
        cleanup.prune(WORK, KEPT_MAX, KEPT_BYTES_MAX)
        folder = WORK / f"{seed}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
        folder.mkdir(parents=True)
        round_ = Round(chosen, self.cluster, self.hands, self.api, folder)
        try:
            line = round_.run()
        except BaseException:
            ledger.append(self.options.ledger, round_.line(CUT_OFF, "ended from outside"))
            (folder / cleanup.OWNER).unlink(missing_ok=True)
            raise
        ledger.append(self.options.ledger, line)
        show(line)
        if line.verdict == PASSED and not self.options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        return line

    def _heal(self) -> None:
        """Also what a run left that was killed."""
        if healed := self.hands.heal():
            print(f"healed: {', '.join(healed)}", flush=True)


def brokers(cluster: Cluster) -> None:
    """Have them made, which the operator does for the first topic, and wait until they are ready."""
    cluster.apply(topic_object(FIRST, partitions=1))
    cluster.until(lambda: cluster.containers_ready() == BROKERS, "brokers are ready", READY_LIMIT_S)
    cluster.until(lambda: cluster.whole(FIRST, 1, BROKERS), "the first topic is in sync", READY_LIMIT_S)


def show(line: Line) -> None:
    """One round in words."""
    print(
        f"{line.scenario} seed {line.seed}: {line.verdict}; {line.bitten} of {line.injected} faults bit, {line.acked:,} "
        f"acknowledged, {line.replica_bytes:,} bytes of replicas and {line.metadata_changes:,} changes of metadata "
        f"judged, longest pause {line.longest_gap_ms:,.0f} ms, {line.minutes:.1f} min"
        + (f"\n  {line.reason}" if line.reason else ""),
        flush=True,
    )


def left_behind() -> list[Line]:
    """The lines of rounds that were killed, and nobody has written down."""
    lines = []
    for folder in sorted(WORK.glob("*")):
        if folder.is_dir() and cleanup.is_orphan(folder):
            with suppress(OSError, msgspec.DecodeError):
                line = msgspec.json.decode((folder / LINE).read_bytes(), type=Line)
                lines += [line] if line.verdict == CUT_OFF else []
            (folder / cleanup.OWNER).unlink()
    return lines


def play(options: argparse.Namespace) -> int:
    """On the cluster that runs. The exit code."""
    for line in left_behind():
        ledger.append(options.ledger, line)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as home, ended_by_signals():
        cluster = Cluster(build("kubernetes/build.sh") / "kubectl", build("helm/build.sh"), Path(home), NAMESPACE)
        hands = Hands.of(cluster)
        if not isinstance(hands, Hands):
            raise UnfitError("the nodes of this cluster are not ours to harm: it was not made by `make kind-up`")
        campaign = Campaign(cluster, hands, options)
        try:
            campaign.run()
        finally:
            hands.heal()
    return 0 if campaign.ok else 1


def running() -> bool:
    """Whether there is a cluster: that of KUBECONFIG, or else of `make kind-up`, which is named so from now on."""
    if not os.environ.get("KUBECONFIG") and kind.KUBECONFIG.exists():
        with suppress(StartError):
            if kind.NAME in kind.clusters(kind.used()):
                os.environ["KUBECONFIG"] = str(kind.KUBECONFIG)
    return bool(os.environ.get("KUBECONFIG"))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.kind", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="the kinds of faults")
    what.add_argument("--plan", type=int, metavar="SEED", help=f"what {PLANS_SHOWN} seeds from this on choose")
    what.add_argument("--minutes", type=float, default=0.0, help="rounds of successive seeds for so long")
    what.add_argument("--hours", type=float, help="the same in hours")
    what.add_argument("--faults", default="", help="one round with these, separated by commas")
    parser.add_argument("--seed", type=int, help="of the first round; default: drawn from the clock and printed")
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER)
    parser.add_argument("--keep", action="store_true", help="keep the folder of a round that passed")
    options = parser.parse_args(arguments)
    options.faults = [name for name in options.faults.split(",") if name]
    options.minutes = options.hours * 60 if options.hours else options.minutes
    if options.seed is None:
        options.seed = int(time.time()) % 1_000_000
    if wrong := set(options.faults) - set(FAULTS):
        parser.error(f"no kind of fault: {', '.join(sorted(wrong))}; --list shows them")
    return options


def main() -> int:
    """Entry point."""
    options = parse()
    if options.list:
        print("\n".join(f"{each.name:18} {each.text}" for each in FAULTS.values()))
        return 0
    if options.plan is not None:
        print("\n".join(f"{seed} {plan(seed).name}" for seed in range(options.plan, options.plan + PLANS_SHOWN)))
        return 0
    if not running():
        words = [sys.executable, "-m", "tests.cluster", "kind", "run", "--", sys.executable, "-m", "tests.chaos.kind"]
        return subprocess.run([*words, *sys.argv[1:]], cwd=ROOT, check=False).returncode
    try:
        return play(options)
    except (UnfitError, StartError, AssertionError, subprocess.TimeoutExpired) as error:
        print(f"cannot go on: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
