"""Keeps the objects of a cluster (StatefulSet, Services, ConfigMap, PodDisruptionBudget) as they should be."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.model.limits import SENTENCE_LENGTH_MAX
from kafkalite_core.model.topic import Condition
from kafkalite_core.resources.drift import differences, put_back
from kafkalite_core.resources.listener_services import with_removals
from kafkalite_core.resources.manifests import applied_hash, infrastructure
from kafkalite_core.resources.naming import LABEL_CLUSTER, LABEL_COMPONENT
from kafkalite_operator.stateful_sets import StatefulSets
from kafkalite_runtime.kube.errors import (
    KubeConflict,
    KubeError,
    KubeNotFound,
    KubeThrottled,
    KubeUnauthorized,
    KubeUnavailable,
)
from kafkalite_runtime.kube.kinds import (
    CLUSTERS,
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STATEFUL_SETS,
)
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalite_core.resources.manifests import ClusterSettings
    from kafkalite_operator.cluster_status import ClusterStatus
    from kafkalite_operator.store import Store
    from kafkalite_runtime.kube.client import KubeClient
    from kafkalite_runtime.kube.errors import KubeForbidden
    from kafkalite_runtime.kube.events import EventRecorder

CALL_DEADLINE_S = 3.0
RACES_MAX = 3
"""Looks at one object in a row; after that it is the turn of the others."""

COLLECTED_S = 15.0
"""The garbage collector takes what a deleted cluster left within this time, as a rule: until then nothing is told."""

TOLD_AGAIN_S = 300.0
"""What lasts is told again so often; it is tried every few seconds."""

LISTED_MAX = 3
"""Problems in one condition."""

_KINDS = {kind.kind: kind for kind in (STATEFUL_SETS, SERVICES, CONFIG_MAPS, POD_DISRUPTION_BUDGETS)}
_log = get_logger(__name__)


CONDITION = "ObjectsApplied"
APPLIED = Condition(type=CONDITION, status="True", reason="Applied", message="every object is as it should be")
REFUSED = Condition(type=CONDITION, status="False", reason="ObjectRefused")
FOREIGN = Condition(type=CONDITION, status="False", reason="ObjectForeign")
NOT_YET_COLLECTED = Condition(type=CONDITION, status="False", reason="NotYetCollected")


class ForeignObject(KafkaLiteError):
    """An object with the name of one of the cluster's is somebody else's: it is left alone."""


class NotYetCollected(KafkaLiteError):
    """An object of a deleted cluster is in the way of its successor's: try again."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps one object from being as it should be.

    Attributes:
        kind: Of the object.
        condition: The condition that tells it.
    """

    kind: str
    condition: Condition


class NotApplied(KafkaLiteError):
    """Some objects are not as they should be; all the others are.

    Attributes:
        problems: Of each of them.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.condition.message for problem in problems))
        self.problems = tuple(problems)


class Infrastructure:
    """Creates what is missing, patches what differs from what was last applied, and puts back what somebody changed of
    what matters (`drift`); the rest is left alone. What cannot be applied is told by Events and a condition.
    """

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        events: EventRecorder,
        status: ClusterStatus,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._events = events
        self._status = status
        self._clock = clock
        self._stateful_sets = StatefulSets(client)
        self._known: dict[str, dict[Problem, float]] = {}
        """By uid of the cluster, its problems at the last look, and since when."""
        self._told: dict[str, dict[Problem, float]] = {}
        """And when they were last told of."""

    async def ensure(self, settings: ClusterSettings, broker_ids: Iterable[int]) -> None:
        """Bring all objects of one cluster up to date. Raises `NotApplied`, and other errors of the client.

        An object that the API server refuses, such as a Service with a port that is taken, or one that a policy denies,
        holds no other one up, nor does one that it cannot read.
        """
        problems: list[Problem] = []
        unread: KubeUnavailable | None = None
        for wanted in infrastructure(settings, broker_ids):
            try:
                await self._ensure_again(settings, wanted)
            except KafkaLiteError as error:
                problem = problem_of(wanted["kind"], wanted["metadata"]["name"], error)
                if problem is not None:
                    problems.append(problem)
                elif isinstance(error, KubeUnavailable) and error.status == 500:
                    unread = error
                else:
                    raise
        if unread is not None:
            raise unread
        await self._tell_problems(settings, problems)
        if problems:
            raise NotApplied(problems)

    async def not_read(self, settings: ClusterSettings, kind: str, name: str, error: KubeForbidden) -> None:
        """Tell of an object that has to be read before any is applied, and may not be."""
        problem = problem_of(kind, name, error)
        if problem is not None:
            await self._tell_problems(settings, [problem])

    async def _tell_problems(self, settings: ClusterSettings, problems: Sequence[Problem]) -> None:
        uid, now = settings.cluster.uid, self._clock()
        known, told = self._known.get(uid, {}), self._told.get(uid, {})
        self._known[uid] = {problem: known.get(problem, now) for problem in problems}
        self._told[uid] = {problem: told[problem] for problem in problems if problem in told}
        lasting = [
            problem
            for problem, since in self._known[uid].items()
            if problem.condition.reason != NOT_YET_COLLECTED.reason or now - since >= COLLECTED_S
        ]
        for problem in lasting:
            if now - self._told[uid].get(problem, float("-inf")) >= TOLD_AGAIN_S:
                self._told[uid][problem] = now
                self._tell(settings, problem.condition.message, problem.condition.reason)
        if lasting:
            shown = lasting[:LISTED_MAX]
            messages = [problem.condition.message[: SENTENCE_LENGTH_MAX // len(shown) - 8] for problem in shown]
            more = [f"and {len(lasting) - LISTED_MAX} more"] if len(lasting) > LISTED_MAX else []
            condition = replace(lasting[0].condition, message="; ".join([*messages, *more]))
            await self._status.write(settings, condition=condition, quietly=True)
        elif not problems and self._status.has_condition(settings, CONDITION):
            await self._status.write(settings, condition=APPLIED, quietly=True)

    async def _ensure_again(self, settings: ClusterSettings, wanted: dict[str, Any]) -> None:
        """A lost race is no refusal: what somebody else has written meanwhile is compared anew."""
        for _ in range(RACES_MAX - 1):
            with contextlib.suppress(KubeConflict):
                await self._ensure_one(settings, wanted)
                return
        await self._ensure_one(settings, wanted)

    async def _ensure_one(self, settings: ClusterSettings, wanted: dict[str, Any]) -> None:
        kind = _KINDS[wanted["kind"]]
        namespace, name = settings.cluster.namespace, wanted["metadata"]["name"]
        try:
            existing = await self._client.get(kind, namespace, name, deadline_s=CALL_DEADLINE_S)
        except KubeNotFound:
            try:
                await self._client.create(kind, namespace, wanted, deadline_s=CALL_DEADLINE_S)
            except KubeConflict:
                return  # made by another replica meanwhile; the next look compares it
            self._tell(settings, f"{kind.kind} {name} made")
            return
        check_owner(settings, existing, wanted)
        changed = differences(existing, wanted)
        if applied_hash(existing) == applied_hash(wanted) and not changed:
            return
        done = "updated"
        if applied_hash(existing) == applied_hash(wanted):
            done = f"put back, somebody has changed it: {', '.join(changed)}"
        if kind is STATEFUL_SETS:
            made_again = await self._stateful_sets.update(existing, wanted)
            done = made_again or done
        else:
            # Only on what was just compared: a patch that comes late must not undo what another replica has applied.
            version = existing["metadata"]["resourceVersion"]
            whole = put_back(existing, wanted)
            patch = with_removals({**whole, "metadata": {**whole["metadata"], "resourceVersion": version}}, existing)
            await self._client.merge_patch(kind, namespace, name, patch, deadline_s=CALL_DEADLINE_S)
        self._tell(settings, f"{kind.kind} {name} {done}")

    def _tell(self, settings: ClusterSettings, message: str, reason: str = "ObjectApplied") -> None:
        _log.info("object", cluster=settings.cluster.name, reason=reason, what=message)
        regarding = self._store.raw(CLUSTERS, settings.cluster.uid)
        if regarding is not None:
            type_ = "Normal" if reason == "ObjectApplied" else "Warning"
            self._events.record(regarding, type_, reason, message)


def problem_of(kind: str, name: str, error: KafkaLiteError) -> Problem | None:
    """What is told of what went wrong with that object; None where it says nothing of it."""
    condition = condition_of(error)
    if condition is None:
        return None
    verb = " refused" if condition is REFUSED else ""
    return Problem(kind, replace(condition, message=f"{kind} {name}{verb}: {error}"))


def condition_of(error: KafkaLiteError) -> Condition | None:
    """The condition that tells of what went wrong with one object; None where it says nothing of that object.

    Of the answers with 5xx the API server gives 500 where it could not ask an admission webhook, which may last; nobody
    asks one about a read.
    """
    match error:
        case ForeignObject():
            return FOREIGN
        case NotYetCollected():
            return NOT_YET_COLLECTED
        case KubeConflict() | KubeNotFound() | KubeThrottled() | KubeUnauthorized():
            return None
        case KubeError():
            return REFUSED
        case KubeUnavailable(status=500, ambiguous=True):
            return REFUSED
        case _:
            return None


def check_owner(settings: ClusterSettings, existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises `ForeignObject` where an object that is there is not the cluster's, and `NotYetCollected`.

    One that nobody controls is the cluster's if its labels say so: its owner was deleted without it, as with
    `--cascade=orphan`, or made again. Anything else of that name was made by somebody else for something else.
    """
    cluster, metadata = settings.cluster, existing["metadata"]
    owners = metadata.get("ownerReferences") or []
    other = next((o for o in owners if o.get("controller") and o.get("uid") != cluster.uid), None)
    if other is not None and (other.get("kind"), other.get("name")) == (CLUSTERS.kind, cluster.name):
        # The cluster was deleted and made again. What was made of the earlier one is about to be collected.
        raise NotYetCollected(
            "it belongs to the cluster of that name that was deleted, and is made anew when the garbage collector has "
            "taken it away; if that does not happen, delete it"
        )
    labels = metadata.get("labels") or {}
    ours = {name: wanted["metadata"]["labels"][name] for name in (LABEL_CLUSTER, LABEL_COMPONENT)}
    if other is not None:
        why = f"{other.get('kind')} {other.get('name')} controls it"
    elif any(owner.get("uid") == cluster.uid for owner in owners) or ours.items() <= labels.items():
        return
    else:
        why = f"it has no owner and not the labels {','.join(f'{name}={value}' for name, value in ours.items())}"
    raise ForeignObject(
        f"it is somebody else's and is left alone, {why}; delete it, or make the KafkaLiteCluster under another name"
    )
