"""How far Kafka's clients may change the configuration of running brokers in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite_core.model.config import broker_integer, valid_broker_config

if TYPE_CHECKING:
    from collections.abc import Mapping

THREAD_COUNT_KEYS: Final = ("log.cleaner.threads", "num.io.threads")
CLEANER_KEYS: Final = ("log.cleaner.threads", "log.cleaner.dedupe.buffer.size")
CLEANER_THREAD_BYTES_MIN: Final = 1 << 20
"""Memory for keys of each thread of the cleaner."""


def check_step(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """All that is wrong with a change of a cluster's configuration from `before` to `after`, as sentences.

    As in Kafka thread counts are doubled or halved at most (KIP-226), and the cleaner's threads keep enough memory.
    Values that cannot be understood count as the default.
    """
    before, after = valid_broker_config(before), valid_broker_config(after)
    problems: list[str] = []
    for name in THREAD_COUNT_KEYS:
        old, new = broker_integer(before, name), broker_integer(after, name)
        if not old // 2 <= new <= old * 2:
            problems.append(f"{name}: {new} is too far from {old}, use at least half and at most double of it")
    threads, size_bytes = (broker_integer(after, name) for name in CLEANER_KEYS)
    changed = any(broker_integer(before, name) != broker_integer(after, name) for name in CLEANER_KEYS)
    if changed and size_bytes // threads < CLEANER_THREAD_BYTES_MIN:
        problems.append(
            f"log.cleaner.dedupe.buffer.size: {size_bytes} is too little for {threads} threads of the cleaner, "
            f"each needs {CLEANER_THREAD_BYTES_MIN}"
        )
    return problems
