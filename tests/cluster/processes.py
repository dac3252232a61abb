"""Programs that end with whoever started them, and that say why when they end before."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PR_SET_PDEATHSIG = 1
STOP_LIMIT_S = 10.0
LOG_LINES_SHOWN = 20

_libc = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """What did not start, why, and what to do."""


def die_with(parent: int) -> None:
    """In the child: be killed when the parent ends, however it ends. The parent may have ended before we asked."""
    if _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
        os._exit(1)


class Program:
    """One process and its log.

    It has to be started by a thread that lives as long as it shall: the signal of a parent's death is in truth that of
    the death of the thread that forked.
    """

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        parent = os.getpid()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A Ctrl-C in the terminal is the parent's matter: it ends the programs in their order.
                process_group=0,
                preexec_fn=lambda: die_with(parent),
            )

    def check(self) -> None:
        """Raises StartError when it has ended."""
        if (code := self.process.poll()) is not None:
            raise StartError(f"{self.name} ended with {code}; the end of {self.log}:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def stop(self) -> None:
        """Ask it to end, then insist. Returns when it is gone."""
        self.process.terminate()
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
