"""Sending one write to the API server, and what its end means."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kafkalite_core.membership.settlement import Attempt
from kafkalite_runtime.kube import KubeConflict, KubeForbidden, KubeNotFound, KubeThrottled, KubeUnavailable

if TYPE_CHECKING:
    from kafkalite_runtime.kube import KubeError

DEADLINE_S = 2.0
"""Deadline of every read and write on the broker's side of the control plane (threat 22)."""

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 2.0
RETRY_AFTER_MAX_S = 10.0


def attempt_of(error: KubeError | KubeUnavailable) -> Attempt:
    """What a failed write came to."""
    if isinstance(error, KubeUnavailable):
        return Attempt.AMBIGUOUS if error.ambiguous else Attempt.NOT_APPLIED
    if isinstance(error, KubeNotFound):
        return Attempt.GONE
    if isinstance(error, (KubeConflict, KubeThrottled, KubeForbidden)):
        return Attempt.NOT_APPLIED
    return Attempt.REFUSED


def backoff_s(failures: int, error: Exception | None = None) -> float:
    """Pause after so many failures in a row: exponential with jitter, at least what a 429 asks for (bounded)."""
    assert failures > 0
    ceiling_s = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(failures, 16))
    pause_s = random.uniform(ceiling_s / 2, ceiling_s)
    if isinstance(error, KubeThrottled):
        return max(pause_s, min(error.retry_after_s, random.uniform(RETRY_AFTER_MAX_S, 1.5 * RETRY_AFTER_MAX_S)))
    return pause_s
