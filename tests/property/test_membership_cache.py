"""S12, threats 3 and 5: whatever the order of watch events, however often they come, the cache ends at the truth."""

from dataclasses import dataclass, field, replace

from hypothesis import given, note
from hypothesis import strategies as st

from kafkalite_core.membership.metadata_cache import MetadataCache, Sighting
from kafkalite_core.model.cluster import Broker, BrokerState, Registration
from kafkalite_core.model.partition import IsrEntry, Partition, Topic, TopicRef

OBJECT_NAMES = ("a", "b", "c")
BROKER_IDS = (0, 1)
STATES = (BrokerState.CATCHING_UP, BrokerState.RUNNING, BrokerState.SHUTTING_DOWN)


@dataclass
class Server:
    """A naive API server: current objects, and every event that it ever sent."""

    version: int = 0
    topics: dict = field(default_factory=dict)
    brokers: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    epoch: int = 0

    def put_topic(self, topic):
        self.version += 1
        topic = replace(topic, resource_version=str(self.version))
        self.topics[topic.ref.object_name] = topic
        self.events.append((self.version, "topic", topic))

    def put_broker(self, broker):
        self.version += 1
        self.brokers[broker.id] = (broker, self.version)
        self.events.append((self.version, "broker", broker))

    def delete_topic(self, name):
        self.version += 1
        self.events.append((self.version, "topic gone", self.topics.pop(name).ref.uid))

    def delete_broker(self, broker_id):
        self.version += 1
        self.events.append((self.version, "broker gone", self.brokers.pop(broker_id)[0].uid))

    def act(self, action, choice, number):
        name, broker_id = OBJECT_NAMES[choice % 3], choice % 2
        topic, (broker, _) = self.topics.get(name), self.brokers.get(broker_id, (None, 0))
        uid = f"uid-{self.version + 1}"
        if action == "create topic" and topic is None:
            # Objects b and c claim one topic name: a conflict.
            ref = TopicRef("default", name, uid, "", "a" if name == "a" else "shared")
            self.put_topic(Topic(ref=ref, generation=1, resource_version="", controller_epoch=0, partitions={}))
        elif action == "place topic" and topic is not None and not topic.partitions:
            ref = replace(topic.ref, topic_id=f"id-{topic.ref.uid}")
            self.put_topic(replace(topic, ref=ref, partitions={n: entry(0) for n in range(number % 3 + 1)}))
        elif action == "change partition" and topic is not None and topic.partitions:
            chosen = sorted(topic.partitions)[number % len(topic.partitions)]
            changed = entry(topic.partitions[chosen].partition_epoch + 1)
            self.put_topic(replace(topic, partitions={**topic.partitions, chosen: changed}))
        elif action == "configure topic" and topic is not None:
            self.put_topic(replace(topic, generation=topic.generation + 1, config={"retention.ms": str(number)}))
        elif action == "delete topic" and topic is not None:
            self.delete_topic(name)
        elif action == "create broker" and broker is None:
            self.put_broker(Broker(id=broker_id, object_name=f"broker-{broker_id}", uid=uid))
        elif action == "register" and broker is not None:
            self.epoch += 1
            self.put_broker(replace(broker, registration=registration(self.epoch)))
        elif action == "advance" and broker is not None and broker.registration is not None:
            state = STATES[min(STATES.index(broker.registration.state) + 1, 3)]
            self.put_broker(replace(broker, registration=replace(broker.registration, state=state)))
        elif action == "fence" and broker is not None and broker.registration is not None:
            self.put_broker(replace(broker, fenced_epoch=broker.registration.broker_epoch))
        elif action == "cordon" and broker is not None:
            self.put_broker(replace(broker, cordoned=not broker.cordoned))
        elif action == "delete broker" and broker is not None:
            self.delete_broker(broker_id)


ACTIONS = (
    *("create topic", "place topic", "change partition", "configure topic", "delete topic"),
    *("create broker", "register", "advance", "fence", "cordon", "delete broker"),
)
HISTORIES = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5), st.integers(0, 9)), max_size=40)
REBIRTHS = st.lists(
    st.tuples(
        st.sampled_from(["create topic", "delete topic", "create broker", "delete broker"]), st.just(0), st.just(0)
    ),
    max_size=8,
)


def entry(epoch):
    return Partition(
        leader=0, leader_epoch=0, partition_epoch=epoch, min_isr=1, replicas=(0,), isr=(IsrEntry(0, epoch),)
    )


def registration(epoch):
    return Registration(
        broker_epoch=epoch, incarnation=f"i{epoch}", directory_id="d", trusted_since=0, clean_since=0, host="h", port=1
    )


def topic_sighting(topic):
    return Sighting(value=topic, resource_version=topic.resource_version, created=topic.ref.uid.zfill(8))


def deliver(cache, event):
    version, kind, value = event
    match kind:
        case "topic":
            return cache.see_topic(topic_sighting(value))
        case "broker":
            return cache.see_broker(Sighting(value=value, resource_version=str(version)))
        case "topic gone":
            return cache.delete_topic(value)
        case "broker gone":
            return cache.delete_broker(value)


def deliver_lists(cache, server):
    topics = cache.list_topics([topic_sighting(topic) for topic in server.topics.values()])
    brokers = cache.list_brokers(
        [Sighting(value=broker, resource_version=str(version)) for broker, version in server.brokers.values()]
    )
    return topics, brokers


def view(cache):
    return cache.topics(), dict(cache.brokers)


def truth(server):
    """By the rules, without the cache: of the claims of a name the one with status wins, then the oldest."""
    visible = {}
    for topic in sorted(server.topics.values(), key=lambda t: (not t.partitions, t.ref.uid.zfill(8))):
        visible.setdefault(topic.ref.name, topic)
    return [visible[name] for name in sorted(visible)], {b: broker for b, (broker, _) in server.brokers.items()}


@given(history=st.one_of(HISTORIES, REBIRTHS), data=st.data())
def test_any_order_and_any_number_of_repeats(history, data):
    server = Server()
    for step in history:
        server.act(*step)
    repeats = data.draw(st.lists(st.sampled_from(server.events), max_size=20)) if server.events else []
    cache = MetadataCache()
    for event in data.draw(st.permutations(server.events + repeats)):
        deliver(cache, event)
    assert view(cache) == truth(server)
    for event in repeats:
        assert not deliver(cache, event), "a repeated event changes nothing"
    assert view(cache) == truth(server)


@given(before=HISTORIES, unseen=HISTORIES, after=HISTORIES, data=st.data())
def test_a_relist_makes_up_for_everything_that_was_missed(before, unseen, after, data):
    server, cache = Server(), MetadataCache()
    for step in before:
        server.act(*step)
    for event in server.events:
        deliver(cache, event)
    for step in unseen:
        server.act(*step)
    deliver_lists(cache, server)
    assert view(cache) == truth(server)
    seen = len(server.events)
    for step in after:
        server.act(*step)
    known = {topic.ref.uid for topic in server.topics.values()} | {broker.uid for broker, _ in server.brokers.values()}
    old = [event for event in server.events[:seen] if uid_of(event) in known]
    repeats = data.draw(st.lists(st.sampled_from(old), max_size=10)) if old else []
    for event in data.draw(st.permutations(server.events[seen:] + repeats)):
        deliver(cache, event)
    assert view(cache) == truth(server)


def uid_of(event):
    _, kind, value = event
    return value if kind.endswith("gone") else value.ref.uid if kind == "topic" else value.uid


@given(history=HISTORIES)
def test_every_change_is_reported(history):
    server, cache = Server(), MetadataCache()
    for step in history:
        known = len(server.events)
        server.act(*step)
        for event in server.events[known:]:
            before, brokers_before = {t.ref: t for t in cache.topics()}, cache.brokers
            change = deliver(cache, event)
            after = {t.ref: t for t in cache.topics()}
            note(f"{event} -> {change}")
            for ref in before.keys() | after.keys():
                old, new = before.get(ref), after.get(ref)
                if old is None or new is None or old.config != new.config:
                    numbers = {n for t in (old, new) if t is not None for n in t.partitions}
                else:
                    numbers = {
                        n for n in old.partitions.keys() | new.partitions.keys()
                        if old.partitions.get(n) != new.partitions.get(n)
                    }  # fmt: skip
                assert {number for changed, number in change.partitions if changed == ref} == numbers
            assert change.brokers == {
                b for b in BROKER_IDS if brokers_before.get(b) != cache.brokers.get(b)
            }  # fmt: skip
            for topic in cache.topics():
                assert cache.topic(topic.ref.name) is topic
                assert cache.topic_of(topic.ref) is topic
                if topic.ref.topic_id:
                    assert cache.topic_by_id(topic.ref.topic_id) is topic
                for number, state in topic.partitions.items():
                    assert cache.partition(topic.ref, number) == state


@given(history=HISTORIES, data=st.data())
def test_epochs_of_one_uid_never_go_back(history, data):
    server, cache = Server(), MetadataCache()
    for step in history:
        server.act(*step)
    highest = {}
    for event in data.draw(st.permutations(server.events)):
        deliver(cache, event)
        for topic in cache.topics():
            for number, state in topic.partitions.items():
                key = (topic.ref.uid, number)
                assert state.partition_epoch >= highest.get(key, -1)
                highest[key] = state.partition_epoch
        for broker in cache.brokers.values():
            key = ("broker", broker.uid)
            assert (broker.epoch, broker.fenced_epoch) >= highest.get(key, (-1, -1))
            highest[key] = (broker.epoch, broker.fenced_epoch)
