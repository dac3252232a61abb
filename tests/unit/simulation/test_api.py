"""The simulated API server."""

from __future__ import annotations

from typing import Any

from tests.simulation.api import ApiServer, Outcome, Watch
from tests.simulation.cluster import SimCluster
from tests.simulation.network import Network
from tests.simulation.operator_store import Store
from tests.simulation.swarm import draw
from tests.simulation.world import Process, World


def test_a_request_that_was_throttled_is_not_served_when_a_copy_of_it_comes() -> None:
    world = World(1)
    network = Network(world, delay_ms=1.0)
    network.repeat = 1.0
    server, outcomes, changed = ApiServer(world, network), [], []
    server.on_change = lambda kind, _old, new: changed.append((kind, new["metadata"]["name"]))
    server.throttle = 1.0
    body = {"metadata": {"name": "t"}}
    server.call("h", Process("p"), "create", "topics", body, answer=lambda outcome, _: outcomes.append(outcome))
    while Outcome.THROTTLED not in outcomes:
        world.run(world.now + 1.0)
    server.throttle = 0.0
    world.run(world.now + 10_000.0)
    assert outcomes == [Outcome.THROTTLED]
    assert not changed, "429 says that it was not applied"


def test_a_watch_from_before_the_restore_has_to_list_anew() -> None:
    world = World(0)
    api = SimCluster(world, draw(0)).api
    told: list[bool] = []
    before = api.version
    api.stop()
    api.restore(api.backup(), bump=True)
    api.start()
    for version, expired in ((before, [True]), (api.version, [])):
        told.clear()
        api.watch(Watch("b0", Process("b0"), "topics", lambda *_: None, told.append), version)
        world.run(world.now + 5.0)
        assert told == expired


def test_a_watch_from_ahead_of_a_store_whose_versions_come_again_is_told_nothing_until_it_is_there() -> None:
    world = World(0)
    api = SimCluster(world, draw(0)).api
    backup = api.backup()
    for name in ("a", "b"):
        api.create("topics", {"metadata": {"name": name}})
    ahead, era = api.version, api.era
    api.stop()
    api.restore(backup, bump=False)
    api.start()
    assert (api.version, api.era) == (backup.version, era + 1)
    assert not api.objects["topics"]
    told: list[int] = []
    expired: list[bool] = []
    reader = Watch(
        "b0",
        Process("b0"),
        "topics",
        lambda _, obj: told.append(int(obj["metadata"]["resourceVersion"])),
        expired.append,
    )
    api.watch(reader, ahead)
    for name in ("c", "d", "e"):
        api.create("topics", {"metadata": {"name": name}})
    world.run(world.now + 50.0)
    assert told == [ahead + 1]
    assert not expired


def test_an_operator_goes_by_a_list_that_was_asked_for_later_where_versions_come_again() -> None:
    now_s = [100.0]
    store = Store(lambda: now_s[0])

    def topic(version: int, **spec: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": "t", "uid": "uid", "creationTimestamp": "", "resourceVersion": str(version)},
            "spec": {"topicName": "t", "partitions": 1, "replicas": 1, **spec},
        }

    def shown() -> list[int]:
        return [view.spec.partitions for view in store.topic_views().values()]

    store.apply("topics", "ADDED", topic(9))
    again = topic(9, partitions=2)
    for asked_s, partitions in ((100.0, [1]), (101.0, [2])):
        now_s[0] = asked_s
        store.relist("topics", [again], 9, asked_s=asked_s)
        assert shown() == partitions
    for asked_s, partitions in ((101.0, [2]), (102.0, [])):
        now_s[0] = asked_s
        store.relist("topics", [], 5, asked_s=asked_s)
        assert shown() == partitions
