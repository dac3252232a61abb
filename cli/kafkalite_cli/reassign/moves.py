"""Which moves there are, how far they are, and the changes of the custom resources that begin and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_cli.errors import Failure
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.snapshot import registration, topic_name
from kafkalite_cli.topics.objects import cluster_of
from kafkalite_core.controller.reassignment import is_moving, origin_of, retargeted, target_of
from kafkalite_core.model.errors import ConfigError
from kafkalite_core.model.throttled import ThrottledReplicas, throttled_replicas
from kafkalite_core.resources.topic_objects import election_request, reassignment
from kafkalite_core.resources.topics import parse_topic, parse_topic_spec
from kafkalite_runtime.kube import CLUSTERS, TOPICS, KubeClient, KubeConflict, KubeError, KubeInvalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from kafkalite_cli.reassign.files import Assignment
    from kafkalite_core.model.partition import Partition

JsonObject = dict[str, Any]
Sizes = dict[tuple[str, int, int], int]
ATTEMPTS = 5
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"
THROTTLE_LISTS = (LEADER_LIST, FOLLOWER_LIST)
THROTTLE_RATES = (LEADER_RATE, FOLLOWER_RATE)


def entries_of(topic: JsonObject) -> dict[int, Partition]:
    """The partitions of a topic's status."""
    return parse_topic(topic).partitions


def current_of(topics: Iterable[JsonObject]) -> Assignment:
    """Where the replicas of these topics are, or go."""
    return {
        (topic_name(topic), number): target_of(entry)
        for topic in topics
        for number, entry in sorted(entries_of(topic).items())
    }


def racks_of(brokers: Iterable[JsonObject], cluster: str, *, only: Sequence[int] | None = None) -> dict[int, str]:
    """Rack by id of the registered brokers of a cluster. Raises Failure for one of `only` that is not among them."""
    found = {
        int(broker["spec"]["brokerId"]): str(registration(broker).get("rack") or "")
        for broker in brokers
        if (broker["spec"].get("clusterRef") or {}).get("name") == cluster and registration(broker)
    }
    if only is None:
        return found
    if unknown := sorted(set(only) - set(found)):
        raise Failure(f"brokers {', '.join(map(str, unknown))} are not registered; there are {sorted(found)}")
    return {broker_id: found[broker_id] for broker_id in only}


def shown_entry(topic: JsonObject, number: int) -> Partition:
    """The entry as it is, or as it will be when its wish is taken up."""
    entry = entries_of(topic)[number]
    wish = parse_topic_spec(topic).replica_assignment.get(number)
    waits = wish and wish != target_of(entry) and len(set(wish)) == len(wish)
    return retargeted(entry, wish) if waits and wish else entry


def moving_in(topic: JsonObject) -> list[int]:
    """Numbers of the partitions that move, or wait for their turn."""
    return [number for number in sorted(entries_of(topic)) if is_moving(shown_entry(topic, number))]


def progress(topic: JsonObject, number: int, sizes: Sizes) -> JsonObject:
    """One move for `status`: its lists, who is not in sync yet, and how much of the leader's bytes they have."""
    entry, begun = shown_entry(topic, number), entries_of(topic)[number]
    name, isr = topic_name(topic), begun.isr_ids()
    behind = [broker_id for broker_id in entry.adding if broker_id not in isr]
    whole = sizes.get((name, number, begun.leader))
    copied = [sizes.get((name, number, broker_id), 0) for broker_id in behind]
    percent = None
    if whole is not None and behind:
        percent = 100 if not whole else int(100 * min(1.0, sum(copied) / (whole * len(behind))))
    return {
        "topic": name,
        "partition": number,
        "from": list(origin_of(entry)),
        "to": list(target_of(entry)),
        "adding": list(entry.adding),
        "removing": list(entry.removing),
        "notInSync": behind,
        "copiedPercent": percent,
        "state": "moving" if is_moving(begun) else "waiting",
    }


def verdict(topic: JsonObject | None, number: int, wanted: tuple[int, ...]) -> tuple[str, str]:
    """(completed, in progress or failed; a sentence) for one partition of a plan, as `--verify` judges."""
    entries = {} if topic is None else entries_of(topic)
    if topic is None or number not in entries:
        return "failed", "it does not exist"
    entry = shown_entry(topic, number)
    if is_moving(entry):
        same = target_of(entry) == wanted
        return "in progress", "" if same else f"it moves to {list(target_of(entry))} instead"
    if entry.replicas == wanted:
        return "completed", ""
    return "failed", f"nothing moves, and its replicas are {list(entry.replicas)}"


# --- changes ---------------------------------------------------------------------------------------------------------


async def begin(client: KubeClient, topic: JsonObject, wanted: Mapping[int, tuple[int, ...]]) -> None:
    """Wish for other replicas of partitions of one topic. Raises Failure; nothing of the topic is changed then."""
    await _patch(client, topic, lambda found: reassignment(found, _known(found, wanted)))


def _known(found: JsonObject, wanted: Mapping[int, tuple[int, ...]]) -> Mapping[int, tuple[int, ...]]:
    if missing := sorted(set(wanted) - set(entries_of(found))):
        raise Failure(f"topic {topic_name(found)!r} has no partition {', '.join(map(str, missing))}")
    return wanted


async def cancel(client: KubeClient, topic: JsonObject, numbers: Iterable[int]) -> Assignment:
    """Wish for what there was before, where something moves; the replicas that are gone back to."""
    wanted = set(numbers)
    restored: Assignment = {}

    def patch(found: JsonObject) -> list[JsonObject]:
        restored.clear()
        targets, tested = {}, {}
        for number in wanted.intersection(moving_in(found)):
            entry = entries_of(found)[number]
            targets[number] = restored[topic_name(found), number] = origin_of(entry)
            tested[number] = entry.partition_epoch
        return reassignment(found, targets, tested=tested)

    await _patch(client, topic, patch)
    return restored


async def _patch(client: KubeClient, topic: JsonObject, patch: Callable[[JsonObject], list[JsonObject]]) -> None:
    async def write(found: JsonObject) -> None:
        if operations := patch(found):
            await client.json_patch(TOPICS, found["metadata"]["namespace"], found["metadata"]["name"], operations)

    await _write(client, topic, write)


async def _write(client: KubeClient, topic: JsonObject, write: Callable[[JsonObject], Awaitable[None]]) -> None:
    """Decide on the topic as it is and write; again where it changed in between, as by the operator. Raises Failure."""
    metadata, name = topic["metadata"], topic_name(topic)
    for attempt in range(ATTEMPTS):
        found = await client.get(TOPICS, metadata["namespace"], metadata["name"])
        if found["metadata"]["uid"] != metadata["uid"]:
            raise Failure(f"topic {name!r} was deleted and made again just now")
        try:
            await write(found)
        except (KubeConflict, KubeInvalid) as error:
            again = await client.get(TOPICS, metadata["namespace"], metadata["name"])
            same = again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
            if same or attempt == ATTEMPTS - 1:
                raise Failure(f"topic {name!r}: {plain_words(error)}") from error
        except KubeError as error:
            raise Failure(f"topic {name!r}: {plain_words(error)}") from error
        else:
            return


# --- throttle --------------------------------------------------------------------------------------------------------


def throttle_lists(topic: JsonObject, targets: Mapping[int, tuple[int, ...]]) -> dict[str, str]:
    """The topic's keys that throttle these moves: on the leader's side who has the data, on the other who gets them.

    What throttles other partitions of the topic that move stays, and so does `*`, which holds for these moves as well.
    """
    leaders, followers = set(), set()
    for number, target in targets.items():
        entry = retargeted(entries_of(topic)[number], target)
        leaders |= {(number, broker_id) for broker_id in origin_of(entry)}
        followers |= {(number, broker_id) for broker_id in entry.adding}
    others = set(moving_in(topic)) - set(targets)
    lists = {}
    for key, pairs in ((LEADER_LIST, leaders), (FOLLOWER_LIST, followers)):
        have = _throttled(topic, key)
        if not have.every and (wanted := pairs | {pair for pair in have.pairs if pair[0] in others}):
            lists[key] = _list_of(wanted)
    return lists


def released_lists(topic: JsonObject, moving: Collection[int]) -> dict[str, str | None]:
    """The topic's keys when only these partitions move on; None where nothing is left. `*` is not ours, and stays."""
    lists = {}
    for key in THROTTLE_LISTS:
        have = _throttled(topic, key)
        if not have.every:
            lists[key] = _list_of(pair for pair in have.pairs if pair[0] in moving) or None
    return lists


def _throttled(topic: JsonObject, key: str) -> ThrottledReplicas:
    """What the topic has there; nothing where it cannot be read, since brokers do not go by that either."""
    try:
        return throttled_replicas(key, (topic["spec"].get("config") or {}).get(key, ""))
    except ConfigError:
        return ThrottledReplicas()


def _list_of(pairs: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{number}:{broker_id}" for number, broker_id in sorted(pairs))


async def set_topic_config(client: KubeClient, topic: JsonObject, config: Mapping[str, str | None]) -> None:
    """Set or remove (None) keys of a topic. Raises Failure."""
    have = topic["spec"].get("config") or {}
    changed = {key: value for key, value in config.items() if have.get(key) != value}
    if changed:
        await _merge(client, TOPICS, topic, {"spec": {"config": changed}})


async def set_rates(client: KubeClient, cluster: JsonObject, rate: int | None) -> None:
    """Set or remove (None) the rates of a cluster, which hold for each of its brokers. Raises Failure."""
    have = cluster["spec"].get("config") or {}
    value = None if rate is None else str(rate)
    changed = {key: value for key in THROTTLE_RATES if have.get(key) != value}
    if changed:
        await _merge(client, CLUSTERS, cluster, {"spec": {"config": changed}})


async def _merge(client: KubeClient, kind: Any, obj: JsonObject, body: JsonObject) -> None:
    metadata = obj["metadata"]
    try:
        await client.merge_patch(kind, metadata["namespace"], metadata["name"], body, strict=True)
    except KubeError as error:
        raise Failure(f"{metadata['name']}: {plain_words(error)}") from error


async def elect_preferred(client: KubeClient, topic: JsonObject, numbers: Iterable[int]) -> None:
    """Annotate a topic; the operator removes the annotation when it has done it. Raises Failure."""
    wanted = set(numbers)

    async def write(found: JsonObject) -> None:
        body = election_request(found, wanted, unclean=False)
        await client.merge_patch(TOPICS, found["metadata"]["namespace"], found["metadata"]["name"], body, strict=True)

    await _write(client, topic, write)


def by_cluster(topics: Iterable[JsonObject]) -> dict[tuple[str, str], list[JsonObject]]:
    """Topics by namespace and name of their cluster."""
    found: dict[tuple[str, str], list[JsonObject]] = {}
    for topic in topics:
        key = (str(topic["metadata"].get("namespace") or "default"), cluster_of(topic))
        found.setdefault(key, []).append(topic)
    return found
