"""Writes into the custom resources what Kafka's clients ask of topics, exactly as a person would with `kubectl`.

A write that the API server refuses becomes a `BrokerError` with Kafka's code and the server's sentence. One without an
answer may have been applied: it is never sent again before a read has shown that it was not, and a creation knows its
own object by a random id in an annotation. What is to come of a write is for the callers to wait for, on the metadata.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from kafkalite_broker.cluster.attempts import DEADLINE_S
from kafkalite_broker.cluster.internal_topics import OFFSETS_TOPIC, offsets_topic
from kafkalite_broker.cluster.persistence import Persistence
from kafkalite_broker.cluster.reassigning import judge_reassignment
from kafkalite_broker.cluster.topic_errors import object_names_taken, refusal, topic_exists, unknown_topic
from kafkalite_broker.cluster.topic_requests import check_growth
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.topic import TopicSpec
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.resources import topic_objects
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.naming import topic_object_name, topic_object_names
from kafkalite_core.resources.topics import parse_topic, parse_topic_spec
from kafkalite_runtime.kube import (
    CLUSTERS,
    TOPICS,
    KubeConflict,
    KubeError,
    KubeInvalid,
    KubeNotFound,
    KubeUnavailable,
)
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalite_broker.cluster.reassigning import Judgement, ReassignmentWish
    from kafkalite_core.membership.metadata_cache import MetadataCache
    from kafkalite_core.model.cluster import Cluster
    from kafkalite_core.model.partition import Topic, TopicRef
    from kafkalite_runtime.kube import KubeClient

    Changes = dict[str, str | None]

WRITES_AT_ONCE_MAX = 16
"""Objects that one broker writes at the same time: beyond it the API server only gets slower, for everybody."""

log = get_logger(__name__)


class TopicWriter:
    """See the module. `deadline_s` is the time that a call may take; every call raises `BrokerError`.

    Args:
        client: Of the main loop.
        namespace: Of the cluster.
        cluster: Name of the `KafkaLiteCluster`.
        cache: Topics as this broker knows them.
        absorb: Shows a topic as the API server returned it to the metadata cache.
        found_cluster: The cluster as last seen, None before.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        cluster: str,
        *,
        cache: MetadataCache,
        absorb: Callable[[dict[str, Any]], None],
        found_cluster: Callable[[], Cluster | None],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._cache = cache
        self._absorb = absorb
        self._found_cluster = found_cluster
        self._making_offsets: asyncio.Future[None] | None = None
        self._persistence = Persistence(WRITES_AT_ONCE_MAX)

    # ------------------------------------------------------------------------------------------------- topics

    async def create(
        self,
        topic_name: str,
        *,
        partitions: int,
        replicas: int,
        config: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None = None,
        deadline_s: float,
        validate_only: bool = False,
    ) -> Topic:
        """Make the object of a topic; the operator places it then. Returns it as made (with uid, without topic id).

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS; REQUEST_TIMED_OUT; what the API server refuses.
        """
        spec = TopicSpec(
            cluster=self._cluster,
            topic_name=topic_name,
            partitions=partitions,
            replicas=replicas,
            config=dict(config),
            replica_assignment={number: tuple(ids) for number, ids in (assignment or {}).items()},
        )
        creation_id = secrets.token_hex(8)
        names = list(topic_object_names(topic_name, self._cluster))
        known = self._cache.topic(topic_name)
        if known is not None and known.ref.object_name != names[0]:
            await self.check_free(topic_name, deadline_s=deadline_s)

        async def attempt(unsure: bool, limit_s: float) -> Topic | None:
            name = names[0]
            if unsure:
                found = await self._read(name, limit_s)
                if found is not None and self._is_topic(found, topic_name):
                    return _own(found, topic_name, creation_id)
            body = topic_objects.topic_object(
                spec, namespace=self._namespace, object_name=name, creation_id=creation_id
            )
            try:
                made = await self._client.create(
                    TOPICS, self._namespace, body, strict=True, dry_run=validate_only, deadline_s=limit_s
                )
            except KubeConflict:
                found = await self._read(name, limit_s)
                if found is None:
                    return None
                if self._is_topic(found, topic_name):
                    return _own(found, topic_name, creation_id)
                names.pop(0)
                if not names:
                    raise object_names_taken(topic_name) from None
                return None
            return parse_topic(made) if validate_only else self._took(made)

        made = await self._persistence.until_answered(f"the creation of topic {topic_name!r}", deadline_s, attempt)
        if not validate_only:
            log.info("topic object made", topic=topic_name, name=made.ref.object_name, uid=made.ref.uid)
        return made

    async def ensure_offsets_topic(self, *, deadline_s: float) -> None:
        """Make `__consumer_offsets` unless it is there; calls at the same time share one write."""
        if self._cache.topic(OFFSETS_TOPIC) is not None:
            return
        if self._making_offsets is None or self._making_offsets.done():
            self._making_offsets = asyncio.ensure_future(self._make_offsets_topic(deadline_s))
            # Whoever waits gets the error; when nobody does any more it is no news.
            self._making_offsets.add_done_callback(lambda made: made.cancelled() or made.exception())
        await asyncio.shield(self._making_offsets)

    async def _make_offsets_topic(self, deadline_s: float) -> None:
        cluster = self._found_cluster()
        if cluster is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the cluster's configuration is not known yet")
        spec = offsets_topic(self._cluster, cluster.config, cluster.replicas)
        try:
            await self.create(
                spec.topic_name,
                partitions=spec.partitions,
                replicas=spec.replicas,
                config=spec.config,
                deadline_s=deadline_s,
            )
        except BrokerError as error:
            if error.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def check_free(self, topic_name: str, *, deadline_s: float) -> None:
        """Raise TOPIC_ALREADY_EXISTS if the topic is there. What the cache says is confirmed: it may be out of date."""
        known = self._cache.topic(topic_name)
        if known is None:
            return

        async def attempt(_unsure: bool, limit_s: float) -> bool:
            found = await self._read(known.ref.object_name, limit_s)
            return found is not None and found["metadata"].get("uid") == known.ref.uid

        if await self._persistence.until_answered(f"the creation of topic {topic_name!r}", deadline_s, attempt):
            raise topic_exists(topic_name)

    async def delete(self, topic_name: str, *, uid: str | None = None, deadline_s: float) -> TopicRef:
        """Delete the object of a topic (with `uid`: that very incarnation). The brokers' directories become strays.

        Returns what was deleted; it is gone when the metadata no longer show it.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION; REQUEST_TIMED_OUT; what the API server refuses.
        """
        topic = await self._known(topic_name, deadline_s)
        if uid is not None and topic.ref.uid != uid:
            raise unknown_topic(topic_name)

        async def attempt(unsure: bool, limit_s: float) -> bool:
            try:
                await self._client.delete(
                    TOPICS, self._namespace, topic.ref.object_name, uid=topic.ref.uid, deadline_s=limit_s
                )
            except (KubeNotFound, KubeConflict):
                # The uid is a precondition, so a conflict says that the name belongs to another object by now.
                if not unsure:
                    raise unknown_topic(topic_name) from None
            return True

        await self._persistence.until_answered(f"the deletion of topic {topic_name!r}", deadline_s, attempt)
        log.info("topic object deleted", topic=topic_name, name=topic.ref.object_name, uid=topic.ref.uid)
        return topic.ref

    async def withdraw(self, ref: TopicRef) -> None:
        """Delete an object that this broker made a moment ago and that lost its topic name to another. Never raises."""
        try:
            await self._client.delete(TOPICS, ref.namespace, ref.object_name, uid=ref.uid, deadline_s=DEADLINE_S)
        except (KubeError, KubeUnavailable) as error:
            log.warning("object without use not deleted", topic=ref.name, name=ref.object_name, error=str(error))

    async def grow(
        self,
        topic_name: str,
        partitions: int,
        rows: Sequence[Sequence[int]] | None = None,
        *,
        deadline_s: float,
        validate_only: bool = False,
    ) -> None:
        """Raise the number of partitions to `partitions`; `rows`: the brokers of each new one (None: the operator's).

        Judged on what the API server has: a cache that is behind would have partitions moved that are there already.

        Raises:
            BrokerError: INVALID_PARTITIONS when that would not be an increase, and as `create`.
        """
        topic = await self._known(topic_name, deadline_s)
        assignment = dict(enumerate(rows or (), start=partitions - len(rows or ())))
        wanted = topic_objects.assignment_json(assignment)

        async def attempt(unsure: bool, limit_s: float) -> bool | None:
            found = await self._read_incarnation(topic, limit_s)
            spec = found["spec"]
            placed = {**(spec.get("replicaAssignment") or {}), **wanted} == (spec.get("replicaAssignment") or {})
            if unsure and spec.get("partitions") == partitions and placed:
                return True
            check_growth(parse_topic(found), parse_topic_spec(found).partitions, partitions, rows)
            operations = topic_objects.growth(found, partitions, assignment)
            try:
                grown = await self._client.json_patch(
                    TOPICS,
                    self._namespace,
                    topic.ref.object_name,
                    operations,
                    dry_run=validate_only,
                    deadline_s=limit_s,
                )
            except KubeConflict:
                return None
            except KubeInvalid as error:
                again = await self._read_incarnation(topic, limit_s)
                if again["metadata"]["generation"] != found["metadata"]["generation"]:
                    return None
                raise refusal(error) from error
            if not validate_only:
                self._took(grown)
            return True

        await self._persistence.until_answered(f"the growth of topic {topic_name!r}", deadline_s, attempt)

    async def reassign(
        self, topic_name: str, wish: ReassignmentWish, *, brokers: Collection[int], deadline_s: float
    ) -> Judgement:
        """Write other replicas of partitions into the spec; the operator moves them then. Tells what was refused."""
        topic = await self._known(topic_name, deadline_s)

        async def attempt(unsure: bool, limit_s: float) -> Judgement | None:
            found = await self._read_incarnation(topic, limit_s)
            judgement = judge_reassignment(found, wish, brokers, unsure=unsure)
            if not judgement.operations:
                self._took(found)
                return judgement
            name = topic.ref.object_name
            try:
                changed = await self._client.json_patch(
                    TOPICS, self._namespace, name, judgement.operations, deadline_s=limit_s
                )
            except KubeConflict:
                return None
            except KubeInvalid as error:
                again = await self._read_incarnation(topic, limit_s)
                if again["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                    return None
                raise refusal(error) from error
            self._took(changed)
            return judgement

        return await self._persistence.until_answered(f"the reassignment of {topic_name!r}", deadline_s, attempt)

    async def set_config(
        self,
        topic_name: str,
        decide: Callable[[Topic], Changes],
        *,
        deadline_s: float,
        validate_only: bool = False,
    ) -> Changes:
        """Set or remove (None) keys of a topic's configuration as `decide` says; other keys stay as they are.

        Returns the changes. They are decided on what the API server has, and anew when somebody else was faster: the
        cache may be behind what another broker has answered already.
        """
        topic = await self._known(topic_name, deadline_s)

        async def attempt(_unsure: bool, limit_s: float) -> Changes | None:
            found = await self._read_incarnation(topic, limit_s)
            changes = decide(parse_topic(found))
            if not changes:
                return changes
            body, name = topic_objects.config_change(found, changes), topic.ref.object_name
            try:
                changed = await self._client.merge_patch(
                    TOPICS, self._namespace, name, body, strict=True, dry_run=validate_only, deadline_s=limit_s
                )
            except KubeNotFound:
                raise unknown_topic(topic_name) from None
            except KubeConflict:
                return None
            except KubeInvalid:
                # A patch that names the uid of an earlier object of this name is invalid too, not a conflict.
                await self._read_incarnation(topic, limit_s)
                raise
            if not validate_only:
                self._took(changed)
            return changes

        return await self._persistence.until_answered(f"the change of topic {topic_name!r}", deadline_s, attempt)

    async def request_election(
        self, topic_name: str, partitions: Collection[int] | None, *, unclean: bool, deadline_s: float
    ) -> None:
        """Ask the operator for elections of these partitions (None: all), besides what is asked for already.

        Preferred: the first replica leads, if it is in sync. Unclean: any live replica, where there is no leader.
        """
        topic = await self._known(topic_name, deadline_s)

        async def attempt(_unsure: bool, limit_s: float) -> bool | None:
            found = await self._read_incarnation(topic, limit_s)
            body = topic_objects.election_request(found, partitions, unclean=unclean)
            try:
                await self._client.merge_patch(TOPICS, self._namespace, topic.ref.object_name, body, deadline_s=limit_s)
            except KubeConflict:
                return None
            return True

        await self._persistence.until_answered(f"the election for topic {topic_name!r}", deadline_s, attempt)

    # ------------------------------------------------------------------------------------------------ cluster

    async def set_cluster_config(
        self, decide: Callable[[Mapping[str, str]], Changes], *, deadline_s: float, validate_only: bool = False
    ) -> Changes:
        """Set or remove keys of the cluster's `spec.config`, which holds for every broker; as `set_config`."""

        async def attempt(_unsure: bool, limit_s: float) -> Changes | None:
            found = await self._client.get(CLUSTERS, self._namespace, self._cluster, deadline_s=limit_s)
            changes = decide(parse_cluster(found).config)
            if not changes:
                return changes
            body = topic_objects.config_change(found, changes)
            try:
                await self._client.merge_patch(
                    CLUSTERS,
                    self._namespace,
                    self._cluster,
                    body,
                    strict=True,
                    dry_run=validate_only,
                    deadline_s=limit_s,
                )
            except KubeConflict:
                return None
            return changes

        return await self._persistence.until_answered("the change of the cluster's configuration", deadline_s, attempt)

    # ------------------------------------------------------------------------------------------------- common

    async def obstacle(self, topic_name: str, *, deadline_s: float = DEADLINE_S) -> str:
        """Why a topic is not ready, in the operator's words; empty when that is not known. Never raises."""
        known = self._cache.topic(topic_name)
        name = topic_object_name(topic_name) if known is None else known.ref.object_name
        try:
            found = await self._client.get(TOPICS, self._namespace, name, deadline_s=deadline_s)
        except (KubeError, KubeUnavailable):
            return ""
        conditions = (found.get("status") or {}).get("conditions") or []
        return next((str(c.get("message", "")) for c in conditions if c.get("type") == "Ready"), "")

    def _took(self, found: dict[str, Any]) -> Topic:
        self._absorb(found)
        return parse_topic(found)

    async def _known(self, topic_name: str, deadline_s: float) -> Topic:
        """The topic: of the cache, else as a read shows it, for the cache may be behind another broker's answer."""
        known = self._cache.topic(topic_name)
        if known is not None:
            return known

        async def attempt(_unsure: bool, limit_s: float) -> Topic:
            for name in topic_object_names(topic_name, self._cluster):
                found = await self._read(name, limit_s)
                if found is not None and self._is_topic(found, topic_name):
                    return parse_topic(found)
            raise unknown_topic(topic_name)

        return await self._persistence.until_answered(f"the look-up of topic {topic_name!r}", deadline_s, attempt)

    def _is_topic(self, found: dict[str, Any], topic_name: str) -> bool:
        spec = parse_topic_spec(found)
        return (spec.topic_name, spec.cluster) == (topic_name, self._cluster)

    async def _read(self, object_name: str, limit_s: float) -> dict[str, Any] | None:
        try:
            return await self._client.get(TOPICS, self._namespace, object_name, deadline_s=limit_s)
        except KubeNotFound:
            return None

    async def _read_incarnation(self, topic: Topic, limit_s: float) -> dict[str, Any]:
        found = await self._read(topic.ref.object_name, limit_s)
        if found is None or found["metadata"].get("uid") != topic.ref.uid:
            raise unknown_topic(topic.ref.name)
        return found


def _own(found: dict[str, Any], topic_name: str, creation_id: str) -> Topic:
    """The object that is there, if this very call made it. Raises TOPIC_ALREADY_EXISTS otherwise."""
    if topic_objects.creation_id_of(found) != creation_id:
        raise topic_exists(topic_name)
    return parse_topic(found)
