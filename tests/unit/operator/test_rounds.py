"""Rounds of the controller, one after the other, on lists that are answered by hand."""

import asyncio
from itertools import product
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_operator import controller as module
from kafkalite_operator.controller import Controller
from kafkalite_operator.main import Operator
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.store import Store
from kafkalite_runtime.kube.client import KubeList
from kafkalite_runtime.kube.errors import KubeConflict, KubeForbidden, KubeUnavailable
from kafkalite_runtime.kube.kinds import BROKERS, CLUSTERS, PODS, TOPICS

TURNS = 8


def meta(name, namespace):
    uid = f"uid-{namespace}-{name}"
    return {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "10", "generation": 1}


def objects(namespace, *, leader=0):
    """A cluster of three brokers that this operator controls already, and a topic that the first of them should lead."""
    cluster = {
        "metadata": meta("c", namespace),
        "spec": {"replicas": 3},
        "status": {"clusterId": "x" * 22, "controller": {"holder": "op", "epoch": 1}, "nextBrokerEpoch": 9},
    }
    brokers = [
        {
            "metadata": meta(f"c-broker-{i}", namespace),
            "spec": {"clusterRef": {"name": "c"}, "brokerId": i},
            "status": {
                "registration": {
                    "brokerEpoch": i + 1, "incarnation": f"i{i}", "directoryId": f"d{i}", "trustedSince": 1,
                    "cleanSince": 1, "host": "h", "port": 1, "state": "Running",
                }
            },
        }
        for i in range(3)
    ]  # fmt: skip
    entry = {"leader": leader, "leaderEpoch": 3, "partitionEpoch": 3, "minIsr": 1, "replicas": [0, 1, 2]}
    topic = {
        "metadata": meta("t", namespace),
        "spec": {"clusterRef": {"name": "c"}, "partitions": 1, "replicas": 3},
        "status": {
            "topicId": "tid", "controllerEpoch": 1,
            "partitions": {"0": entry | {"isr": [0, 1, 2], "isrBrokerEpochs": [1, 2, 3]}},
        },
    }  # fmt: skip
    return {CLUSTERS: [cluster], BROKERS: brokers, TOPICS: [topic], PODS: []}


class Client:
    """Answers lists; writes are noted, and the API server takes none."""

    def __init__(self, served):
        self.served, self.elected, self.forbidden, self.called = served, [], set(), set()
        self.full, self.made = set(), []
        self.refusal = KubeForbidden(403, "Forbidden", "exceeded quota: brokers")

    async def list(self, kind, namespace, **_):
        if namespace in self.forbidden:
            raise KubeForbidden(403, "Forbidden", f"no RoleBinding in {namespace}")
        return KubeList(self.served[namespace].get(kind, []), "11")

    async def json_patch(self, kind, namespace, name, operations, **_):
        if kind is TOPICS and any("/leaderEpoch" in each["path"] for each in operations):
            self.elected.append((namespace, name))
        raise KubeUnavailable("not taken", ambiguous=False)

    async def create(self, kind, namespace, body, **_):
        if kind is not BROKERS or namespace in self.full:
            raise self.refusal
        self.made.append((namespace, body["metadata"]["name"]))
        return body | {"metadata": body["metadata"] | {"uid": f"new-{namespace}", "resourceVersion": "12"}}

    def __getattr__(self, name):
        async def refuse(kind, namespace, *_, **__):
            self.called.add((name, namespace))
            raise KubeUnavailable("not taken", ambiguous=False)

        return refuse


class World:
    def __init__(self, **served):
        self.now = 1000.0
        self.client, self.events = Client(served), []
        self.store = Store(lambda: self.now, "image")
        elector = SimpleNamespace(held=lambda: True, terms=1, identity="op")
        settings = SimpleNamespace(watch_namespaces=tuple(served), default_cluster={"replicas": 3})
        self.controller = Controller(
            client=self.client, store=self.store, elector=elector, settings=settings, metrics=OperatorMetrics(),
            events=SimpleNamespace(record=lambda _, __, reason, message: self.events.append((reason, message))),
            clock=lambda: self.now,
        )  # fmt: skip
        self.controller._epochs = {f"uid-{namespace}-c": 1 for namespace in served}
        self.controller.leases.observing_since = lambda _: 900.0
        self.silent = set()

    async def round(self, pass_s=1.0):
        """What `_serve` does in one turn of its loop, and time for what it began."""
        self.now += pass_s
        one = self.controller
        for namespace, i in product(self.client.served, {0, 1, 2} - self.silent):
            heard = LeaseView(holder=f"i{i}", changed_at=self.now)
            self.store.leases[namespace, f"c-broker-{i}"] = heard
        for namespace in one._listing.due():
            one._work.start(("resync", namespace or ""), one._listing.everything(namespace))
        if one._listing.begun:
            one._round()
        for _ in range(TURNS):
            await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_namespace_that_may_not_be_read_holds_no_other_one_up(first):
    second = "b" if first == "a" else "a"
    world = World(**{first: objects(first, leader=-1), second: objects(second, leader=-1)})
    world.client.forbidden.add("b")
    for _ in range(3):
        await world.round()
    assert set(world.client.elected) == {("a", "t")}
    world.client.forbidden.clear()
    for _ in range(10):
        await world.round()
    assert set(world.client.elected) == {("a", "t"), ("b", "t")}, "as soon as it may be read again"


async def test_a_broker_that_may_not_be_made_in_one_namespace_holds_up_that_of_no_other():
    served = {namespace: objects(namespace) for namespace in "ab"}
    for each in served.values():
        del each[BROKERS][0]
    world = World(**served)
    world.client.full.add("a")
    await world.round()
    await world.round()
    assert world.client.made == [("b", "c-broker-0")]
    said = [message for reason, message in world.events if reason == "BrokerNotCreated"]
    assert said == ["KafkaLiteBroker c-broker-0 cannot be made: exceeded quota: brokers"]


async def test_why_a_broker_cannot_be_made_is_told_every_five_minutes_for_each_broker_and_reason():
    served = {"a": objects("a")}
    del served["a"][BROKERS][1:]
    world = World(**served)

    def told():
        said = [message for reason, message in world.events if reason == "BrokerNotCreated"]
        return [sum(f"c-broker-{i} " in message for message in said) for i in (1, 2)]

    world.client.full.add("a")
    for _ in range(29):
        await world.round(pass_s=10.0)
    assert told() == [1, 1]
    for _ in range(3):
        await world.round(pass_s=10.0)
    assert told() == [2, 2]
    world.client.refusal = KubeForbidden(403, "PolicyDenied", "a policy")
    await world.round(pass_s=10.0)
    assert told() == [3, 3]
    assert ("BrokerNotCreated", "KafkaLiteBroker c-broker-1 cannot be made: a policy") in world.events


async def test_nothing_is_decided_on_what_a_watch_has_brought_of_a_namespace_that_was_not_read(monkeypatch):
    world, made = World(a=objects("a"), b=objects("b", leader=-1)), []
    monkeypatch.setattr(world.controller._default_clusters, "look", made.append)
    world.client.forbidden.add("b")
    world.store.apply(TOPICS, "ADDED", objects("b", leader=-1)[TOPICS][0])
    for _ in range(3):
        await world.round()
    assert not made, "its cluster has not been read"
    for kind in (CLUSTERS, BROKERS):
        for each in objects("b")[kind]:
            world.store.apply(kind, "ADDED", each)
    await world.round()
    assert {namespace for _, namespace in world.client.called} == {"a"}


async def test_a_cluster_that_cannot_be_planned_for_leaves_the_others_controlled(monkeypatch):
    world, plan = World(a=objects("a", leader=-1), b=objects("b", leader=-1)), module.plan
    broken = [True]

    def fails(snapshot, now, rest):
        if broken[0] and snapshot.cluster.namespace == "a":
            raise AttributeError("nobody thought of it")
        return plan(snapshot, now, rest)

    monkeypatch.setattr(module, "plan", fails)
    for _ in range(4):
        await world.round()
    assert set(world.client.elected) == {("b", "t")}
    (said,) = [message for reason, message in world.events if reason == "NotControlled"]
    assert "nobody thought of it" in said
    broken[0] = False
    for _ in range(3):
        await world.round(pass_s=0.3)
    assert ("a", "t") in world.client.elected


async def test_the_leases_are_read_on_though_one_cluster_cannot_be_judged(monkeypatch):
    world = World(a=objects("a"), b=objects("b"))
    one = world.controller
    await world.round()
    await world.round()
    monkeypatch.setattr(module, "judge", lambda snapshot, _: snapshot.nobody_thought_of_it)
    one._work._electing.add(("topic", "t"))
    one._hurry.clear()
    one.on_leases()
    assert one._hurry.is_set(), "a round tells of it"


class Taken:
    """Names of one kind are taken: what has them is got, and made again in vain."""

    def __init__(self, world, kind):
        self.calls, served = 0, world.client.served["a"]

        async def create(what, *_, **__):
            self.calls += what is kind
            raise KubeConflict(409, "AlreadyExists", "the name is taken")

        async def get(what, _, name, **__):
            return next(each for each in served[what] if each["metadata"]["name"] == name)

        world.client.create, world.client.get = create, get


@pytest.mark.parametrize("why", ["state", "id"])
async def test_a_broker_that_is_not_understood_is_not_made_again_without_a_pause(why):
    served = objects("a")
    if why == "state":
        served[BROKERS][1]["status"]["registration"]["state"] = "Dancing"
    else:
        served[BROKERS][1]["spec"]["brokerId"] = 7
    world = World(a=served)
    taken = Taken(world, BROKERS)
    for _ in range(50):
        await world.round(pass_s=0.01)
    assert 1 <= taken.calls <= 5


async def test_topics_of_a_cluster_that_is_not_understood_are_not_told_that_there_is_none(monkeypatch):
    served, told = objects("a"), []
    cluster, topic = served[CLUSTERS][0], served[TOPICS][0]
    cluster["metadata"]["name"] = topic["spec"]["clusterRef"]["name"] = "kafkalite"
    cluster["spec"]["template"] = {"pod": {"spec": "x"}}
    world = World(a=served)
    taken = Taken(world, CLUSTERS)
    monkeypatch.setattr(world.controller._default_clusters, "look", told.append)
    for _ in range(5):
        await world.round()
    assert (told, taken.calls) == ([], 0), "nor is another one made"
    assert "NotUnderstood" in {reason for reason, _ in world.events}
    world.store.apply(CLUSTERS, "DELETED", cluster)
    await world.round()
    assert len(told) == 1


async def test_an_operator_that_begins_after_the_pod_template_was_spoilt_elects_and_touches_no_pod():
    served = objects("a", leader=-1)
    limits = {"limits": {"cpu": True}}
    served[CLUSTERS][0]["spec"]["template"] = {
        "pod": {"spec": {"containers": [{"name": "broker", "resources": limits}]}}
    }
    world = World(a=served)
    for _ in range(10):
        await world.round()
    assert ("a", "t") in world.client.elected
    assert not world.client.called & {("get", "a"), ("delete", "a"), ("merge_patch", "a")}, "nor the StatefulSet"
    (told,) = [message for reason, message in world.events if reason == "NotUnderstood"]
    assert "limits.cpu is not a quantity" in told
    assert told.endswith("as if it were paused; elections and fencing go on")


async def test_leaders_are_balanced_when_the_interval_is_over_though_the_brokers_were_read_before():
    world = World(a=objects("a", leader=1))
    for _ in range(10):
        await world.round()
    assert not world.client.elected
    for _ in range(5):
        await world.round(pass_s=290.0 if world.now < 1100 else 2.0)
    world.now += 10.0
    for _ in range(3):
        await world.round(pass_s=0.3)
    assert ("a", "t") in world.client.elected


async def test_who_is_not_heard_when_the_interval_is_over_is_given_its_leaders_as_soon_as_it_is():
    world = World(a=objects("a", leader=1))
    await world.round()
    await world.round()
    world.now += 290.0
    await world.round()
    world.silent, back = {0}, world.now + 1.0  # the Leases could not be read for a while, and broker 0 is not heard yet
    world.controller.leases.observing_since, world.controller.leases.unheard_until = (lambda _: back), lambda _: 1400.0
    for _ in range(4):
        await world.round(pass_s=4.0)
    assert not world.client.elected
    world.silent = set()
    for _ in range(3):
        await world.round(pass_s=0.3)
    assert ("a", "t") in world.client.elected


async def test_after_leaders_are_balanced_the_next_interval_begins():
    world = World(a=objects("a", leader=0))
    one = world.controller
    await world.round()
    await world.round()
    (cluster,) = world.store.clusters().items()
    world.now += 301.0
    assert one._balance_due(*cluster)
    for _ in range(3):
        await world.round(pass_s=0.3)
    assert not one._balance_due(*cluster)


@pytest.mark.parametrize(("forbidden", "served"), [({"b"}, True), ({"a", "b"}, False)])
async def test_kinds_are_served_when_one_namespace_says_so(forbidden, served):
    operator = object.__new__(Operator)
    operator._client, operator._reached = Client({"a": objects("a"), "b": objects("b")}), False
    operator._client.forbidden = forbidden
    operator.settings = SimpleNamespace(watch_namespaces=("b", "a"))
    waiting = asyncio.create_task(operator._kinds_are_served())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert (waiting.done(), operator._reached) == (served, served)
    waiting.cancel()


async def test_what_is_not_understood_is_told_once_and_again_when_it_is_something_else():
    world = World(a=objects("a"))
    await world.round()
    bad = objects("a")[TOPICS][0]

    async def spoilt(version, partitions):
        changed = {**bad, "spec": {**bad["spec"], "partitions": partitions}}
        changed["metadata"] = {**bad["metadata"], "resourceVersion": version, "generation": int(version)}
        world.store.apply(TOPICS, "MODIFIED", changed)
        for _ in range(3):
            await world.round()
        return [message for reason, message in world.events if reason == "NotUnderstood"]

    (told,) = await spoilt("12", "many")
    assert "partitions" in told
    assert "the last spec that was understood stays in force" in told
    assert len(await spoilt("13", "many")) == 1
    assert len(await spoilt("14", ["more"])) == 2


@pytest.mark.parametrize("why", ["paused", "removal"])
async def test_a_broker_is_told_its_rack_whatever_stands_still(monkeypatch, why):
    """It waits for it when it starts, and registers without one after a while."""
    served, labelled, volumes = objects("a"), [], []
    served[CLUSTERS][0]["spec"]["rack"] = {"topologyKey": "zone"}
    if why == "paused":
        served[CLUSTERS][0]["metadata"]["annotations"] = {"kafkalite.io/paused": "true"}
    else:
        served[CLUSTERS][0]["spec"]["replicas"] = 2
        served[TOPICS].clear()
    world = World(a=served)
    one = world.controller

    async def label(settings):
        labelled.append(settings.cluster.name)

    async def grow(_, ids):
        volumes.append(list(ids))

    monkeypatch.setattr(one._racks, "due", lambda _: True)
    monkeypatch.setattr(one._racks, "label", label)
    monkeypatch.setattr(one._volumes, "ensure", grow)
    for _ in range(3):
        await world.round()
    assert "c" in labelled
    assert volumes[:1] == ([] if why == "paused" else [[0, 1]])
