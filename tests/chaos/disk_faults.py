"""Faults of disks: full, failing, slow, hanging, without power, wiped, torn."""

from __future__ import annotations

import re
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.chaos.cluster import BROKERS, NotHealedError
from tests.chaos.disks import tear, wipe
from tests.chaos.faults import DISKS, STALE_END, Bite, Run, fault
from tests.chaos.launcher import broker_pod
from tests.chaos.signal_faults import FENCED_LIMIT_S, kill
from tests.chaos.workloads import TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalite_runtime.home import ProcessRecord
    from tests.chaos.disks import Disk

END_LIMIT_S = 30.0
TORN_BYTES = 3000
ENDS = '"msg": "ending at once"'
# what a file system whose device takes no more blocks answers with, as it comes to know of it; read-only after a
# failure in its journal
FLUSH_ERRORS = "Input/output error|No space left on device|Read-only file system"
SLOW_S = 0.25  # a bound of the buckets in which the broker counts its flushes


def disk(run: Run, broker: int) -> Disk:
    """The broker's disk."""
    assert run.disks is not None
    return run.disks[broker]


def wait_ended(record: ProcessRecord, limit_s: float = END_LIMIT_S) -> None:
    """Wait until a process has ended. Raises NotHealedError."""
    limit = time.monotonic() + limit_s
    while record.alive():
        if time.monotonic() > limit:
            raise NotHealedError(f"{record.name} (pid {record.pid}) did not end within {limit_s:.0f} s")
        time.sleep(0.02)


@contextmanager
def dead(run: Run, brokers: Sequence[int]) -> Iterator[None]:
    """SIGKILL to brokers that stay down for the body."""
    records = [run.cluster.record(broker) for broker in brokers]
    with run.cluster.launcher.held(*(broker_pod(broker) for broker in brokers)):
        for record in records:
            record.signal(signal.SIGKILL)
        for record in records:
            wait_ended(record)
        yield


def logged(run: Run, broker: int, *patterns: str) -> Bite:
    """The broker's log has a new line in which all of these regular expressions are found."""
    path = run.cluster.home.log(f"broker-{broker}")
    before = path.stat().st_size

    def seen() -> bool:
        with path.open("rb") as file:
            file.seek(before)
            text = file.read().decode("utf-8", "replace")
        return any(all(re.search(each, line) for each in patterns) for line in text.splitlines())

    return Bite(f"broker {broker} logs {' and '.join(patterns)}", seen)


def fail_power(run: Run, brokers: Sequence[int], what: str) -> None:
    """Nothing that is not flushed survives on these brokers' disks."""
    lost: dict[int, bool] = {}
    for broker in brokers:
        gone = Bite("what was not flushed is gone", lambda broker=broker: lost.get(broker, False))
        run.harm(f"power failure of {what} (broker {broker})", [broker], run.incarnation(broker), gone)
    for broker in brokers:
        disk(run, broker).fail_power()
    with dead(run, brokers):
        for broker in brokers:
            disk(run, broker).detach()
            disk(run, broker).attach()
            lost[broker] = disk(run, broker).lost()


@fault("power-loss-leader", needs=(DISKS,), workloads=("steady", "single", "rolling", "packed"))
def power_loss_leader(run: Run) -> None:
    """The leader's power fails: what it had not flushed is lost."""
    fail_power(run, [run.leader()], "leader")


@fault("power-loss-all", needs=(DISKS,), workloads=("steady", "single", "rolling", "wide"))
def power_loss_all(run: Run) -> None:
    """The power of every broker fails at once: what nobody had flushed is lost."""
    fail_power(run, range(BROKERS), "all")


@fault("power-loss-two", needs=(DISKS,), workloads=("single", "packed"))
def power_loss_two(run: Run) -> None:
    """The power of two brokers fails at once."""
    fail_power(run, run.random.sample(range(BROKERS), 2), "two")


@fault("disk-full", needs=(DISKS,), workloads=("steady", "rolling"))
def disk_full(run: Run) -> None:
    """The leader's disk is full: it resigns, goes on serving reads, and leads again when there is space."""
    broker = run.leader()
    bites = (run.election(), logged(run, broker, "No space left|ENOSPC|disk full|disk is full"))
    run.harm(f"disk full (broker {broker})", [broker], *bites)
    with disk(run, broker).full():
        run.wait(bites[0], FENCED_LIMIT_S)
        run.sleep(2, 5)


@fault("disk-eio", needs=(DISKS,), workloads=("steady", "single", "rolling"))
def disk_eio(run: Run) -> None:
    """Every write and flush of the leader's disk fails with EIO from now on: it must end by itself, and at once."""
    broker = run.leader()
    record = run.cluster.record(broker)
    bites = (run.incarnation(broker), logged(run, broker, ENDS, "Input/output error"))
    run.harm(f"EIO (broker {broker})", [broker], *bites)
    with run.cluster.launcher.held(broker_pod(broker)):
        disk(run, broker).fail_power()
        wait_ended(record)
        disk(run, broker).detach()
        disk(run, broker).attach()
        disk(run, broker).lost()  # takes its witness away


@fault("disk-flush-fails", needs=(DISKS,), workloads=("steady", "single", "rolling"))
def disk_flush_fails(run: Run) -> None:
    """The leader's device fails writes that were accepted, when they are flushed: it must end by itself."""
    broker = run.leader()
    record = run.cluster.record(broker)
    bites = (run.incarnation(broker), logged(run, broker, ENDS, FLUSH_ERRORS))
    run.harm(f"flush fails (broker {broker})", [broker], *bites)
    with run.cluster.launcher.held(broker_pod(broker)):
        with disk(run, broker).failing():
            wait_ended(record, 60)
        disk(run, broker).repair()


@fault("disk-slow", needs=(DISKS,), workloads=("steady", "packed"), rounds=2, allowed=STALE_END)
def disk_slow(run: Run) -> None:
    """The leader's disk takes 200 kB and 15 writes a second."""
    broker = run.leader()
    slow: list[float] = []
    longer = Bite(f"the broker counts flushes of more than {SLOW_S} s", lambda: len(slow) == 2 and slow[1] > slow[0])
    run.harm(f"slow disk (broker {broker})", [broker], longer)
    slow.append(run.cluster.slow_flushes(broker, SLOW_S))
    with disk(run, broker).slow(200_000, 15):
        run.sleep(5, 13)
        slow.append(run.cluster.slow_flushes(broker, SLOW_S))


@fault("disk-hang", needs=(DISKS,), workloads=("steady", "single"), allowed=STALE_END)
def disk_hang(run: Run) -> None:
    """The leader's disk hangs for a while: nothing can be flushed, so nothing may be acknowledged by it."""
    broker = run.leader()
    moved: list[int] = []
    led = run.led([broker])
    run.harm(f"disk hangs (broker {broker})", [broker], Bite("its partitions stand still", lambda: moved == [0]))
    with disk(run, broker).frozen():
        time.sleep(1)  # what was flushed already is answered
        moved.append(run.moved(led, 1.5))
        run.sleep(3, 8)


def wiped_bites(run: Run, broker: int) -> tuple[Bite, ...]:
    """A new process of the broker knows that its disk is empty, and it left the ISR."""
    return run.incarnation(broker), run.empty(broker), run.leaves_isr(broker)


@fault("disk-wiped", workloads=("steady", "single", "rolling", "group"))
def disk_wiped(run: Run) -> None:
    """A broker comes back with an empty disk after SIGKILL: it may not count until it has everything again."""
    broker = run.leader()
    run.harm(f"disk wiped (broker {broker})", [broker], *wiped_bites(run, broker))
    with dead(run, [broker]):
        wipe(run.cluster.data_directory(broker))


@fault("disk-wiped-quickly", workloads=("single", "wide"), rounds=2)
def disk_wiped_quickly(run: Run) -> None:
    """One broker after another comes back empty, each as soon as everything is in sync again."""
    for broker in run.random.sample(range(BROKERS), BROKERS):
        back = run.incarnation(broker)
        run.harm(f"disk wiped in turn (broker {broker})", [broker], *wiped_bites(run, broker))
        with dead(run, [broker]):
            wipe(run.cluster.data_directory(broker))
        run.wait(back, FENCED_LIMIT_S)
        run.cluster.wait_whole(120)


@fault("disk-torn", workloads=("single", "rolling", "packed"))
def disk_torn(run: Run) -> None:
    """A broker comes back without the last bytes of its logs, flushed ones among them."""
    broker = run.leader()
    cut: list[int] = []
    bites = (run.incarnation(broker), Bite("bytes were cut", lambda: sum(cut) > 0))
    run.harm(f"logs torn (broker {broker})", [broker], *bites)
    with dead(run, [broker]):
        cut.append(tear(run.cluster.data_directory(broker), TOPIC, run.random.randrange(1, TORN_BYTES)))


@fault("disk-wiped-and-killed", workloads=("single", "steady"))
def disk_wiped_and_killed(run: Run) -> None:
    """While an empty broker is being filled, the leader that fills it is killed."""
    leader = run.leader()
    empty = run.random.choice(run.others(leader))
    lacking: list[str] = []
    back = run.incarnation(empty)
    filling = Bite("it was not in sync when the leader was killed", lambda: bool(lacking))
    run.harm(f"disk wiped (broker {empty})", [empty], *wiped_bites(run, empty), filling)
    with dead(run, [empty]):
        wipe(run.cluster.data_directory(empty))
    run.cluster.log.wait(back.seen, FENCED_LIMIT_S)  # at once: there is not much to be filled
    kill(run, leader, "leader", run.election())
    lacking += run.cluster.lacks(TOPIC, empty)
