"""What `groups list` and `groups describe` show. Pure: what the cluster said in, documents and rows out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_cli.groups.model import Group, Log, Member, Partition

JsonObject = dict[str, Any]


def listing(groups: list[Group]) -> list[JsonObject]:
    """The document of `groups list -o json`."""
    return [
        {
            "group": group.group_id,
            "state": group.state,
            "members": len(group.members),
            "assignor": group.assignor or None,
            "coordinator": group.coordinator[0] if group.coordinator else None,
            "type": group.type,
        }
        for group in groups
    ]


def description(group: Group, committed: Mapping[Partition, int], logs: Mapping[Partition, Log]) -> JsonObject:
    """The document of a group: what is committed or assigned, and by how much it lags.

    The lag of a partition is the log's end minus the committed offset, unknown (null) without either; the total is the
    sum of those that are known, and unknown when none is.
    """
    owners = {partition: member for member in group.members for partition in member.partitions}
    partitions = [
        _partition(each, committed.get(each), logs.get(each), owners.get(each))
        for each in sorted({*committed, *owners})
    ]
    lags = [lag for entry in partitions if (lag := entry["lag"]) is not None]
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor or None,
        "coordinator": {"id": group.coordinator[0], "address": group.coordinator[1]} if group.coordinator else None,
        "totalLag": sum(lags) if lags else None,
        "members": [
            _member(each) for each in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
        ],
        "partitions": partitions,
    }


def _partition(partition: Partition, committed: int | None, log: Log | None, owner: Member | None) -> JsonObject:
    # The end of the log was asked for after the commits: less than what is committed means a log that was cut.
    lag = max(0, log.end - committed) if log is not None and committed is not None else None
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "committed": committed,
        "logStart": log.start if log else None,
        "logEnd": log.end if log else None,
        "lag": lag,
        "memberId": owner.member_id if owner else None,
        "clientId": owner.client_id if owner else None,
        "host": owner.host if owner else None,
    }


def _member(member: Member) -> JsonObject:
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "partitions": [{"topic": each.topic, "partition": each.number} for each in member.partitions],
    }


def headline(document: JsonObject) -> str:
    """One line about the group."""
    coordinator = document["coordinator"]
    total = document["totalLag"]
    parts = [
        f"state {document['state']}",
        f"members {len(document['members'])}",
        f"assignor {document['assignor'] or '-'}",
        f"coordinator {coordinator['id']} ({coordinator['address']})" if coordinator else "coordinator -",
        f"total lag {'-' if total is None else format(total, ',')}",
    ]
    return "   ".join(parts)


def partition_rows(document: JsonObject) -> list[JsonObject]:
    """Rows for people, one per partition."""
    titles = {
        "topic": "topic", "partition": "partition", "committed": "committed", "logEnd": "log end", "lag": "lag",
        "clientId": "client", "host": "host", "memberId": "member",
    }  # fmt: skip
    return [{title: entry[key] for key, title in titles.items()} for entry in document["partitions"]]


def member_rows(document: JsonObject) -> list[JsonObject]:
    """Rows for people, one per member."""
    return [
        {
            "member": entry["memberId"],
            "instance": entry["instanceId"],
            "client": entry["clientId"],
            "host": entry["host"],
            "partitions": len(entry["partitions"]),
            "assignment": _assignment(entry["partitions"]),
        }
        for entry in document["members"]
    ]


def _assignment(partitions: list[JsonObject]) -> str:
    topics: dict[str, list[str]] = {}
    for each in partitions:
        topics.setdefault(each["topic"], []).append(str(each["partition"]))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items()) or "-"
