"""Setting aside the logs that no replica here uses any more: one after the other, while the event loop goes on (S10).

Each waits for the disk several times, and a topic that is deleted or made again may have hundreds of partitions: all at
once would cost the broker its Lease. So whatever waits for the disk does so on a thread. Until its log has been set
aside a partition gets no other one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.partition import TopicPartition
from kafkalite_core.storage.errors import DiskFailure
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kafkalite_broker.log.manager import LogManager
    from kafkalite_core.model.partition import TopicRef
    from kafkalite_core.storage.log import Log

log_events = get_logger(__name__)


class _Wish(NamedTuple):
    log: Log
    delete_seen: bool
    moved_away: bool
    reason: str


def _nothing() -> None:
    """Nobody wants to know."""


class SettingAside:
    """See the module. Used on the loop's thread.

    Args:
        logs: The logs, and the strays.
        pool: For what waits for the disk.
        settle: Called with a partition whose log was set aside: it may have another one now.
        on_disk_full: Told that there was no room; tried again with `go_on`.
        on_fatal: Told a `DiskFailure`, after which the process must end (R12).

    Attributes:
        on_strays: Called when all are set aside, or there is no room for more.
    """

    def __init__(
        self,
        logs: LogManager,
        pool: Executor,
        *,
        settle: Callable[[TopicPartition], None],
        on_disk_full: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._logs = logs
        self._pool = pool
        self._settle = settle
        self._on_disk_full = on_disk_full
        self._on_fatal = on_fatal
        self.on_strays = _nothing
        self._wishes: dict[TopicPartition, _Wish] = {}
        """In the order in which they are fulfilled; those that found no room go to the end."""
        self._under_way: TopicPartition | None = None
        self._names_wanted: set[TopicPartition] = set()
        self._failed: set[TopicPartition] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def want(self, log: Log, *, delete_seen: bool = False, moved_away: bool = False, reason: str) -> None:
        """Have a log set aside that no replica uses any more."""
        key = self._logs.metadata(log).key
        self._logs.unclaim(log)
        if key not in self._wishes:
            self._wishes[key] = _Wish(log, delete_seen, moved_away, reason)
        self.go_on()

    def waits(self, ref: TopicRef, number: int) -> bool:
        """Whether a replica has to wait until the log that has its name is out of its way.

        A log that has its very data stays, unless it is being set aside right now; then they are adopted afterwards.
        """
        key = TopicPartition(ref.name, number)
        log = self._logs.logs.get(key)
        own = log is not None and self._logs.metadata(log).topic_id == ref.topic_id
        if key != self._under_way and (log is None or own):
            self._wishes.pop(key, None)
            self._names_wanted.discard(key)
            return False
        if log is not None and not own:
            self.want(log, reason="another topic has its name")
        self._names_wanted.add(key)
        return True

    def go_on(self) -> None:
        """Sets aside what is wanted, also what found no room before."""
        if self._wishes and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="set logs aside")

    @property
    def idle(self) -> bool:
        """Whether nothing is being set aside, and whatever was has been told (`on_strays`)."""
        return self._task is None

    async def finished(self, timeout_s: float | None = None) -> bool:
        """Waits until all are set aside for which there is room, but not for longer; whether it came to that."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)
        return self._task is None

    def end_hosting(self) -> None:
        """The broker ends: nothing gets the place of what is set aside any more."""
        self._stopping = True

    async def stop(self) -> None:
        """Sets aside what is wanted, as far as there is room."""
        self.end_hosting()
        await self.finished()

    def close(self) -> None:
        """No further one is set aside."""
        if self._task is not None:
            self._task.cancel()
        self._wishes.clear()

    async def _run(self) -> None:
        try:
            while self._wishes:
                key = self._under_way = next(iter(self._wishes))
                if not await self._set_aside(key, self._wishes[key]):
                    self._under_way = None
                    if key in self._names_wanted and not self._stopping:
                        self._settle(key)  # its own log may be wanted back, and is still there
                    break
                del self._wishes[key]
                self._failed.discard(key)
                if key in self._names_wanted:
                    await self._make_way(key)
                self._under_way = None
                if not self._stopping:
                    self._settle(key)
        finally:
            # In one turn: who is idle has told of all that was set aside.
            self._under_way = self._task = None
            self.on_strays()

    async def _set_aside(self, key: TopicPartition, wish: _Wish) -> bool:
        loop = asyncio.get_running_loop()
        directory, topic_id = wish.log.directory, self._logs.metadata(wish.log).topic_id
        try:
            for wait in self._logs.setting_aside(wish.log, delete_seen=wish.delete_seen, moved_away=wish.moved_away):
                await loop.run_in_executor(self._pool, wait)
        except DiskFailure as error:
            self._on_fatal(error)
        except Exception as error:
            self._note_failure(key, directory, error)
            self._wishes[key] = self._wishes.pop(key)
            return False
        else:
            log_events.info("log set aside", directory=directory, topic_id=topic_id, reason=wish.reason)
        return True

    async def _make_way(self, key: TopicPartition) -> None:
        self._names_wanted.discard(key)
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._logs.make_way, key)
        except DiskFailure as error:
            self._on_fatal(error)
        except StorageError:
            return  # the next log finds out

    def _note_failure(self, key: TopicPartition, directory: str, error: Exception) -> None:
        """Other brokers lead meanwhile, and there may be room later."""
        full = isinstance(error, StorageError)
        if key not in self._failed:
            self._failed.add(key)
            info = {"error": str(error)} if full else {"exc_info": error}
            log_events.error("log not set aside, trying again", directory=directory, **info)
        if full:
            self._on_disk_full()
