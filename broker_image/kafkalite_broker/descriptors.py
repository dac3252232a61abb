"""How many files and connections fit into what the process may have open (`RLIMIT_NOFILE`)."""

from __future__ import annotations

import resource
from typing import Final

FILES_MAX: Final = 8192
"""Files of logs that are kept open, at most."""

RESERVED: Final = 128
"""For what is neither a file of a log nor a client: listeners, followers' connections, the API server, checkpoints."""

CONNECTIONS_MIN: Final = 16
"""With fewer a broker serves nobody; then the limit is the least of its troubles."""


def raise_limit() -> int:
    """Sets the soft limit to the hard one, as a JVM does; returns what the process may have open now.

    Shells and some runtimes give 1,024, which a thousand partitions or clients use up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # more than the kernel has for one process
            return soft
    return hard


def files_max(allowed: int) -> int:
    """Files of logs that may be kept open, where the process may have `allowed` descriptors (< 0: no limit)."""
    return FILES_MAX if allowed < 0 else max(min(FILES_MAX, allowed // 2), 1)


def connections_max(wanted: int, allowed: int) -> int:
    """How many of the `wanted` connections (`max.connections`) fit beside the files of logs."""
    if allowed < 0:
        return wanted
    return min(wanted, max(allowed - files_max(allowed) - RESERVED, CONNECTIONS_MIN))
