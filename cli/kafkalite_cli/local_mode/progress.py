"""Steps that take a while: a line each, with what is waited for."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status  # noqa: TC002  (the class is small, and so is this module)


class Steps:
    """On a terminal a spinner tells what the current step waits for; elsewhere every change is a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._title = ""
        self._waiting = ""
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def begin(self, title: str) -> None:
        """A new step."""
        self._title, self._waiting, self._since = title, "", time.monotonic()
        if self._console.is_terminal:
            self._stop()
            self._status = self._console.status(title)
            self._status.start()

    def waiting(self, reason: str) -> None:
        """What the step waits for now."""
        if reason == self._waiting:
            return
        self._waiting = reason
        if self._status is not None:
            self._status.update(f"{self._title}: {reason}")
        elif reason:
            self._console.print(f"  … {self._title}: {reason}", highlight=False, soft_wrap=True)

    def done(self, result: str) -> None:
        """The step is done; `result` stays on the screen."""
        self._stop()
        seconds = time.monotonic() - self._since
        self._console.print(f"[green]✓[/green] {result} [dim]{seconds:.1f} s[/dim]", highlight=False, soft_wrap=True)

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
