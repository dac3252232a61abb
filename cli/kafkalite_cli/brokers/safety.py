"""May a broker go for a while? The rule is the operator's own (`kafkalite_core.controller.restart_safety`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_cli.snapshot import topic_name
from kafkalite_core.controller import restart_safety
from kafkalite_core.controller.configs import was_relaxed
from kafkalite_core.controller.restart_safety import Guarded, Objection, Safety
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.views import topic_view

if TYPE_CHECKING:
    from kafkalite_cli.brokers.view import ClusterView, Key

LISTED_MAX = 5


def _relaxed(view: ClusterView) -> set[str]:
    """Topics whose acknowledgements do not, or did not, wait for the disk: there an unclean restart counts (S2)."""
    broker_config = parse_cluster(view.cluster).config
    found: set[str] = set()
    for obj in view.topics:
        topic = topic_view(obj)
        if was_relaxed(topic) or resolve_topic_config(topic.spec.config, broker_config).relaxed_flush:
            found.add(topic_name(obj))
    return found


def _guarded(view: ClusterView) -> list[Guarded]:
    relaxed = _relaxed(view)
    return [Guarded(key, entry, key[0] in relaxed) for key, entry in view.partitions.items()]


def living(view: ClusterView, key: Key) -> set[int]:
    """Members of the ISR that count and run."""
    return restart_safety.living(Guarded(key, view.partitions[key], key[0] in _relaxed(view)), view.brokers)


def objections(view: ClusterView, broker_id: int) -> list[Objection]:
    """Every partition that speaks against stopping the broker now."""
    return Safety(_guarded(view), view.brokers).objections(broker_id)


def sentence(found: list[Objection]) -> str:
    """All of them, bounded."""
    more = f"; and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return "; ".join(map(str, found[:LISTED_MAX])) + more


def not_back(view: ClusterView, broker_id: int) -> list[Key]:
    """Partitions of the broker in whose ISR it does not stand with its present epoch; what moves there counts not."""
    broker = view.brokers[broker_id]
    return [key for key, entry in sorted(view.partitions.items()) if restart_safety.not_back(entry, broker)]
