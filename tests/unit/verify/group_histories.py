"""Histories of a group to make others from: two members, two partitions, in seconds after the start."""

from kafkalite_cli.verify.group_checker import check_group
from kafkalite_cli.verify.group_history import (
    Assigned,
    Commit,
    GroupHeader,
    Joining,
    Observed,
    Revoked,
)
from kafkalite_cli.verify.group_report import GroupLimits
from kafkalite_cli.verify.history import Ack, Read

SECOND = 1_000_000
HEADER = GroupHeader(1, "run", "orders", "group", 2, 10_000, 0)
FROM = 10 * SECOND  # the group is settled by then


def ack(offset, *, partition=0, at=FROM):
    return Ack(0, partition, offset + 1, partition, offset, at - 5, at)


def read(offset, *, partition=0, member=None, at=FROM + 100):
    return Read(partition if member is None else member, partition, offset, 0, partition, offset + 1, at)


def commit(offset, *, partition=0, member=None, generation=1, at=FROM + 1000, took=100, error=""):
    return Commit(partition if member is None else member, generation, partition, offset, error, at, at + took)


def observed(offset, *, partition=0, at=FROM + 2000, took=100):
    return Observed(partition, offset, at, at + took)


def joined():
    """Members 0 and 1 own partitions 0 and 1 in generation 1."""
    return [
        HEADER,
        Joining(0, ["range"], 1 * SECOND),
        Joining(1, ["range"], 2 * SECOND),
        Assigned(0, 1, [0], 5 * SECOND),
        Assigned(1, 1, [1], 5 * SECOND + 10),
    ]


def clean(count=10):
    """Each partition has `count` records: acknowledged, read, committed one by one, observed."""
    events = joined()
    for partition in (0, 1):
        for n in range(count):
            at = FROM + n * 10_000
            events += [
                ack(n, partition=partition, at=at),
                read(n, partition=partition, at=at + 100),
                commit(n + 1, partition=partition, at=at + 200),
                observed(n + 1, partition=partition, at=at + 400),
            ]
    return events


def counts(events, **limits):
    return check_group(events, GroupLimits(**limits) if limits else None).counts


def rebalanced(at):
    """A third member joins at FROM."""
    events = [*joined(), Joining(2, ["range"], FROM), *(Revoked(m, 1, [], False, FROM + 100) for m in (0, 1))]
    return [*events, Assigned(0, 2, [0], at), Assigned(1, 2, [1], at), Assigned(2, 2, [], at)]
