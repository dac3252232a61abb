"""What the tests of compaction need: a cleaner that does not rest, restarts, and replicas read from their files."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from kafkalite_broker.compression import decompress
from kafkalite_core.protocol.record_batch import iter_batches, iter_records, validate_crc
from tests.integration.cluster import GROUP, NAMESPACE, VERSION, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cluster import Cluster

UNDER_WAY = (".cleaned", ".swap")
UNFIT = "log cannot be compacted until the next start"
BACKOFF_KEY = "log.cleaner.backoff.ms"


class Stored(NamedTuple):
    """A record in a replica's files; `whole` is False when others of its batch are gone."""

    offset: int
    key: str
    value: str | None
    codec: int
    whole: bool


def restart(cluster: Cluster, *brokers: int, how: signal.Signals = signal.SIGKILL, timeout: float = 90) -> None:
    """End these brokers, all at once, and wait until they have come back and everything is in sync."""
    epochs = {broker: _registered(cluster, broker)["brokerEpoch"] for broker in brokers}
    for broker in brokers:
        cluster.signal(broker, how)
    wait_back(cluster, epochs, timeout)


def epoch_of(cluster: Cluster, broker: int) -> int:
    """The epoch of the broker's life."""
    return _registered(cluster, broker)["brokerEpoch"]


def wait_back(cluster: Cluster, epochs: dict[int, int], timeout: float = 90) -> None:
    """Wait until the brokers have a later life than these epochs, and every replica is in sync."""
    for broker, epoch in epochs.items():

        def came_back(seen: dict, before: int = epoch) -> bool:
            return running(seen) and seen["status"]["registration"]["brokerEpoch"] > before

        cluster.wait_broker(broker, came_back, timeout)
    cluster.wait_healed(timeout)


def _registered(cluster: Cluster, broker: int) -> dict:
    found = cluster.api.get_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "kafkalitebrokers", f"kafkalite-broker-{broker}"
    )
    return found["status"]["registration"]


def passes(cluster: Cluster, broker: int, topic: str, number: int = 0) -> int:
    """How often this broker's log says that it has compacted the partition."""
    text = (cluster.home / "logs" / f"broker-{broker}.log").read_text()
    found = (json.loads(line) for line in text.splitlines() if '"log compacted"' in line)
    return sum(line["directory"].rpartition("/")[2] == f"{topic}-{number}" for line in found)


def wait_compacted(cluster: Cluster, directories: list[Path]) -> None:
    """Wait until the cleaners have done all there is; none may have given one of these logs up.

    A pass that was broken off, since the log was cut, is tried again after the back-off.
    """
    wait_quiet(directories)
    names = {directory.name for directory in directories}
    unfit = {broker: names & _given_up(cluster, broker) for broker in range(3)}
    assert not any(unfit.values()), unfit


def _given_up(cluster: Cluster, broker: int) -> set[str]:
    """Directories of which the broker's log says that they cannot be compacted."""
    text = (cluster.home / "logs" / f"broker-{broker}.log").read_text()
    found = (json.loads(line) for line in text.splitlines() if f'"{UNFIT}"' in line)
    return {line["directory"].rpartition("/")[2] for line in found}


def log_bytes(directory: Path) -> int:
    """Size of the segments."""
    sizes = 0
    for path in directory.glob("*.log"):
        try:
            sizes += path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def under_way(directory: Path) -> list[str]:
    """Files of a pass that is going on, or was broken off."""
    return [path.name for path in directory.iterdir() if path.name.endswith(UNDER_WAY)]


def wait_quiet(directories: list[Path], seconds: float = 1.5, timeout: float = 60) -> None:
    """Wait until no pass has changed anything for so long."""
    end = time.monotonic() + timeout
    seen, since = None, time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < end, "the cleaners never come to rest"
        now = [
            (sorted(path.name for path in directory.glob("*.log")), log_bytes(directory)) for directory in directories
        ]
        if now != seen or any(under_way(directory) for directory in directories):
            seen, since = now, time.monotonic()
        time.sleep(0.05)


def stored(directory: Path) -> list[Stored]:
    """Every record of a replica, in order; nothing may change meanwhile."""
    found = []
    for path in sorted(directory.glob("*.log")):
        view = memoryview(path.read_bytes())
        for position, header in iter_batches(view):
            assert validate_crc(view, position, header), (path, header)
            whole = header.record_count == header.last_offset_delta + 1
            for record in iter_records(view, position, header, decompress):
                value = None if record.value is None else bytes(record.value).decode()
                found.append(Stored(record.offset, bytes(record.key).decode(), value, header.attributes & 7, whole))
    return found


def fold(records: list[tuple[str, str | None]]) -> dict[str, str]:
    """What each key holds last; without the deleted ones."""
    state: dict[str, str] = {}
    for key, value in records:
        state.pop(key, None)
        if value is not None:
            state[key] = value
    return state
