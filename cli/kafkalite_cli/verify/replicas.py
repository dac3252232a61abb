"""Replicas of one partition hold the same bytes: batch by batch, with their positions, below the high watermark.

For any two replicas a, b of a partition and all o with  max(start(a), start(b)) ≤ o < min(committed(a), committed(b)):

    the batch of a that holds o  =  the batch of b that holds o, byte for byte                  else differs
    offsets follow each other, leader epochs never fall, within each log                        else gap | epoch-fell
    a batch that all have has the CRC of its bytes                                              else damaged
    a replica reaches what is said to be committed on all                                       else short
    what is said to be committed is on as many brokers as is said                               else missing
    nobody lacks the beginning where nothing was deleted                                        else late-start

committed(r) is the high watermark that is given for the partition, or else what r itself has checkpointed: then a
replica that was not in sync, or still runs, is compared too, as far as it must be equal. Segments are no matter:
replicas roll them at different places. Compaction rewrites a log whenever its broker likes, so a compacted one is
compared above what any of its replicas has cleaned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from kafkalite_cli.verify.replica_log import (
    Batch,
    DirectoryError,
    ReplicaLog,
    first_difference,
    identity_of,
    open_directory,
    open_log,
)
from kafkalite_core.model.partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

EXAMPLES_MAX = 20  # per kind; the counts are exact
ATTEMPTS = 3  # a running broker may clean or delete segments while they are read


class ReplicaAnomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: where, and what each replica holds there."""

    kind: str
    topic: str
    partition: int
    offset: int
    text: str


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict.

    Attributes:
        ok: There is no anomaly.
        partitions: Partitions with at least two replicas.
        records: Offsets that were compared between at least two replicas.
        batches: Batches that were compared.
        bytes: Their size, each counted once.
        uncompared: Partitions with records of which nothing could be compared, for example because no high watermark
            was checkpointed yet, or because one broker alone has it.
    """

    ok: bool
    partitions: int
    records: int
    batches: int
    bytes: int
    uncompared: list[str]
    counts: dict[str, int]
    examples: list[ReplicaAnomaly]


def compare_replicas(
    directories: Mapping[int, Path] | Iterable[Path],
    *,
    topics: Collection[str] | None = None,
    high_watermarks: Mapping[tuple[str, int], int] | None = None,
    starts: Mapping[tuple[str, int], int] | None = None,
    copies: int = 1,
) -> ReplicaReport:
    """Compare the data directories of a cluster's brokers, running or not.

    Args:
        directories: One for each broker; with broker ids as keys these are checked.
        topics: Only these; None: all.
        high_watermarks: (topic, partition) -> offset below which everything is known to be committed, and all replicas
            to be in sync. Every replica has to reach it.
        starts: (topic, partition) -> offset from which on nothing was ever deleted. Every replica has to begin there.
        copies: Each partition of `high_watermarks` has to be on so many brokers, under one topic id.

    Raises:
        DirectoryError: one of them is no data directory, or two are of one broker, or of different clusters.
    """
    return _Comparison(topics, high_watermarks or {}, starts or {}, copies).run(directories)


def compare_clusters(directories: Iterable[Path], *, topics: Collection[str] | None = None) -> ReplicaReport:
    """As `compare_replicas`, for several clusters: each is compared by itself, and all are one report."""
    clusters: dict[str, list[Path]] = {}
    for directory in directories:
        clusters.setdefault(identity_of(directory).cluster_id, []).append(directory)
    if len(clusters) < 2:
        return compare_replicas([path for found in clusters.values() for path in found], topics=topics)
    found = {cluster: compare_replicas(paths, topics=topics) for cluster, paths in sorted(clusters.items())}
    counts: Counter[str] = Counter()
    for report in found.values():
        counts.update(report.counts)
    return ReplicaReport(
        ok=not counts,
        partitions=sum(report.partitions for report in found.values()),
        records=sum(report.records for report in found.values()),
        batches=sum(report.batches for report in found.values()),
        bytes=sum(report.bytes for report in found.values()),
        uncompared=[f"{name} of cluster {cluster}" for cluster, report in found.items() for name in report.uncompared],
        counts=dict(counts),
        examples=[
            msgspec.structs.replace(example, text=f"cluster {cluster}: {example.text}")
            for cluster, report in found.items()
            for example in report.examples
        ],
    )


class _Mismatch(Exception):
    """Ends the comparison of one partition."""

    def __init__(self, kind: str, offset: int, text: str) -> None:
        super().__init__(text)
        self.kind, self.offset, self.text = kind, offset, text


class _Comparison:
    def __init__(
        self,
        topics: Collection[str] | None,
        given: Mapping[tuple[str, int], int],
        starts: Mapping[tuple[str, int], int],
        copies: int,
    ) -> None:
        self._topics, self._given, self._starts, self._copies = topics, given, starts, copies
        self._counts: Counter[str] = Counter()
        self._examples: list[ReplicaAnomaly] = []
        self._uncompared: list[str] = []
        self._tally: Counter[str] = Counter()

    def run(self, directories: Mapping[int, Path] | Iterable[Path]) -> ReplicaReport:
        brokers = _open_all(directories)
        known = {key for logs in brokers for key in logs} | {TopicPartition(*key) for key in self._given}
        for key in sorted(known):
            if self._topics is None or key.topic in self._topics:
                self._partition(key, [logs[key] for logs in brokers if key in logs])
        return ReplicaReport(
            ok=not self._counts,
            partitions=self._tally["partitions"],
            records=self._tally["records"],
            batches=self._tally["batches"],
            bytes=self._tally["bytes"],
            uncompared=self._uncompared,
            counts=dict(self._counts),
            examples=self._examples,
        )

    def _partition(self, key: TopicPartition, replicas: list[ReplicaLog]) -> None:
        """Compare what the brokers hold under one name; a deleted topic of that name is another matter (S12)."""
        groups: dict[str, list[ReplicaLog]] = {}
        for log in replicas:
            groups.setdefault(log.metadata.topic_id, []).append(log)
        most = max(groups.values(), key=len, default=[])
        if (key.topic, key.partition) in self._given and len(most) < self._copies:
            self._found("missing", key, 0, f"only brokers {[log.broker for log in most]} have it, not {self._copies}")
        for log in most:
            start = self._starts.get((key.topic, key.partition), log.start)
            if log.start > start:
                text = f"broker {log.broker} begins at {log.start}, and nothing from {start} on was deleted"
                self._found("late-start", key, start, text)
        for _, same in sorted(groups.items()):
            if len(same) > 1:
                self._tally["partitions"] += 1
                self._compare(key, same)
        if len(most) == 1 and any(log.has_records() for log in replicas):
            self._uncompared.append(str(key))

    def _compare(self, key: TopicPartition, replicas: list[ReplicaLog]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            walk = _Walk(replicas, self._given.get((key.topic, key.partition)))
            try:
                walk.run()
                break
            except (OSError, _Mismatch) as error:
                again = [log for log in (open_log(log.directory) for log in replicas) if log is not None]
                # What moved meanwhile means that segments were deleted or cleaned under our hands.
                moved = [log.bounds for log in again] != [log.bounds for log in replicas]
                if attempt < ATTEMPTS and len(again) > 1 and (moved or isinstance(error, OSError)):
                    replicas = again
                    continue
                if isinstance(error, OSError):
                    raise DirectoryError(f"{key}: {error}") from error
                self._found(error.kind, key, error.offset, error.text)
                break
        self._tally.update(walk.tally)
        if not walk.tally["records"] and any(log.has_records() for log in replicas):
            self._uncompared.append(str(key))

    def _found(self, kind: str, key: TopicPartition, offset: int, text: str) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= EXAMPLES_MAX:
            self._examples.append(
                ReplicaAnomaly(kind=kind, topic=key.topic, partition=key.partition, offset=offset, text=text)
            )


def _open_all(directories: Mapping[int, Path] | Iterable[Path]) -> list[dict[TopicPartition, ReplicaLog]]:
    """The logs of each broker, in the order of their ids."""
    named = isinstance(directories, Mapping)
    listed = list(directories.items()) if isinstance(directories, Mapping) else list(enumerate(directories))
    brokers: dict[int, dict[TopicPartition, ReplicaLog]] = {}
    cluster: str | None = None
    for number, directory in listed:
        identity, logs = open_directory(directory)
        broker = identity.broker_id
        if cluster not in {None, identity.cluster_id}:
            raise DirectoryError(f"{directory}: it is of cluster {identity.cluster_id}, others are of {cluster}")
        cluster = identity.cluster_id
        if broker in brokers:
            raise DirectoryError(f"{directory}: broker {broker} has another directory")
        if named and broker != number:
            raise DirectoryError(f"{directory}: it is the directory of broker {broker}, not of broker {number}")
        brokers[broker] = logs
    return [logs for _, logs in sorted(brokers.items())]


class _Walk:
    """Goes through all replicas of one partition in step."""

    def __init__(self, replicas: list[ReplicaLog], given: int | None) -> None:
        self._committed = {log.broker: log.high_watermark if given is None else given for log in replicas}
        # The first one has the most to show; the others are compared with it.
        self._replicas = sorted(replicas, key=lambda log: (-self._committed[log.broker], log.broker))
        self._start = max(max(log.start, log.cleaned_to) for log in replicas)
        self.tally: Counter[str] = Counter()

    def run(self) -> None:
        """Raises _Mismatch at the first difference."""
        first, *others = self._replicas
        streams = [(log, _checked(log, self._start), self._committed[log.broker]) for log in others]
        for batch in _checked(first, self._start):
            compared = False
            for log, stream, committed in streams:
                if batch.base_offset < committed:
                    self._compare(first, batch, log, next(stream, None))
                    compared = True
            if not compared:
                break
            if not batch.is_intact():
                raise _Mismatch("damaged", batch.base_offset, f"all have the same: {batch}")
            self.tally["batches"] += 1
            self.tally["bytes"] += len(batch.data)
            self.tally["records"] += batch.last_offset + 1 - max(batch.base_offset, self._start)
        else:
            committed = self._committed[first.broker]
            if first.end < committed:
                text = f"broker {first.broker} ends at {first.end}, and {committed} is committed"
                raise _Mismatch("short", first.end, text)

    def _compare(self, first: ReplicaLog, batch: Batch, log: ReplicaLog, other: Batch | None) -> None:
        if other is None:
            text = f"broker {log.broker} ends at {log.end}; broker {first.broker} has {batch}"
            raise _Mismatch("short", batch.base_offset, text)
        if other.data != batch.data:
            where = first_difference(batch.data, other.data)
            text = f"first at {where}: broker {first.broker} has {batch}; broker {log.broker} has {other}"
            raise _Mismatch("differs", min(batch.base_offset, other.base_offset), text)


def _checked(log: ReplicaLog, start: int) -> Iterator[Batch]:
    """The batches of a log, each found to follow the one before it."""
    before: Batch | None = None
    for batch in log.batches(start):
        if before is not None and batch.base_offset != before.last_offset + 1:
            text = f"broker {log.broker}: after {before} comes {batch}"
            raise _Mismatch("gap", before.last_offset + 1, text)
        if before is not None and batch.leader_epoch < before.leader_epoch:
            text = f"broker {log.broker}: after {before} comes {batch}"
            raise _Mismatch("epoch-fell", batch.base_offset, text)
        before = batch
        yield batch
