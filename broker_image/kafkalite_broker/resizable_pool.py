"""A pool of threads whose number changes while it works."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")


class ResizablePool(Executor):
    """As a `ThreadPoolExecutor`. Used on one thread.

    Args:
        threads: At most so many run.
        thread_name_prefix: Of their names.
    """

    def __init__(self, threads: int, *, thread_name_prefix: str) -> None:
        self._threads = threads
        self._thread_name_prefix = thread_name_prefix
        self._pool = self._new_pool()
        self._former: list[ThreadPoolExecutor] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Executor.submit`."""
        return self._pool.submit(fn, *args, **kwargs)

    def resize(self, threads: int) -> None:
        """From now on at most so many threads run.

        What waits is left to the threads of before, which end when nothing is left: until then there are more of them.
        """
        if threads == self._threads:
            return
        self._threads = threads
        self._pool.shutdown(wait=False)
        self._former.append(self._pool)
        self._pool = self._new_pool()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor.shutdown`."""
        for pool in (*self._former, self._pool):
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix=self._thread_name_prefix)
