"""JSON -> what the controller plans with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.snapshot import TopicView
from kafkalite_core.resources.clusters import is_paused
from kafkalite_core.resources.conditions import parse_conditions
from kafkalite_core.resources.fields import open_object
from kafkalite_core.resources.naming import (
    ANNOTATION_ADOPT,
    ANNOTATION_ELECT_PREFERRED,
    ANNOTATION_ELECT_UNCLEAN,
    ANNOTATION_RECOVER_STORE,
)
from kafkalite_core.resources.topic_objects import parse_election
from kafkalite_core.resources.topics import parse_topic, parse_topic_spec

if TYPE_CHECKING:
    from collections.abc import Mapping


def _consent(text: str) -> str:
    return text if text.lower() == "true" else ""


def topic_view(obj: Mapping[str, Any], *, first_seen: float = 0.0, generation_seen: float = 0.0) -> TopicView:
    """A `KafkaLiteTopic` for the controller. Raises `ResourceError`."""
    fields, metadata = open_object(obj)
    status = fields.map("status")
    annotations = metadata.map("annotations").texts_or_empty()
    topic = parse_topic(obj)
    elections: dict[str, str] = {
        name: annotations[name]
        for name in (ANNOTATION_ELECT_PREFERRED, ANNOTATION_ELECT_UNCLEAN)
        if name in annotations
    }
    adopt = annotations.get(ANNOTATION_ADOPT, "").strip().lower()
    return TopicView(
        topic=topic,
        spec=parse_topic_spec(obj),
        created=metadata.text("creationTimestamp", ""),
        has_status=fields.has("status"),
        paused=is_paused(metadata),
        adopt_strays=adopt != "false" if adopt else None,
        adopt_topic_id=adopt if adopt not in {"true", "false"} else "",
        elections=elections,
        elect_preferred=parse_election(elections.get(ANNOTATION_ELECT_PREFERRED, ""), topic.partitions),
        elect_unclean=parse_election(elections.get(ANNOTATION_ELECT_UNCLEAN, ""), topic.partitions),
        unclean_request=elections.get(ANNOTATION_ELECT_UNCLEAN, ""),
        recovery_request=_consent(annotations.get(ANNOTATION_RECOVER_STORE, "")),
        observed_generation=status.integer("observedGeneration", 0),
        conditions=parse_conditions(status.raw),
        in_sync=status.text("inSync", ""),
        first_seen=first_seen,
        generation_seen=generation_seen,
    )
