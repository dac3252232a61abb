"""`kafkalite down`, and what `kafkalite clean` needs of it."""

import fcntl
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from kafkalite_cli.errors import Failure
from kafkalite_cli.local_mode import folder, processes
from kafkalite_runtime.home import API_SERVER, KUBELET, SUPERVISOR, Home

POLL_S = 0.05
HARD_LIMIT_S = 5.0


def stop_all(home: Home, *, timeout_s: float) -> list[str]:
    """Stop every process of this home, in a useful order; names of those that had to be killed.

    With a supervisor, it does the work. Without one (it was killed), the kubelet is asked to stop the pods, then the
    API server; whatever is left then is killed.
    """
    deadline = time.monotonic() + timeout_s
    if processes.supervisor_alive(home):
        _end(home, SUPERVISOR, signal.SIGTERM, deadline)
    _end(home, KUBELET, signal.SIGUSR1, deadline)
    _end(home, API_SERVER, signal.SIGTERM, deadline)
    killed = processes.kill_all(home)
    hard = time.monotonic() + HARD_LIMIT_S
    while any(process.alive for process in processes.list_processes(home)) or processes.unrecorded(home):
        if time.monotonic() > hard:
            raise Failure("some processes cannot be stopped: " + ", ".join(processes.kill_all(home)))
        time.sleep(POLL_S)
    for name in (SUPERVISOR, KUBELET, API_SERVER):
        home.record(name).unlink(missing_ok=True)
    return killed


@contextmanager
def kept_stopped(home: Home, *, timeout_s: float) -> Iterator[None]:
    """Everything of this home is stopped, and no `kafkalite up` is at work, or begins, that would start it again.

    One that is at work ends when what it started is stopped. Raises Failure for one that does not.
    """
    stop_all(home, timeout_s=timeout_s)
    try:
        lock = (home.root / folder.LOCK).open("rb")
    except FileNotFoundError:  # nobody was ever at work
        yield
        return
    deadline = time.monotonic() + timeout_s
    with lock:
        while not _taken(lock):
            if time.monotonic() > deadline:
                raise Failure(f"a `kafkalite up` is at work in {home.root}, nothing was removed: end it, and try again")
            time.sleep(POLL_S)
            stop_all(home, timeout_s=timeout_s)
        stop_all(home, timeout_s=timeout_s)
        yield


def _taken(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end(home: Home, name: str, number: int, deadline: float) -> None:
    process = processes.find(home, name)
    if process is None or not process.alive:
        return
    process.record.signal(signal.SIGCONT)
    process.record.signal(number)
    while process.record.alive() and time.monotonic() < deadline:
        time.sleep(POLL_S)
