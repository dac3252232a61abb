"""Faults of clocks: the wall clock of a broker or of the operator jumps while it runs, or a broker's time runs wrong.

Processes start with a small library in front of the C library (clock_shim.c), which looks up the offset at each reading.
Monotonic time is left alone, except where the rate of all clocks is the fault.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

from kafkalite_core.resources.naming import OPERATOR_LEASE
from tests.chaos.api import ApiRefusedError
from tests.chaos.api_faults import CLIENTS, OPERATOR
from tests.chaos.cluster import BROKERS, PromiseError
from tests.chaos.disks import command
from tests.chaos.faults import CLOCKS, Bite, Run, fault
from tests.chaos.launcher import broker_pod
from tests.chaos.signal_faults import LEASE_S, kill

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("clock_shim.c")
SETTING = Struct("=qd")  # nanoseconds added to the wall clock, rate of all clocks
HOUR_S = 3600
NOT_FOUND = 404
NOTICE_S = 1.5  # a Lease is renewed every second
SKEW_LIMIT_S = 20.0


class Clocks:
    """How far the clocks of brokers and operator are off, and how processes start so that theirs are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "clocks"
        self._folder.mkdir()
        self._library = self._folder / "clock_shim.so"
        command("cc", "-O1", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE))
        for client in CLIENTS:
            (self._folder / client).write_bytes(SETTING.pack(0, 1.0))

    def set(self, client: str, offset_s: float, rate: float = 1.0) -> None:
        """From now on the wall clock of this process is off by so much; the rate is for processes that start."""
        with (self._folder / client).open("r+b", buffering=0) as file:  # the same file: it is mapped
            file.write(SETTING.pack(round(offset_s * 1e9), rate))

    def lines_for(self, client: str) -> list[str]:
        """Shell with which a pod's process starts."""
        return [f"export LD_PRELOAD='{self._library}' CHAOS_CLOCK='{self._folder / client}'"]


def clocks(run: Run) -> Clocks:
    """The run's clocks."""
    assert run.clocks is not None
    return run.clocks


def skew_s(run: Run, client: str) -> float:
    """How far the wall clock of a process is off, as the renewal time of its Lease shows; 0 when there is none."""
    name = OPERATOR_LEASE if client == OPERATOR else broker_pod(int(client.rpartition("-")[2]))
    try:
        renewed = run.cluster.api.get("leases", name)["spec"].get("renewTime")
    except ApiRefusedError as error:
        if error.code != NOT_FOUND:
            raise
        return 0.0  # it is made a moment after the registration
    if not renewed:
        return 0.0
    return datetime.fromisoformat(renewed).timestamp() - datetime.now(UTC).timestamp()


def seen_skew(run: Run, client: str, at_least_s: float) -> bool:
    """Wait until the Lease shows a clock that is off by so much."""
    limit = time.monotonic() + SKEW_LIMIT_S
    while time.monotonic() < limit:
        if abs(skew_s(run, client)) >= at_least_s:
            return True
        time.sleep(0.3)
    return False


@contextmanager
def jumped(run: Run, client: str, offset_s: float) -> Iterator[None]:
    """The clock jumps, and jumps back after the body; that the Lease showed it proves the bite."""
    seen: list[bool] = []
    run.harm(f"clock of {client} jumps by {offset_s:+,.0f} s", [], Bite("the Lease shows it", lambda: any(seen)))
    clocks(run).set(client, offset_s)
    try:
        seen.append(seen_skew(run, client, abs(offset_s) / 2))
        yield
    finally:
        clocks(run).set(client, 0)
    time.sleep(NOTICE_S)


def either(run: Run) -> float:
    """An hour forwards or backwards."""
    return run.random.choice([-HOUR_S, HOUR_S]) * run.random.uniform(1, 3)


@fault("clock-leader", needs=(CLOCKS,), workloads=("steady", "single"))
def clock_leader(run: Run) -> None:
    """The leader's wall clock jumps by hours, and back."""
    with jumped(run, f"broker-{run.leader()}", either(run)):
        run.sleep(LEASE_S, LEASE_S + 4)


@fault("clock-operator", needs=(CLOCKS,), workloads=("steady", "churn"))
def clock_operator(run: Run) -> None:
    """The operator's wall clock jumps by hours; it must fence nobody, and still elect when the leader is killed."""
    fenced = run.more("fencings/")
    with jumped(run, OPERATOR, either(run)):
        run.sleep(LEASE_S, LEASE_S + 3)
        if fenced.seen():
            raise PromiseError("somebody was fenced because the operator's wall clock jumped")
        kill(run, run.leader(), "leader", run.election())
        run.sleep(1, 3)


@fault("clock-strobe", needs=(CLOCKS,), workloads=("single", "group"), rounds=2)
def clock_strobe(run: Run) -> None:
    """Every wall clock jumps by minutes, to and fro, for some time."""
    seen: list[bool] = []
    run.harm("all clocks jump to and fro", [], Bite("a Lease shows it", lambda: any(seen)))
    for _ in range(6):
        for client in CLIENTS:
            clocks(run).set(client, run.random.choice([-300, -30, 30, 300]))
        time.sleep(NOTICE_S)
        seen.append(abs(skew_s(run, f"broker-{run.random.randrange(BROKERS)}")) > 20)
    for client in CLIENTS:
        clocks(run).set(client, 0)
    time.sleep(NOTICE_S)


@fault("clock-jump-and-kill", needs=(CLOCKS,), workloads=("steady", "rolling"))
def clock_jump_and_kill(run: Run) -> None:
    """The leader's clock is wrong when it is killed and right when it comes back."""
    broker = run.leader()
    with jumped(run, f"broker-{broker}", either(run)):
        run.sleep(1, 2)
        kill(run, broker, "leader", run.election())
        clocks(run).set(f"broker-{broker}", 0)
        run.sleep(1, 2)


@fault("clock-rate", needs=(CLOCKS,), workloads=("steady",), rounds=2)
def clock_rate(run: Run) -> None:
    """A broker comes back with clocks that run at half or double speed, monotonic time included."""
    broker = run.leader()
    client = f"broker-{broker}"
    rate = run.random.choice([0.5, 2.0])
    back = run.incarnation(broker)
    seen: list[bool] = []
    run.harm(f"broker {broker} at rate {rate}", [broker], back, Bite("the Lease shows it", lambda: any(seen)))
    with run.cluster.launcher.held(broker_pod(broker)):
        record = run.cluster.record(broker)
        record.signal(signal.SIGKILL)
        run.cluster.wait_replaced(broker, record)
        clocks(run).set(client, 0, rate)
    run.wait(back, 60)
    run.sleep(6, 9)
    seen.append(seen_skew(run, client, 2.0))
    run.sleep(2, 4)
    clocks(run).set(client, 0)
    kill(run, broker, "broker with the wrong clock")
