"""JSON Patches (RFC 6902) that change a status, each with a `test` for every input of the decision (R14, S12).

A patch either lands on exactly the state that it was decided on or not at all: the API server answers 422 when a
`test` fails. Partition entries are replaced whole. Tests of `metadata.uid` and `topicId` keep a delayed patch off a
topic that was deleted and made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.model.limits import PRODUCER_ID_BLOCK_SIZE
from kafkalite_core.model.partition import PartitionChange, in_sync
from kafkalite_core.model.replacement import Phase
from kafkalite_core.resources.brokers import render_holding, render_recovery, render_registration, render_stray
from kafkalite_core.resources.naming import ANNOTATION_ELECT_UNCLEAN, ANNOTATION_RECOVER_STORE, annotation_path
from kafkalite_core.resources.partition_counts import render_counts
from kafkalite_core.resources.replacing import render_replacing
from kafkalite_core.resources.rolling import render_rolling
from kafkalite_core.resources.topics import render_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite_core.model.cluster import Broker, Cluster, Recovery, Registration
    from kafkalite_core.model.partition import Partition, TopicRef
    from kafkalite_core.model.partition_counts import PartitionCounts
    from kafkalite_core.model.pods import Rolling
    from kafkalite_core.model.replacement import Replacing
    from kafkalite_core.model.topic import Holding, Stray

    Operation = dict[str, Any]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _set(path: str, value: object) -> Operation:
    # `add` on an object member creates or replaces it, so that an absent field needs no case of its own.
    return {"op": "add", "path": path, "value": value}


def _tests_of_partition(number: int, expected: Partition) -> list[Operation]:
    base = f"/status/partitions/{number}"
    return [
        _test(f"{base}/leader", expected.leader),
        _test(f"{base}/leaderEpoch", expected.leader_epoch),
        _test(f"{base}/partitionEpoch", expected.partition_epoch),
    ]


def _tests_of_topic(topic: TopicRef) -> list[Operation]:
    return [_test("/metadata/uid", topic.uid), _test("/status/topicId", topic.topic_id)]


def leader_proposals(topic: TopicRef, changes: Mapping[int, PartitionChange]) -> list[Operation]:
    """What the leader of partitions proposes (KIP-497's AlterPartition): another ISR or ELR, or, when it leaves, its
    successor. All of them land, or none. On `/status` of the topic.

    It does not write `controllerEpoch`, which is the controller's.
    """
    for change in changes.values():
        old, new = change.expected, change.proposed
        assert new.leader != old.leader or new.leader_epoch == old.leader_epoch, "a leader never raises its own epoch"
    return _tests_of_topic(topic) + _replacements(changes)


def leader_proposal(topic: TopicRef, number: int, expected: Partition, proposed: Partition) -> list[Operation]:
    """As `leader_proposals`, for one partition."""
    return leader_proposals(topic, {number: PartitionChange(expected, proposed)})


def _replacements(changes: Mapping[int, PartitionChange]) -> list[Operation]:
    operations: list[Operation] = []
    for number, change in sorted(changes.items()):
        operations += _tests_of_partition(number, change.expected)
    for number, change in sorted(changes.items()):
        value = render_partition(change.proposed)
        operations.append({"op": "replace", "path": f"/status/partitions/{number}", "value": value})
    return operations


def untracked(obj: Mapping[str, Any], *, resource_version: str) -> list[Operation]:
    """Remove the API server's record of who wrote which field, `metadata.managedFields`, as Kubernetes documents it.

    Without the record the server keeps none, and a later patch costs it a fifth less. To be sent to the topic itself:
    what a patch of `/status` says of the record is ignored. Empty where there is no record, and where somebody uses
    server-side apply (`operation: Apply`), which needs it.
    """
    entries = obj["metadata"].get("managedFields") or []
    if not entries or any(entry.get("operation") == "Apply" for entry in entries):
        return []
    tests = [_test("/metadata/uid", obj["metadata"]["uid"]), _test("/metadata/resourceVersion", resource_version)]
    return [*tests, _set("/metadata/managedFields", [{}])]


def elections(
    topic: TopicRef,
    changes: Mapping[int, PartitionChange],
    *,
    controller_epoch: int,
    unclean_generation: int | None = None,
    unclean_request: str = "",
    recovery_request: str = "",
) -> list[Operation]:
    """Changes of partitions by the controller. On `/status` of the topic.

    When an unclean election is among the changes, what allows it has to be given, so that a withdrawn permission
    stops it: the `metadata.generation` whose `unclean.leader.election.enable` does, or the annotation's value. So with
    `recovery_request`, the consent to go on without some replica after the store went back in time (S11).
    """
    operations = _tests_of_topic(topic)
    if unclean_generation is not None:
        operations.append(_test("/metadata/generation", unclean_generation))
    if unclean_request:
        operations.append(_test(annotation_path(ANNOTATION_ELECT_UNCLEAN), unclean_request))
    if recovery_request:
        operations.append(_test(annotation_path(ANNOTATION_RECOVER_STORE), recovery_request))
    return [*operations, *_replacements(changes), _set("/status/controllerEpoch", controller_epoch)]


def first_status(
    topic: TopicRef,
    partitions: Mapping[int, Partition],
    *,
    resource_version: str,
    has_status: bool,
    controller_epoch: int,
) -> list[Operation]:
    """The first placement of a topic: id, partitions and controller epoch at once. On `/status` of the topic.

    `topic.topic_id` is the id to be set; `has_status` tells whether a status (with conditions alone) exists.
    """
    assert topic.topic_id, "the first status sets the topic's id"
    operations = [_test("/metadata/uid", topic.uid), _test("/metadata/resourceVersion", resource_version)]
    fields: dict[str, Any] = {
        "topicId": topic.topic_id,
        "controllerEpoch": controller_epoch,
        "partitions": {str(number): render_partition(entry) for number, entry in sorted(partitions.items())},
        "inSync": in_sync(partitions),
    }
    if not has_status:
        return [*operations, _set("/status", fields)]
    return operations + [_set(f"/status/{name}", value) for name, value in fields.items()]


def added_partitions(
    topic: TopicRef, partitions: Mapping[int, Partition], *, resource_version: str, controller_epoch: int
) -> list[Operation]:
    """More partitions for a topic that has some. On `/status` of the topic."""
    operations = [*_tests_of_topic(topic), _test("/metadata/resourceVersion", resource_version)]
    operations += [_set(f"/status/partitions/{n}", render_partition(entry)) for n, entry in sorted(partitions.items())]
    return [*operations, _set("/status/controllerEpoch", controller_epoch)]


def status_summary(
    uid: str,
    fields: Mapping[str, Any],
    *,
    resource_version: str,
    has_status: bool,
) -> list[Operation]:
    """Conditions and other fields that no rule depends on, written as one compare-and-swap on the whole object.

    `fields` are members of `status` and must not name partitions, registration, recovery or fencing.
    """
    others = {"partitions", "topicId", "registration", "recovery", "fencing"} & set(fields)
    assert not others, "these have patches of their own"
    operations = [_test("/metadata/uid", uid), _test("/metadata/resourceVersion", resource_version)]
    if not has_status:
        return [*operations, _set("/status", dict(fields))]
    return operations + [_set(f"/status/{name}", value) for name, value in fields.items()]


def partition_counts(counts: PartitionCounts) -> list[Operation]:
    """`status.partitions` of a cluster, behind a `status_summary` of it."""
    return [_set("/status/partitions", render_counts(counts))]


def rolling(status: Rolling, controller_epoch: int) -> list[Operation]:
    """`status.rolling`, behind a `status_summary` of the cluster: nobody but its controller says what is restarted."""
    return [_test("/status/controller/epoch", controller_epoch), _set("/status/rolling", render_rolling(status))]


def replacing(status: Mapping[str, Any], wanted: Replacing, controller_epoch: int) -> list[Operation]:
    """`status.replacing`, in the same place and for the same reason; `status` as it is."""
    operations = [_test("/status/controller/epoch", controller_epoch)]
    if wanted.phase is not Phase.NONE:
        return [*operations, _set("/status/replacing", render_replacing(wanted))]
    return [*operations, {"op": "remove", "path": "/status/replacing"}] if "replacing" in status else operations


def fence(broker: Broker, *, reason: str, since: str) -> list[Operation]:
    """Fence the registered incarnation and no other (R15, S7). On `/status` of the broker; `since` is RFC 3339."""
    registration = broker.registration
    assert registration is not None, "only a registered broker is fenced"
    return [
        _test("/metadata/uid", broker.uid),
        _test("/status/registration/incarnation", registration.incarnation),
        _test("/status/registration/brokerEpoch", registration.broker_epoch),
        _set(
            "/status/fencing",
            {"fencedEpoch": registration.broker_epoch, "reason": reason[:1024], "since": since},
        ),
    ]


def registration(
    obj: Mapping[str, Any],
    new: Registration,
    strays: Sequence[Stray] = (),
    holdings: Sequence[Holding] = (),
    strays_unlisted: int = 0,
) -> list[Operation]:
    """A broker's registration, decided on `obj` as just read with a consistent GET (S6). On `/status` of the broker.

    It tests the whole object's version, so that neither a fence nor another incarnation slips in between. Who registers
    has recovered: what the object says of that is over. So is what it says of a former disk.
    """
    metadata = obj["metadata"]
    operations = [
        _test("/metadata/uid", metadata["uid"]),
        _test("/metadata/resourceVersion", metadata["resourceVersion"]),
    ]
    fields = {
        "registration": render_registration(new),
        "strays": [render_stray(stray) for stray in strays],
        "straysUnlisted": strays_unlisted,
        "holdings": [render_holding(holding) for holding in holdings],
    }
    status = obj.get("status")
    if status is None:
        return [*operations, _set("/status", fields)]
    operations += [_set(f"/status/{name}", value) for name, value in fields.items()]
    return [*operations, {"op": "remove", "path": "/status/recovery"}] if "recovery" in status else operations


def recovery_begun(obj: Mapping[str, Any], recovery: Recovery) -> list[Operation]:
    """A process recovers its logs, decided on `obj` as just read: what a former one said of that is over. On `/status`.

    It tests the whole object's version: one that is late lands neither on a registration that was written meanwhile
    nor on what another process has begun to say.
    """
    metadata, rendered = obj["metadata"], render_recovery(recovery)
    status = ("/status", {"recovery": rendered}) if obj.get("status") is None else ("/status/recovery", rendered)
    tests = [_test("/metadata/uid", metadata["uid"]), _test("/metadata/resourceVersion", metadata["resourceVersion"])]
    return [*tests, _set(*status)]


def recovery_progress(uid: str, recovery: Recovery) -> list[Operation]:
    """How far it is by now. On `/status` of the broker.

    Refused when the process has registered, or another one has begun to recover.
    """
    return [
        _test("/metadata/uid", uid),
        _test("/status/recovery/incarnation", recovery.incarnation),
        _set("/status/recovery", render_recovery(recovery)),
    ]


def registration_update(
    broker: Broker,
    new: Registration,
    strays: Sequence[Stray] | None = None,
    holdings: Sequence[Holding] | None = None,
    strays_unlisted: int = 0,
) -> list[Operation]:
    """A change within one registration (state, strays, holdings). On `/status` of the broker.

    `broker.registration` is what stands there now; epoch and incarnation must not change. `strays_unlisted` goes with
    `strays`.
    """
    old = broker.registration
    assert old is not None, "an update needs a registration"
    assert (old.broker_epoch, old.incarnation) == (new.broker_epoch, new.incarnation), "that would be a registration"
    operations = [
        _test("/metadata/uid", broker.uid),
        _test("/status/registration/incarnation", old.incarnation),
        _test("/status/registration/brokerEpoch", old.broker_epoch),
        _set("/status/registration", render_registration(new)),
    ]
    if strays is not None:
        operations.append(_set("/status/strays", [render_stray(stray) for stray in strays]))
        operations.append(_set("/status/straysUnlisted", strays_unlisted))
    if holdings is not None:
        operations.append(_set("/status/holdings", [render_holding(holding) for holding in holdings]))
    return operations


def next_broker_epoch(cluster: Cluster) -> list[Operation]:
    """Draw `cluster.next_broker_epoch` (R8). On `/status` of the cluster; when it lands, the epoch is the drawer's."""
    assert cluster.cluster_id, "the operator has not written the cluster's first status yet"
    return [
        _test("/metadata/uid", cluster.uid),
        _test("/status/nextBrokerEpoch", cluster.next_broker_epoch),
        _set("/status/nextBrokerEpoch", cluster.next_broker_epoch + 1),
    ]


def producer_id_block(cluster: Cluster, size: int = PRODUCER_ID_BLOCK_SIZE) -> list[Operation]:
    """Draw the ids from `cluster.next_producer_id` on, `size` of them (KIP-730). On `/status` of the cluster."""
    assert cluster.cluster_id, "the operator has not written the cluster's first status yet"
    return [
        _test("/metadata/uid", cluster.uid),
        _test("/status/nextProducerId", cluster.next_producer_id),
        _set("/status/nextProducerId", cluster.next_producer_id + size),
    ]


def take_control(
    obj: Mapping[str, Any], *, holder: str, epoch: int, cluster_id: str, first_broker_epoch: int = 1
) -> list[Operation]:
    """Make `holder` the controller with that epoch, decided on `obj` as read. On `/status` of the cluster.

    It also sets cluster id and counters where they are missing; `first_broker_epoch` has to be above every broker
    epoch that any broker has been seen with.
    """
    metadata = obj["metadata"]
    status = obj.get("status")
    operations = [
        _test("/metadata/uid", metadata["uid"]),
        _test("/metadata/resourceVersion", metadata["resourceVersion"]),
    ]
    fields: dict[str, Any] = {"controller": {"holder": holder, "epoch": epoch}}
    counters = {"clusterId": cluster_id, "nextBrokerEpoch": first_broker_epoch, "nextProducerId": 0}
    fields |= {name: value for name, value in counters.items() if (status or {}).get(name) is None}
    if status is None:
        return [*operations, _set("/status", fields)]
    return operations + [_set(f"/status/{name}", value) for name, value in fields.items()]
