"""Which nodes and volumes are lost, and with them pods that will never end by themselves.

A node is lost when its object is gone, or when this observer has not seen it ready for `spec.nodeLossSeconds`. What was
not read is not lost (deny on missing data).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.pods import UNSCHEDULABLE
from kafkalite_core.model.replacement import NodeState

if TYPE_CHECKING:
    from kafkalite_core.controller.snapshot import Snapshot
    from kafkalite_core.model.cluster import Broker, Cluster
    from kafkalite_core.model.pods import Pod
    from kafkalite_core.model.replacement import Node
    from kafkalite_core.model.volumes import Volume

OVERDUE_MARGIN_S = 30.0
"""A pod that is being deleted and is there for so long after its grace period has nobody who would end it."""

NODE_WORDS = {NodeState.GONE: "is gone", NodeState.UNKNOWN: "is unreachable", NodeState.NOT_READY: "is not ready"}


def claim_of(snapshot: Snapshot, broker_id: int) -> Volume | None:
    """The claim of a broker's volume, as last read."""
    return next((each for each in snapshot.volumes if each.name.endswith(f"-{broker_id}")), None)


def node_of(snapshot: Snapshot, broker_id: int) -> str:
    """Name of the node that a broker is on, or that its volume binds it to; empty when neither is known.

    Kubernetes notes on the claim where a volume was made, but not where one lies that was there before. Of such a one
    it is the node that its pod was last on, once the scheduler says that the volume cannot be used on others.
    """
    pod = snapshot.pods.get(broker_id)
    if pod is None:
        return ""
    if pod.node:
        return pod.node
    claim = claim_of(snapshot, broker_id)
    if claim is None or pod.stuck != UNSCHEDULABLE:
        return ""
    return claim.node or (claim.last_node if pod.volume_elsewhere else "")


def why_stuck(snapshot: Snapshot, broker_id: int) -> str:
    """What the kubelet or the scheduler says of the pod of a broker that is away, and what to do; else empty."""
    pod = snapshot.pods.get(broker_id)
    if pod is None or pod.deleting or not pod.stuck:
        return ""
    said = f"pod {pod.name}: {pod.stuck}" + (f" ({pod.stuck_message.rstrip('.')})" if pod.stuck_message else "")
    if not pod.volume_elsewhere:
        return said
    return (
        f"{said}; its volume is on a node that takes no pods or is gone: if it is gone for good, "
        f"kubectl kafkalite replace {broker_id} gives the broker a new, empty volume"
    )


def unreachable(node: Node | None) -> bool:
    """Nothing on the node hears of a deletion: it is gone, or its kubelet is silent."""
    return node is not None and node.state in {NodeState.GONE, NodeState.UNKNOWN}


def lost(node: Node | None, limit_s: float, now: float) -> bool:
    """See the module. `limit_s`: `spec.nodeLossSeconds`."""
    if node is None or node.state is NodeState.READY:
        return False
    return node.state is NodeState.GONE or now - node.unready_since >= limit_s


def overdue(pod: Pod, now: float) -> bool:
    """The pod is being deleted for longer than its grace period and a margin."""
    return pod.deleting and now - pod.deleting_since > pod.grace_s + OVERDUE_MARGIN_S


def why_lost(snapshot: Snapshot, broker: Broker, now: float) -> str:
    """Why a broker's node or volume counts as gone for good without anybody's declaration; empty when it does not."""
    cluster = snapshot.cluster
    if cluster.node_loss != "replace" or not broker.fenced or broker.id >= cluster.replicas:
        return ""
    claim = claim_of(snapshot, broker.id)
    if claim is not None and claim.lost:
        return f"claim {claim.name} has lost its volume"
    name = node_of(snapshot, broker.id)
    node = snapshot.nodes.get(name)
    if not lost(node, cluster.node_loss_s, now) or node is None:
        return ""
    if node.state is NodeState.GONE:
        return f"its node {name} is gone"
    return f"its node {name} has not been ready for {cluster.node_loss_s:g} s"


def may_force(cluster: Cluster, pod: Pod, node: Node | None, now: float) -> bool:
    """Whether a pod that is being deleted, and whose broker leaves the cluster, may go without its node's consent."""
    return cluster.node_loss == "replace" and pod.deleting and lost(node, cluster.node_loss_s, now)


def node_trouble(snapshot: Snapshot, broker_id: int, now: float) -> str:
    """What is wrong with the node of a broker that is away; empty when nothing is known to be."""
    name, pod = node_of(snapshot, broker_id), snapshot.pods.get(broker_id)
    node = snapshot.nodes.get(name)
    if pod is None or pod.ready or (node is not None and node.state is NodeState.READY):
        return ""
    if node is not None:
        since = f" since {node.since}" if node.since else ""
        return f"its node {name} {NODE_WORDS[node.state]}{since}"
    return f"its pod {pod.name} does not end, as on a node that is gone: {name}" if overdue(pod, now) else ""


def remedy(snapshot: Snapshot, troubled: list[int]) -> str:
    """What to do about brokers with `node_trouble`."""
    cluster = snapshot.cluster
    if cluster.node_loss == "replace":
        return f"spec.nodeLoss: replace replaces a broker {cluster.node_loss_s:g} s after that, see condition Replacing"
    waiting = [i for i in troubled if snapshot.replacing.broker != i and not snapshot.brokers[i].replace_request]
    if not waiting:
        return "It is being replaced, as it was asked for, see condition Replacing"
    return (
        "Kubernetes makes no other pod while the old one, or its volume, belongs to that node: boot the node or "
        "connect it again (and kubectl uncordon it). If it is gone for good: kubectl kafkalite replace "
        f"{waiting[0]}, or the annotation kafkalite.io/replace=true on the KafkaLiteBroker, gives the broker a new, "
        "empty volume; spec.nodeLoss: replace does so by itself"
    )


def what_to_do(snapshot: Snapshot, broker_id: int, now: float) -> str:
    """What to say of a pod that does not end though it should have; empty for one that has time, or is cared for."""
    pod = snapshot.pods.get(broker_id)
    if pod is None or not overdue(pod, now):
        return ""
    return (
        f"pod {pod.name} does not end; if its node {pod.node} is gone for good: kubectl delete pod {pod.name} --force, "
        "delete the node, or set spec.nodeLoss: replace"
    )
