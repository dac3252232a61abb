"""How many records, how fast: while it lasts, and at the end. On standard error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from kafkalite_cli.output import note, on_terminal, size_text, stderr_console

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.progress import Progress, TaskID

LINE_EVERY_S = 5.0
REFRESH_S = 0.1


class Meter:
    """A moving line on a terminal; a line every few seconds elsewhere, when progress was asked for.

    Args:
        title: what is done, e.g. `sent`.
        shown: None: only on a terminal; True: in any case; False: never.
        total: where `done` of `update` will end, when that is known.
    """

    def __init__(
        self, title: str, *, shown: bool | None, total: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title, self._clock = title, clock
        self._lines = bool(shown) and not on_terminal()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = self._last = clock()
        if shown is not False and on_terminal():
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            columns = [SpinnerColumn(), *([BarColumn(20)] if total else []), TextColumn("{task.description}")]
            self._progress = Progress(*columns, console=stderr_console(), transient=True)
            self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    @property
    def elapsed_s(self) -> float:
        """Since it was made."""
        return self._clock() - self._began

    def due(self) -> bool:
        """Whether `update` would show something: what it needs may be costly."""
        every_s = REFRESH_S if self._progress is not None else LINE_EVERY_S
        return (self._progress is not None or self._lines) and self._clock() - self._last >= every_s

    def update(self, records: int, size_bytes: int, *, done: int | None = None, extra: str = "") -> None:
        """Show how far it is."""
        self._last = self._clock()
        words = rate_text(self._title, records, size_bytes, self.elapsed_s) + (f", {extra}" if extra else "")
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=words, completed=done)
        elif self._lines:
            note(words)


def rate_text(title: str, records: int, size_bytes: int, elapsed_s: float) -> str:
    """`sent 12,345 records (1.2 MiB) in 3.4 s, 3,631/s`."""
    rate = records / elapsed_s if elapsed_s > 0 else 0.0
    noun = "record" if records == 1 else "records"
    return f"{title} {records:,} {noun} ({size_text(size_bytes)}) in {elapsed_s:.1f} s, {rate:,.0f}/s"
