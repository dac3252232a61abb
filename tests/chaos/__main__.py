"""Chaos on real processes, judged by what clients saw.

    python -m tests.chaos --list
    python -m tests.chaos --scenario kill-leader/steady --seed 7
    python -m tests.chaos --minutes 60 --seed 7          # random scenarios in a fair order, for that long
    python -m tests.chaos --sample 3 --seed 7            # a few of the cheap ones
    python -m tests.chaos --scenario power-loss-all/single --patch tests/chaos/broken/no-sync.patch
    python -m tests.chaos --summary                      # what the ledger's lines add up to, per hash of the program

Each scenario runs in a process and a folder of its own (.cache/chaos); the folder stays when it did not pass. Every run
adds a line to the ledger. Exit code 1 when a scenario did not pass, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NoReturn

import msgspec

from tests.chaos import cleanup, ledger
from tests.chaos.faults import DISKS, NETWORK, PROGRAMS
from tests.chaos.ledger import CUT_OFF, FAILED, NO_HEAL, PASSED, Line
from tests.chaos.patched import patched_copy
from tests.chaos.scenarios import SAMPLE, deck, scenarios
from tools.tree_hash import tree_hash

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".cache" / "chaos"
SCENARIO_LIMIT_S = 900.0  # a run that does not heal is judged within it as well
CLEANUP_LIMIT_S = 200.0
KEPT_MAX = 20  # folders of runs that did not pass; those that show a broken promise stay beyond it
KEPT_BYTES_MAX = 6 << 30
FAILURES_MAX = 10  # in a row: the next ones would say nothing new, and a long run ends


class InterruptedBySignal(BaseException):  # like KeyboardInterrupt: nobody may swallow it
    """SIGTERM: leave everything tidy and end."""


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise InterruptedBySignal


def rounds_of(name: str, times: int) -> int | None:
    """Rounds of a scenario that is to last so many times as long; None for its own number."""
    return None if times == 1 else times * scenarios()[name].fault.rounds


def play_here(name: str, seed: int, folder: Path, *, rounds: int | None, keep: bool) -> int:
    """Run a scenario in this process; its line goes to `folder`.json."""
    from tests.chaos.runner import play

    line = play(scenarios()[name], seed, folder, rounds=rounds, keep=keep)
    folder.with_suffix(".json").write_bytes(msgspec.json.encode(line))
    return 0 if line.verdict == PASSED else 1


def limit_s(name: str, rounds: int | None) -> float:
    """How long a scenario may take: the more rounds, the longer."""
    own = scenarios()[name].fault.rounds
    return SCENARIO_LIMIT_S * max(1.0, (rounds or own) / own)


def play_apart(
    name: str, seed: int, *, rounds: int | None = None, keep: bool = False, python_path: str | None = None
) -> Line:
    """Run a scenario in a process of its own, and clean up after it whatever happened to it."""
    WORK.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC)
    folder = WORK / f"{name.replace('/', '-')}-{stamp.strftime('%H%M%S')}{stamp.microsecond // 1000:03d}"
    result = folder.with_suffix(".json")
    command = [sys.executable, "-m", "tests.chaos", "--scenario", name, "--seed", str(seed), "--here", str(folder)]
    command += ["--rounds", str(rounds)] if rounds else []
    command += ["--keep"] if keep else []
    environment = dict(os.environ) if python_path is None else dict(os.environ, PYTHONPATH=python_path)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            ended, in_time = _waited(process, limit_s(name, rounds))
        except BaseException:
            process.terminate()
            process.wait(CLEANUP_LIMIT_S)
            raise
    if folder.is_dir() and cleanup.is_orphan(folder):
        cleanup.clean(folder)
    if result.is_file():
        line = msgspec.json.decode(result.read_bytes(), type=Line)
        result.unlink()
        return line
    # What hangs may be the program: a run that was never over counts against it until somebody knows better.
    verdict = FAILED if in_time else NO_HEAL
    return unfinished(name, seed, stamp, f"ended without a result ({ended}); see {folder}", verdict)


def _waited(process: subprocess.Popen[bytes], within_s: float) -> tuple[str, bool]:
    """Wait for the end of a scenario's process, which comes at last; how it ended, and whether by itself."""
    try:
        return f"exit code {process.wait(within_s)}", True
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(CLEANUP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    return f"it took more than {within_s:.0f} s", False


def unfinished(name: str, seed: int, began: datetime, reason: str, verdict: str = FAILED) -> Line:
    """The line of a run that wrote none."""
    return Line(
        time=began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        tree=tree_hash(),
        commit="",
        harness=ledger.harness_hash(),
        scenario=name,
        seed=seed,
        verdict=verdict,
        reason=reason,
        minutes=0.0,
        injected=0,
        bitten=0,
        acked=0,
    )


def show(line: Line) -> None:
    """One run in words."""
    print(
        f"{line.scenario} seed {line.seed}: {line.verdict}; {line.bitten} of {line.injected} faults bit, {line.acked:,} "
        f"acknowledged, longest pause {line.longest_gap_ms:,.0f} ms, {line.minutes:.1f} min"
        + (f"\n  {line.reason}" if line.reason else ""),
        flush=True,
    )


def recorded(path: Path, name: str, seed: int, *, rounds: int | None, keep: bool = False) -> Line:
    """Run a scenario and add its line to the ledger, whatever becomes of it: it has one also when somebody ends it."""
    began = datetime.now(UTC)
    try:
        line = play_apart(name, seed, rounds=rounds, keep=keep)
    except Exception as problem:  # the task's root: one scenario must not end a run of hours
        traceback.print_exc()
        line = unfinished(name, seed, began, f"not foreseen: {type(problem).__name__}: {problem}")
    except BaseException:
        ledger.append(path, unfinished(name, seed, began, "ended from outside", CUT_OFF))
        raise
    ledger.append(path, line)
    show(line)
    return line


def left_behind(folders: list[str]) -> list[Line]:
    """The lines of runs that were killed, and nobody has written down; `folders` are theirs."""
    found = [WORK / name / "line.json" for name in folders]
    lines = [msgspec.json.decode(path.read_bytes(), type=Line) for path in found if path.is_file()]
    return [line for line in lines if line.verdict == CUT_OFF]


def soak(names: list[str], seed: int, minutes: float, path: Path, times: int = 1) -> bool:
    """Scenarios in a fair random order until the time is over; False when one did not pass.

    With `times` each has so many times its rounds: less of the time goes into clusters that start.
    """
    random = Random(seed)
    limit = time.monotonic() + minutes * 60
    ok, number, failures = True, 0, 0
    order: list[str] = []
    while time.monotonic() < limit and failures < FAILURES_MAX:
        cleanup.prune(WORK, KEPT_MAX, KEPT_BYTES_MAX)
        order = order or deck(random, names)
        name = order.pop(0)
        line = recorded(path, name, seed * 1000 + number, rounds=rounds_of(name, times))
        number += 1
        ok = ok and line.verdict == PASSED
        failures = failures + 1 if line.verdict in {FAILED, NO_HEAL} else 0
    if failures >= FAILURES_MAX:
        print(f"{failures} runs in a row could not be finished: given up", flush=True)
    return ok


def lacking(names: list[str]) -> str:
    """What these scenarios need and the machine does not have, in words; empty when they can run."""
    needs = {need for name in names for need in scenarios()[name].fault.needs}
    wanted = {program: package for need in needs for program, package in PROGRAMS.get(need, {}).items()}
    absent = sorted(program for program in wanted if shutil.which(program) is None)
    said = []
    if absent:
        packages = " ".join(sorted({wanted[program] for program in absent}))
        said.append(f"{', '.join(absent)} missing (Debian: apt-get install {packages})")
    if os.geteuid() != 0 and needs & {NETWORK, DISKS}:
        said.append("faults of networks and disks need root")
    return "; ".join(said)


def notice(names: list[str], seed: int, options: argparse.Namespace) -> bool:
    """Whether one of the scenarios finds the copy of the program broken."""
    copy = WORK.with_name("chaos-patched") / options.patch.stem
    python_path = patched_copy(ROOT, options.patch.absolute(), copy)
    try:
        for name in names:
            line = play_apart(name, seed, rounds=options.rounds, keep=options.keep, python_path=python_path)
            show(line)
            if line.verdict == ledger.BROKEN:
                return True
    finally:
        shutil.rmtree(copy)
    return False


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="the scenarios")
    what.add_argument("--scenario", metavar="NAME", help="one scenario; an initial part of a name: all that begin so")
    what.add_argument("--minutes", type=float, help="random scenarios for so long")
    what.add_argument("--hours", type=float, help="the same in hours")
    what.add_argument("--sample", type=int, metavar="N", help="so many of the cheap ones")
    what.add_argument(
        "--summary", action="store_true", help="add up the ledger; exit code 1: something broke or did not heal"
    )
    parser.add_argument("--seed", type=int, help="default: drawn from the clock and printed")
    parser.add_argument("--rounds", type=int, help="of each scenario, instead of its own number")
    parser.add_argument(
        "--times", type=int, default=1, help="with --minutes: so many times the rounds of each scenario"
    )
    parser.add_argument("--only", default="", help="with --minutes: scenarios whose name contains this")
    parser.add_argument("--ledger", type=Path, default=ledger.LEDGER)
    parser.add_argument("--keep", action="store_true", help="keep the folder of a scenario that passed")
    parser.add_argument("--patch", type=Path, help="break a copy of the program first, and expect that it is noticed")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Entry point."""
    signal.signal(signal.SIGTERM, _interrupt)
    options = arguments()
    known = scenarios()
    seed = options.seed if options.seed is not None else int(time.time()) % 1_000_000
    if options.list:
        for scenario in known.values():
            needs = f" [{', '.join(sorted(scenario.fault.needs))}]" if scenario.fault.needs else ""
            print(f"{scenario.name:44} {scenario.fault.text}{needs}")
        print(f"{len(known)} scenarios, {len({s.fault.name for s in known.values()})} kinds of faults")
        return 0
    if options.summary:
        summaries = ledger.summarize(ledger.read(options.ledger))
        print("\n".join(summary.text() for summary in summaries) or "no lines")
        return 1 if any(summary.against for summary in summaries) else 0
    if options.here:
        return play_here(options.scenario, seed, options.here, rounds=options.rounds, keep=options.keep)
    print(f"seed {seed}", flush=True)
    if swept := cleanup.sweep(WORK):
        print(f"put away what killed runs had left: {', '.join(swept)}", flush=True)
        for line in left_behind(swept):
            ledger.append(options.ledger, line)
    cleanup.prune(WORK, KEPT_MAX, KEPT_BYTES_MAX)
    if options.minutes or options.hours:
        names = [name for name in known if options.only in name]
        if not names:
            print(f"no scenario has {options.only!r} in its name; --list shows them", file=sys.stderr)
            return 2
        if said := lacking(names):
            print(
                f"nothing was run: {said}. Or choose scenarios with --only; --list says what each needs",
                file=sys.stderr,
            )
            return 2
        if options.times < 1:
            print(f"--times {options.times}: expected 1 or more", file=sys.stderr)
            return 2
        ok = soak(names, seed, options.minutes or options.hours * 60, options.ledger, options.times)
        return 0 if ok else 1
    if options.sample:
        cheap = [name for group in SAMPLE.values() for name in group]
        chosen = Random(seed).sample(cheap, min(options.sample, len(cheap)))
    else:
        chosen = [name for name in known if name.startswith(options.scenario)]
    if not chosen:
        print(f"no scenario {options.scenario!r}; --list shows them", file=sys.stderr)
        return 2
    if options.patch:
        return 0 if notice(chosen, seed, options) else 1
    ok = True
    for name in chosen:
        line = recorded(options.ledger, name, seed, rounds=options.rounds, keep=options.keep)
        ok = ok and line.verdict == PASSED
    return 0 if ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InterruptedBySignal:
        sys.exit(f"ended by SIGTERM (pid {os.getpid()})")
