"""The termination message: how the operator learns which incarnation ended, without waiting for a Lease (S7)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalite_core.resources.pods import render_termination_message
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from pathlib import Path

log = get_logger(__name__)


class TerminationMessage:
    """Writes `{"incarnation", "brokerEpoch", "reason"}`; to be created once the data directory's lock is held.

    The file is a bind mount in a pod, so no rename can replace it: it is overwritten with one call and then cut to
    length. A reader that meets it half-way finds no JSON and waits for the Lease instead. Failures are logged only.
    """

    def __init__(self, path: Path, incarnation: str) -> None:
        self._path = path
        self._incarnation = incarnation
        self._broker_epoch: int | None = None

    def write(self, *, broker_epoch: int | None = None, reason: str = "") -> bool:
        """Write the message; an epoch given once is kept. Whether it was written."""
        if broker_epoch is not None:
            self._broker_epoch = broker_epoch
        text = render_termination_message(self._incarnation, self._broker_epoch, reason).encode()
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                # Written over the old text first and cut to length then: at no time is the file empty.
                written = os.pwrite(descriptor, text, 0)
                os.ftruncate(descriptor, written)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("termination message not written", path=str(self._path), error=str(error))
            return False
        return written == len(text)
