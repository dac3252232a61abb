"""The port through which the logs of a broker reach their data directory: what they need beyond a log's `Disk`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalite_core.storage.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
R = TypeVar("R")


class Held(Protocol):
    """A data directory that no other process may use."""

    def release(self) -> None:
        """Lets it go."""
        ...


class DataDirectory(Disk, Protocol):
    """One data directory: the file system's, or the simulator's."""

    def take(self) -> Held:
        """Takes the directory for this process. Raises `DirectoryLocked` when another one has it."""
        ...

    def is_directory(self, name: str) -> bool:
        """Whether there is a directory of that name."""
        ...

    def tree_bytes(self, directory: str) -> int:
        """Bytes of the files of a directory."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Removes a directory with everything in it."""
        ...


def each(function: Callable[[T], R], items: Iterable[T], threads: int, name: str) -> Iterator[R]:
    """Calls `function` with every item, on so many threads of that name; the results in the items' order.

    One thread is the caller's own: nothing more is begun when an item fails.
    """
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix=name) as pool:
        yield from pool.map(function, items)
