"""A sentence for every configuration key, for tools that ask what a key does (DescribeConfigs version 3 and above)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC = {
    "cleanup.policy": "What happens to old records: delete by age and size, compact by key, or both.",
    "compression.type": "Codec of the stored batches; producer keeps what the producer sent.",
    "delete.retention.ms": "How long a compacted topic keeps the marker of a deleted key, in ms.",
    "file.delete.delay.ms": "Time between the end of a segment and the removal of its files, in ms.",
    "flush.messages": "1: an acknowledgement waits for the disk; above 1 it does not.",
    "flush.ms": "Longest time that a record waits in memory for a flush, in ms.",
    "follower.replication.throttled.replicas": "Replicas whose replication is throttled on the follower's side.",
    "index.interval.bytes": "Bytes of records between two entries of the offset index.",
    "leader.replication.throttled.replicas": "Replicas whose replication is throttled on the leader's side.",
    "max.compaction.lag.ms": "A record is compacted at the latest this long after it was written, in ms.",
    "max.message.bytes": "Largest batch that the topic takes, as it is sent, in bytes.",
    "message.timestamp.after.max.ms": "How far a record's timestamp may lie in the future, in ms.",
    "message.timestamp.before.max.ms": "How far a record's timestamp may lie in the past, in ms.",
    "message.timestamp.type": "Whose time a record carries: the producer's (CreateTime) or the broker's.",
    "min.cleanable.dirty.ratio": "Share of a log not yet compacted at which its compaction begins.",
    "min.compaction.lag.ms": "A record is not compacted sooner than this after it was written, in ms.",
    "min.insync.replicas": "Replicas that must be in sync before a write with acks=all is taken.",
    "preallocate": "Whether the file of a new segment is given its full size at once.",
    "retention.bytes": "Size of a partition beyond which its oldest segments go, in bytes; -1 for no limit.",
    "retention.ms": "Age at which a segment goes, by the timestamps of its records, in ms; -1 for no limit.",
    "segment.bytes": "Size at which a new segment begins, in bytes.",
    "segment.index.bytes": "Size of a segment's offset index, in bytes; a full one begins a new segment.",
    "segment.jitter.ms": "Random part that is taken off segment.ms, in ms.",
    "segment.ms": "Age at which a new segment begins even if the old one is not full, in ms.",
    "unclean.leader.election.enable": "Whether a replica that may lack acknowledged records leads when no other can.",
}

_BROKER = {
    "auto.create.topics.enable": "Whether a topic is made when a client asks for one that does not exist.",
    "auto.leader.rebalance.enable": "Whether leadership goes back to the preferred leaders by itself.",
    "connections.max.idle.ms": "An idle connection is closed after this time, in ms.",
    "default.replication.factor": "Replicas of a topic whose creator names no number.",
    "delete.topic.enable": "Whether clients may delete topics.",
    "follower.replication.throttled.rate": "Bytes per second of throttled replication on the followers' side.",
    "group.initial.rebalance.delay.ms": "How long a new group waits for more members before it begins, in ms.",
    "group.max.session.timeout.ms": "Longest session time-out that a member of a group may ask for, in ms.",
    "group.max.size": "Most members of one group.",
    "group.min.session.timeout.ms": "Shortest session time-out that a member of a group may ask for, in ms.",
    "kafkalite.fetch.cold.bytes": "Memory of a broker for answers to consumers until they are sent, in bytes.",
    "kafkalite.group.metadata.bytes": "Memory of a broker for what members of groups say about themselves, in bytes.",
    "kafkalite.log.tail.cache.bytes": "Memory of a broker for the newest batches of all its partitions, in bytes.",
    "kafkalite.reassignment.partitions.max": "Partitions of the cluster that are copied to new brokers at a time.",
    "kafkalite.stray.deleted.retention.ms": "How long data of a topic are kept whose deletion was seen, in ms.",
    "kafkalite.stray.retention.ms": "How long data are kept that no topic claims, in ms.",
    "leader.imbalance.check.interval.seconds": "Time between two looks at who should lead, in seconds.",
    "leader.imbalance.per.broker.percentage": "Share of a broker's partitions that others may lead, in percent.",
    "leader.replication.throttled.rate": "Bytes per second of throttled replication on the leaders' side.",
    "log.cleaner.backoff.ms": "How long the cleaner rests when there is nothing to compact, in ms.",
    "log.cleaner.dedupe.buffer.size": "Memory of the cleaner for keys and their last offsets, in bytes.",
    "log.cleaner.enable": "Whether compacted topics are compacted.",
    "log.cleaner.threads": "Threads that compact.",
    "log.retention.check.interval.ms": "Time between two looks for segments beyond retention, in ms.",
    "max.connections": "Most connections of one broker.",
    "num.io.threads": "Threads for flushes, for reads that go to the disk, for checkpoints and for recovery.",
    "num.partitions": "Partitions of a topic whose creator names no number.",
    "offset.metadata.max.bytes": "Longest text that a member may store with an offset, in bytes.",
    "offsets.commit.timeout.ms": "A commit of offsets that is not replicated after this time has failed, in ms.",
    "offsets.retention.check.interval.ms": "Time between two looks for expired offsets, in ms.",
    "offsets.retention.minutes": "How long the offsets of a group without members are kept, in minutes.",
    "offsets.topic.num.partitions": "Partitions of the topic of committed offsets, when it is made.",
    "offsets.topic.replication.factor": "Replicas of the topic of committed offsets, when it is made.",
    "offsets.topic.segment.bytes": "Size of a segment of the topic of committed offsets, in bytes.",
    "producer.id.expiration.ms": "An idempotent producer of which nothing came for so long is forgotten, in ms.",
    "queued.max.request.bytes": "Memory of one broker for frames of requests, in bytes.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes per second of moves between directories of a broker.",
    "replica.fetch.max.bytes": "Bytes of one partition in one fetch of a follower.",
    "replica.fetch.response.max.bytes": "Bytes of one fetch of a follower.",
    "replica.fetch.wait.max.ms": "Longest wait of a follower's fetch for new records, in ms.",
    "replica.high.watermark.checkpoint.interval.ms": "Time between two writes of the high watermarks to disk, in ms.",
    "replica.lag.max.messages": "A follower that is behind by more records leaves the ISR; 0 for no such limit.",
    "replica.lag.time.max.ms": "A follower that is behind for so long leaves the ISR, in ms.",
    "replica.selector.class": "From which replica consumers read: the leader, or one in their own rack.",
    "socket.request.max.bytes": "Largest request, in bytes.",
}

STATIC_DOCUMENTATION: Mapping[str, str] = MappingProxyType(
    {
        "advertised.listeners": "Addresses that clients and other brokers are told to connect to.",
        "broker.id": "Number of this broker, the ordinal of its pod.",
        "listeners": "Addresses that this broker listens on.",
        "log.dirs": "Directory of this broker's data.",
        "node.id": "Number of this broker, the ordinal of its pod.",
    }
)
"""Facts of one broker that follow from its pod and are no keys of `spec.config`."""

DOCUMENTATION: Mapping[str, str] = MappingProxyType(_TOPIC | _BROKER)
"""By key; a broker key that topics fall back to is documented under the topic's name of it."""
