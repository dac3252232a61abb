"""How a command ends when something ends it: an interrupt, a closed pipe, an error that nobody foresaw.

No command shows a traceback. Exit codes beyond 1 (it did not work) and 2 (wrong usage) are the shell's own:
128 + the number of the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import click

from kafkalite_cli.errors import Failure
from kafkalite_core.model.errors import KafkaLiteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
PIPE_CLOSED = 128 + signal.SIGPIPE


class Terminated(KeyboardInterrupt):
    """SIGTERM. What a command does at Ctrl-C is right for it, too; only the exit code is another one."""


@contextlib.contextmanager
def ending_in_plain_words() -> Iterator[None]:
    """Turn what would be a traceback into a sentence and an exit code."""
    try:
        with _terminable():
            yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Terminated:
        raise click.exceptions.Exit(TERMINATED) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit(PIPE_CLOSED) from None
    except KafkaLiteError as error:
        raise Failure(_kube_words(error)) from error
    except OSError as error:  # a full disk, a folder that may not be written to: not ours to mend
        raise Failure(os_words(error) if error.errno is not None else _defect(error)) from error
    except Exception as error:
        raise Failure(_defect(error)) from error


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the body as Ctrl-C does. Not in a thread, which hears no signals."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _kube_words(error: KafkaLiteError) -> str:
    from kafkalite_cli.manifests import plain_words
    from kafkalite_runtime.kube import KubeError, KubeUnavailable

    return plain_words(error) if isinstance(error, KubeError | KubeUnavailable) else str(error)


def os_words(error: OSError) -> str:
    """`/srv/x: Permission denied`; without a file, what the system says."""
    said = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {said}" if error.filename is not None else said


def tolerate_encoding() -> None:
    """Write `?` for what standard output and standard error cannot show in their encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def discard_output() -> None:
    """Whoever read standard output is gone: let nothing complain about it when the interpreter flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _defect(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"  # noqa: PTH119
    return f"this is a defect of kafkalite, please report it: {type(error).__name__}: {error} ({place})"


class Stop:
    """Whether the user wants the command to end; `number` is the signal that said so."""

    def __init__(self) -> None:
        self.number = 0

    @property
    def requested(self) -> bool:
        """Whether to come to an end."""
        return self.number != 0

    @property
    def exit_code(self) -> int:
        """0 when nobody asked."""
        return 128 + self.number if self.number else 0


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Let SIGINT and SIGTERM ask for an orderly end, within the body; the second one ends at once."""
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.number = number

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
