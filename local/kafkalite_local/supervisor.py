"""Keeps API server and kubelet running, and stops everything in a useful order.

It is also the subreaper of the pods' processes: when the kubelet dies, its children become ours, and how they end
is noted for the next kubelet.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkalite_local.processes import Watched, adopt, exit_note, now_text, spawn
from kafkalite_runtime.home import (
    API_SERVER,
    KUBELET,
    SUPERVISOR,
    Home,
    Ports,
    ProcessRecord,
    start_time_of,
    stat_fields,
    write_atomically,
)
from kafkalite_runtime.logging import get_logger

PR_SET_CHILD_SUBREAPER = 36
RESTART_MIN_S = 0.05
RESTART_MAX_S = 5.0
STABLE_S = 10.0
DRAIN_LIMIT_S = 40.0
STOP_LIMIT_S = 5.0
REAP_S = 0.25
_log = get_logger(__name__)


@dataclass(slots=True)
class Child:
    """One supervised process."""

    name: str
    argv: list[str]
    watched: Watched | None = None
    failures: int = 0
    started: float = field(default=0.0)


class Supervisor:
    """Starts or adopts the children; `stop()` ends `run()`."""

    def __init__(self, home: Home, ports: Ports, environ: Mapping[str, str]) -> None:
        self.home = home
        self._environ = dict(environ)
        command = [sys.executable, "-m", "kafkalite_local.main"]
        options = ["--home", str(home.root), "--port-base", str(ports.base)]
        self._children = [Child(name, [*command, name, *options]) for name in (API_SERVER, KUBELET)]
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop pods, kubelet and API server, in this order, and end."""
        self._stopping.set()

    async def run(self) -> int:
        """Until `stop()`: 0. When a part fails that ought not to, it is logged, and the children go on alone: 1."""
        become_subreaper()
        loop = asyncio.get_running_loop()
        keepers = [loop.create_task(self._keep(child), name=child.name) for child in self._children]
        reaper = loop.create_task(self._reap_orphans(), name="reaper")
        stopping = loop.create_task(self._stopping.wait(), name="stopping")
        parts: list[asyncio.Task[Any]] = [stopping, *keepers, reaper]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in (*keepers, reaper) if task.done()]
        for part in failed:
            # One that looks alive and looks after nothing is worse than none: `kafkalite up` starts a whole one.
            _log.critical("a part of the supervisor failed", part=part.get_name(), exc_info=part.exception())
        for task in (stopping, *keepers):
            task.cancel()
        await asyncio.gather(stopping, *keepers, return_exceptions=True)
        if self._stopping.is_set():
            api_server, kubelet = self._children
            await self._end(kubelet, signal.SIGUSR1, DRAIN_LIMIT_S)
            await self._end(api_server, signal.SIGTERM, STOP_LIMIT_S)
        reaper.cancel()
        await asyncio.gather(reaper, return_exceptions=True)
        return 1 if failed else 0

    async def _keep(self, child: Child) -> None:
        while True:
            try:
                await self._have(child)
            except OSError as error:  # a full disk, no descriptors or processes left: it may pass
                delay_s = self._delay_s(child)
                _log.error("not started", process=child.name, error=str(error), retry_in_s=delay_s)
                await asyncio.sleep(delay_s)
                continue
            assert child.watched is not None
            exit_ = await child.watched.wait()
            child.watched = None
            delay_s = self._delay_s(child)
            _log.warning("ended", process=child.name, exit_code=exit_.code, signal=exit_.signal, restart_in_s=delay_s)
            await asyncio.sleep(delay_s)

    async def _have(self, child: Child) -> None:
        """Adopt or start its process. Raises OSError; then none runs that no record names."""
        if record := adopt(self.home.record(child.name)):
            child.watched = Watched(record, self.home.exits)
            _log.info("adopted", process=child.name, pid=record.pid)
            return
        child.started = time.monotonic()
        record = spawn(child.argv, env=self._environ, log=self.home.log(child.name), name=child.name)
        try:
            child.watched = Watched(record, self.home.exits)
            record.write(self.home.record(child.name))
        except OSError:
            # Without its record nobody would find it: neither `kafkalite down` nor the next supervisor.
            os.kill(record.pid, signal.SIGKILL)
            if child.watched is not None:
                await child.watched.wait()
                child.watched = None
            raise
        _log.info("started", process=child.name, pid=record.pid)

    def _delay_s(self, child: Child) -> float:
        stable = time.monotonic() - child.started >= STABLE_S
        child.failures = 1 if stable else child.failures + 1
        return min(RESTART_MAX_S, RESTART_MIN_S * 2.0 ** max(0, min(child.failures, 20) - 3))

    async def _end(self, child: Child, number: int, limit_s: float) -> None:
        watched = child.watched
        if watched is None and (record := adopt(self.home.record(child.name))):
            watched = Watched(record, self.home.exits)
        if watched is not None:
            watched.send(signal.SIGCONT)
            watched.send(number)
            try:
                async with asyncio.timeout(limit_s):
                    await watched.wait()
            except TimeoutError:
                _log.warning("killed, it did not stop in time", process=child.name, limit_s=limit_s)
                watched.send(signal.SIGKILL)
                await watched.wait()
        self.home.record(child.name).unlink(missing_ok=True)

    async def _reap_orphans(self) -> None:
        """Wait for processes that became ours because their parent died; note how they ended."""
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, news.set)
        try:
            while True:
                while orphan := _dead_child({child.watched.record.pid for child in self._children if child.watched}):
                    pid, status = orphan
                    fields = stat_fields(pid)
                    assert fields is not None, "a zombie keeps its entry until it is waited for"
                    try:
                        write_atomically(exit_note(self.home.exits, pid, int(fields[19])), str(status).encode())
                    except OSError as error:  # how it ended is then unknown, but that it ended is not
                        _log.warning("exit status not noted", pid=pid, error=str(error))
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  (it is dead already)
                await news.wait()
                news.clear()
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)


def _dead_child(ours: set[int]) -> tuple[int, int] | None:
    """Pid and wait status of a dead child that nobody else here waits for; it stays a zombie."""
    for pid in _children_of(os.getpid()):
        if pid in ours:
            continue
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            status = found.si_status << 8 if found.si_code == os.CLD_EXITED else found.si_status
            return pid, status
    return None


def _children_of(parent: int) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def become_subreaper() -> None:
    """Orphaned descendants become our children (Linux; a failure only costs exact exit codes)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _log.warning("not a subreaper", errno=ctypes.get_errno())


async def run_supervisor(home: Home, ports: Ports) -> int:
    """Run until SIGTERM or SIGINT; 1 when another supervisor already runs for this home, or a part of it failed."""
    home.create()
    mine = home.record(SUPERVISOR)
    if (other := adopt(mine)) is not None and other.pid != os.getpid():
        _log.error("another supervisor runs", pid=other.pid)
        return 1
    start_time = start_time_of(os.getpid())
    assert start_time is not None
    ProcessRecord(name=SUPERVISOR, pid=os.getpid(), start_time=start_time, started_at=now_text()).write(mine)
    supervisor = Supervisor(home, ports, os.environ)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    code = await supervisor.run()
    mine.unlink(missing_ok=True)
    return code
