"""Calls of other programs, and the story of what takes how long."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from tests.cluster.processes import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "kind"
CALL_LIMIT_S = 900.0
LINES_SHOWN = 30

Result = TypeVar("Result")
_began = time.monotonic()


def say(line: str) -> None:
    """To standard error: what is on standard output shall be fit for `eval`."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """One line when it is done: seconds since the start, what, and how long it took."""
    began = time.monotonic()
    yield
    now = time.monotonic()
    say(f"{now - _began:6.1f} s  {what} ({now - began:.1f} s)")


class Aside(Generic[Result]):
    """Work in a thread of its own, beside that of whoever made this; it ends by itself when what it uses is taken away."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._future: Future[Result] = Future()

        def run() -> None:
            try:
                self._future.set_result(work())
            except BaseException as error:
                self._future.set_exception(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Wait for the end of it. Raises what it has raised."""
        return self._future.result()

    def end(self, limit_s: float) -> None:
        """Wait for the end of it, however it ends, but not for long."""
        self._thread.join(limit_s)


def call(*command: str | Path, environment: Mapping[str, str] | None = None, text: str | None = None,
         folder: Path | None = None, limit_s: float = CALL_LIMIT_S) -> str:  # fmt: skip
    """Standard output of a program.

    Raises:
        StartError: it is not there, failed, or took too long; with the end of what it said.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input=text or "",
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            cwd=folder or ROOT,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError as error:
        raise StartError(f"{words[0]} is missing") from error
    except subprocess.TimeoutExpired as error:
        raise StartError(f"{' '.join(words)} did not end within {limit_s:.0f} s") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_SHOWN:])
        raise StartError(f"{' '.join(words)}: exit code {done.returncode}\n{said}")
    return done.stdout


def build(script: str) -> Path:
    """What a build script of tools/ has made, which it does once; its progress is shown."""
    try:
        done = subprocess.run([ROOT / "tools" / script], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    except subprocess.CalledProcessError as error:
        raise StartError(f"tools/{script} failed: see above") from error
    return Path(done.stdout.strip())


def digest(files: Iterable[Path], texts: Iterable[str]) -> str:
    """A short hash of contents."""
    total = hashlib.sha256()
    for path in files:
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    for text in texts:
        total.update(text.encode())
    return total.hexdigest()[:16]
