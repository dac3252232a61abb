"""`kafkalite down`."""

import signal
import time

from kafkalite_cli.errors import Failure
from kafkalite_cli.local_mode import processes
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


def _end(home: Home, name: str, number: int, deadline: float) -> None:
    process = processes.find(home, name)
    if process is None or not process.alive:
        return
    process.record.signal(signal.SIGCONT)
    process.record.signal(number)
    while process.record.alive() and time.monotonic() < deadline:
        time.sleep(POLL_S)
