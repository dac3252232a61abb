"""What stands for an API server, a cluster's groups, and librdkafka's clients."""

import contextlib
import copy

from confluent_kafka import KafkaError, TopicPartition

from kafkalite_cli.groups.model import Group, Log, Member, Partition
from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS, KubeConflict, KubeInvalid, KubeNotFound
from kafkalite_runtime.kube.client import KubeList

REFUSED = "424242"
"""A value of a configuration key to which the server says no."""


def topic_object(name, *, partitions=1, generation=1, namespace="default", config=None, topic_name=None, **spec):
    entry = {"leader": 0, "leaderEpoch": 3, "partitionEpoch": 5, "minIsr": 1, "replicas": [0, 1, 2], "isr": [0, 1, 2]}
    entry["isrBrokerEpochs"] = [10, 11, 12]
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": generation},
        "spec": {"partitions": partitions, "replicas": 3, **spec},
        "status": {
            "topicId": "id",
            "inSync": f"{3 * partitions}/{3 * partitions}",
            "partitions": {str(number): copy.deepcopy(entry) for number in range(partitions)},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Serving", "observedGeneration": generation},
                {"type": "Healthy", "status": "True", "reason": "InSync", "observedGeneration": generation},
            ],
        },
    }
    if config:
        body["spec"]["config"] = dict(config)
    if topic_name:
        body["spec"]["topicName"] = topic_name
    return body


def cluster_object(name="kafkalite", *, namespace="default", replicas=3, config=None, bootstrap="b:1"):
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "config": config or {}},
        "status": {"bootstrap": bootstrap},
    }


class Api:
    """An API server in which the operator does its work at once, unless `lazy` says how many reads it takes."""

    def __init__(self, *topics, clusters=(), brokers=(), lazy=0):
        self.objects = {each["metadata"]["name"]: each for each in topics}
        self.clusters, self.brokers = list(clusters), list(brokers)
        self.lazy, self.patches, self.calls = lazy, [], []
        self.finalized_reads = 0
        self.config = type("Config", (), {"namespace": "default"})

    async def list(self, kind, namespace=None, **_more):
        items = {TOPICS: list(self.objects.values()), CLUSTERS: self.clusters, BROKERS: self.brokers}[kind]
        return KubeList([each for each in items if namespace in {None, each["metadata"].get("namespace")}], "1")

    async def get(self, _kind, _namespace, name, **_more):
        if name not in self.objects:
            raise KubeNotFound(404, "NotFound", name)
        found = self.objects[name]
        if found["metadata"].get("deletionTimestamp"):
            self.finalized_reads -= 1
            if self.finalized_reads < 0:
                del self.objects[name]
                raise KubeNotFound(404, "NotFound", name)
        elif self.lazy:
            self.lazy -= 1
        else:
            self._operate(found)
        return found

    def _operate(self, topic):
        served = topic_object("x", partitions=topic["spec"]["partitions"], generation=topic["metadata"]["generation"])
        topic.setdefault("status", served["status"])
        if not topic["status"].get("stuck"):
            topic["status"] = served["status"]

    async def create(self, _kind, namespace, body, *, strict):
        assert strict
        name = body["metadata"]["name"]
        if name in self.objects:
            raise KubeConflict(409, "AlreadyExists", name)
        body = copy.deepcopy(body)
        body["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}", "generation": 1}
        self.objects[name] = body
        return copy.deepcopy(body)

    async def merge_patch(self, _kind, _namespace, name, patch, *, strict):
        assert strict
        self.patches.append(patch)
        found = copy.deepcopy(self.objects[name])
        spec = patch["spec"]
        if "partitions" in spec:
            found["spec"]["partitions"] = spec["partitions"]
        for key, value in spec.get("config", {}).items():
            if value == REFUSED:
                raise KubeInvalid(422, "Invalid", f'PATCH /x: KafkaLiteTopic "{name}" is invalid: spec.config: no')
            settings = found["spec"].setdefault("config", {})
            settings.pop(key, None) if value is None else settings.update({key: value})
        found["metadata"]["generation"] += 1
        self.objects[name] = found
        return copy.deepcopy(found)

    async def delete(self, _kind, _namespace, name, *, uid=None, **_more):
        if name not in self.objects:
            raise KubeNotFound(404, "NotFound", name)
        if uid != self.objects[name]["metadata"]["uid"]:
            raise KubeConflict(409, "Conflict", name)
        self.calls.append(("delete", name))
        if self.finalized_reads:
            self.objects[name]["metadata"]["deletionTimestamp"] = "now"
        else:
            del self.objects[name]

    async def close(self):
        self.calls.append(("close",))


class Cluster:
    """A `GroupAdmin` over dictionaries."""

    def __init__(self):
        self.groups = {}
        self.offsets = {}
        self.logs_ = {}
        self.times = {}
        self.refuse = {}
        self.down = []

    def add(self, group_id, state="Empty", *, members=(), **offsets):
        self.groups[group_id] = Group(
            group_id=group_id, state=state, assignor="range" if members else "", coordinator=(1, "h:1"), members=members
        )
        self.offsets[group_id] = {
            Partition(name.rsplit("_", 1)[0], int(name.rsplit("_", 1)[1])): offset for name, offset in offsets.items()
        }

    def log(self, topic, number, start, end):
        self.logs_[Partition(topic, number)] = Log(start, end)

    def list_groups(self):
        return sorted(self.groups), self.down

    def describe(self, group_ids):
        return [self.groups.get(each, Group(group_id=each, state="Dead")) for each in group_ids]

    def committed(self, group_id):
        return dict(self.offsets.get(group_id, {}))

    def partitions_of(self, topic):
        return sorted(each.number for each in self.logs_ if each.topic == topic)

    def logs(self, partitions):
        return {each: self.logs_[each] for each in partitions if each in self.logs_}

    def offsets_at(self, partitions, timestamp_ms):
        self.asked_for_ms = timestamp_ms
        return {each: self.times.get(each, self.logs_[each].end) for each in partitions}

    def commit(self, group_id, offsets):
        kept = {each: offset for each, offset in offsets.items() if each not in self.refuse}
        self.offsets.setdefault(group_id, {}).update(kept)
        return {each: why for each, why in self.refuse.items() if each in offsets}

    def delete_groups(self, group_ids):
        refused = {each: "The group id does not exist" for each in group_ids if each not in self.groups}
        for each in group_ids:
            self.groups.pop(each, None)
        return refused

    def delete_offsets(self, group_id, partitions):
        for each in partitions:
            if each not in self.refuse:
                del self.offsets[group_id][each]
        return {each: self.refuse[each] for each in partitions if each in self.refuse}


def member(name, *partitions):
    return Member(
        member_id=f"{name}-1",
        client_id=name,
        host="/127.0.0.1",
        partitions=tuple(Partition(*each) for each in partitions),
    )


class Metadata:
    """The answer to list_topics."""

    def __init__(self, topics):
        entry = type("Entry", (), {})
        self.topics = {}
        for name, found in topics.items():
            self.topics[name] = entry()
            self.topics[name].error = found if isinstance(found, KafkaError) else None
            self.topics[name].partitions = {} if isinstance(found, KafkaError) else dict.fromkeys(range(found))


class Message:
    def __init__(self, topic, partition, offset, value, key=None, *, headers=None, timestamp=(1, 1000), error=None):
        self._fields = locals()

    def __getattr__(self, name):
        return lambda: self._fields[name]


def end_of(topic, partition, offset):
    return Message(topic, partition, offset, None, error=KafkaError(KafkaError._PARTITION_EOF))


class Producer:
    """Acknowledges at once; `fails` maps values to errors, `full` is how often the queue is full first."""

    def __init__(self, config, topics, *, fails=None, full=0, never=()):
        self.config, self._topics = config, topics
        self.fails, self.full, self.never = fails or {}, full, set(never)
        self.records, self.reports, self.waiting = [], [], []

    def list_topics(self, _topic=None, timeout=-1):
        return Metadata(self._topics)

    def produce(self, topic, value=None, key=None, *, on_delivery, **more):
        if self.full:
            self.full -= 1
            raise BufferError
        self.records.append((topic, key, value, more))
        error = self.fails.get(value)
        (self.waiting if value in self.never else self.reports).append((on_delivery, error))

    def poll(self, _timeout=-1):
        reports, self.reports = self.reports, []
        for report, error in reports:
            report(KafkaError(error) if error is not None else None, None)
        return len(reports)

    def purge(self):
        self.reports += [(report, KafkaError._PURGE_QUEUE) for report, _ in self.waiting]
        self.waiting = []

    def __len__(self):
        return len(self.reports) + len(self.waiting)


class Consumer:
    """Gives out the batches of messages that it was made with."""

    def __init__(self, config, topics, batches=(), *, start=0, ends=None, times=None):
        self.config, self._topics, self._batches = config, topics, list(batches)
        self._start, self._ends, self._times = start, ends or {}, times or {}
        self.assigned, self.subscribed, self.stored, self.closed = [], None, {}, False
        self.at_close = lambda: None

    def list_topics(self, _topic=None, timeout=-1):
        return Metadata(self._topics)

    def assign(self, partitions):
        self.assigned = partitions

    def subscribe(self, topics, on_revoke):
        self.subscribed, self.revoke = topics, on_revoke
        self.assigned = [TopicPartition(name, number) for name in topics for number in range(self._topics[name])]

    def assignment(self):
        return self.assigned

    def consume(self, _count, _timeout):
        batch = self._batches.pop(0) if self._batches else []
        return batch(self) if callable(batch) else batch

    def store_offsets(self, offsets):
        self.stored |= {(each.topic, each.partition): each.offset for each in offsets}

    def committed(self, partitions, timeout=-1):
        return partitions

    def position(self, partitions):
        return [TopicPartition(each.topic, each.partition) for each in partitions]

    def get_watermark_offsets(self, partition, timeout=-1, cached=False):
        return self._start, self._ends.get(partition.partition, 0)

    def offsets_for_times(self, partitions, timeout=-1):
        return [TopicPartition(each.topic, each.partition, self._times.get(each.partition, -1)) for each in partitions]

    def close(self):
        self.closed = True
        self.at_close()


@contextlib.contextmanager
def opened(thing):
    yield thing
