"""What is known from earlier plans of topics that have not changed since: a plan costs what has changed.

The part of a plan that is about one topic is a function of

    the topic       its view, the very object: a view never changes, and a new version of a topic has a new one
    what is shared  brokers, cluster, owners of contested names, times of registrations: every field of the snapshot
                    but `PASSED_OVER`, compared by value, and who is avoided

and, for some topics, of more: the time (a new topic's patience, `flush.messages` that was tightened), the load of the
brokers and what moves at once (a topic that is to be placed, grown or moved), a look at preferred leaders, or who is
heard (elections that are asked for). Those are never remembered. So

    plan(snapshot, now, memory) == plan(snapshot, now)          for every memory that earlier plans have filled

The caller owns the memory, one for each cluster. It holds one entry for every topic at most.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from kafkalite_core.controller.snapshot import Snapshot
from kafkalite_core.model.partition_counts import PartitionCounts, add_up

if TYPE_CHECKING:
    from kafkalite_core.controller.actions import Action, ChangePartitions
    from kafkalite_core.controller.snapshot import TopicView
    from kafkalite_core.model.cluster import Cluster

PASSED_OVER: Final = frozenset(
    {
        "topics",  # each by itself
        "cluster",  # without its counters, see `_settings`
        # Fencing comes before all topics, and who is avoided is compared.
        "exits",
        "expiry_fences",
        "leases",
        "observing_since",
        "unheard_until",
        # Only the status of the cluster itself, which is planned anew every time.
        "bootstrap",
        "brokers_ready",
        "brokers_total",
        "conditions",
        "generation",
        "observed_generation",
        "partitions",
        "partitions_seen",
        "wanted_bootstrap",
        # What `plan` looks at itself.
        "balance_due",
        "brokers_age_s",
        "brokers_read_s",
        "clusters_age_s",
        "clusters_read_s",
        # Restarts and volumes, of which a topic knows nothing but the leaderships that move.
        "pods",
        "revision",
        "revision_served",
        "amounts",
        "resize_refused",
        "rolling",
        "claims_age_s",
        "nodes",
        "nodes_refused",
        "storage_size",
        "volumes",
    }
)
"""Fields of the snapshot that nothing remembered depends on. A field that is not listed here is compared."""

_SHARED: Final = tuple(f.name for f in fields(Snapshot) if f.compare and f.name not in PASSED_OVER)


@dataclass(frozen=True, slots=True)
class Known:
    """A topic's part of a plan: the change of its partitions, or else what follows on the partitions as they are."""

    view: TopicView
    change: ChangePartitions | None
    others: tuple[Action, ...]


class AtRest:
    """See the module. `plan` alone fills it."""

    def __init__(self) -> None:
        self._shared: tuple[object, ...] = ()
        self._topics: dict[str, Known] = {}
        self._counted: tuple[list[TopicView], PartitionCounts] = ([], PartitionCounts())

    @property
    def remembered(self) -> int:
        """How many topics it holds."""
        return len(self._topics)

    def begin(self, snapshot: Snapshot, avoided: frozenset[int]) -> None:
        """A plan begins: forget everything when something changed that topics share, and topics that are gone."""
        shared = (avoided, _settings(snapshot.cluster), *(getattr(snapshot, name) for name in _SHARED))
        if shared != self._shared:
            self._shared = shared
            self._topics.clear()
        elif len(self._topics) > len(snapshot.topics):
            self._topics = {uid: known for uid, known in self._topics.items() if uid in snapshot.topics}

    def counts(self, views: list[TopicView]) -> PartitionCounts:
        """The partitions of these topics, added up once for as long as none of them changes."""
        if self._counted[0] != views:  # quick: views that are the same objects are not looked into
            self._counted = (views, add_up(view.facts.counts for view in views))
        return self._counted[1]

    def known(self, view: TopicView) -> Known | None:
        """What is known of exactly this version of a topic."""
        known = self._topics.get(view.topic.ref.uid)
        return known if known is not None and known.view is view else None

    def remember(self, view: TopicView, change: ChangePartitions | None, others: tuple[Action, ...]) -> None:
        """Keep a topic's part of this plan, which depends on nothing else than the module says."""
        self._topics[view.topic.ref.uid] = Known(view, change, others)


def _settings(cluster: Cluster) -> Cluster:
    """The cluster without what is only counted in it: producers draw ids all the time."""
    return replace(cluster, controller_epoch=0, controller_holder="", next_broker_epoch=0, next_producer_id=0)
