"""A broker whose topic writer is played by the test."""

import asyncio
from dataclasses import replace

from kafkalite_broker.cluster.topic_requests import check_growth
from kafkalite_core.model.cluster import Cluster
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.model.partition import Topic
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.replication.rig import Rig, entry, topic_ref


class Writer:
    """Plays the API server, the operator and the watch: what is written shows in the cache at once, or never."""

    def __init__(self, rig):
        self.rig = rig
        self.calls = []
        self.error = None
        self.places = True
        self.reason = ""
        self.stale = set()

    async def check_free(self, name, *, deadline_s):
        if self.rig.cache.topic(name) is not None and name not in self.stale:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")

    async def create(self, name, *, partitions, replicas, config, deadline_s, assignment=None, validate_only=False):
        self.calls.append(("create", name, partitions, replicas, config, assignment, validate_only))
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        ref = topic_ref(name)
        if not validate_only:
            entries = {n: entry(0, replicas=(0,)) for n in range(partitions)} if self.places else {}
            unplaced = ref if self.places else replace(ref, topic_id="")
            asyncio.get_running_loop().call_later(0.01, lambda: self.rig.see_topic(unplaced, entries, config=config))
        return Topic(
            ref=replace(ref, topic_id=""), generation=1, resource_version="1", controller_epoch=0, partitions={}
        )

    async def delete(self, name, *, uid=None, deadline_s):
        self.calls.append(("delete", name, uid))
        topic = self.rig.cache.topic(name)
        if self.error or topic is None:
            raise self.error or BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {name}")
        if self.places:
            asyncio.get_running_loop().call_later(0.01, self.rig.delete_topic, topic.ref)
        return topic.ref

    async def grow(self, name, partitions, rows=None, *, deadline_s, validate_only=False):
        topic = self.rig.cache.topic(name)
        if topic is not None:
            check_growth(topic, len(topic.partitions), partitions, rows)
        self.calls.append(("grow", name, partitions, rows, validate_only))
        if self.error:
            raise self.error
        if topic is not None and self.places and not validate_only:
            entries = {n: entry(0, replicas=(0,)) for n in range(partitions)}
            asyncio.get_running_loop().call_later(0.01, lambda: self.rig.see_topic(topic.ref, entries))

    async def withdraw(self, ref):
        self.calls.append(("withdraw", ref.uid))

    async def obstacle(self, _name, *, deadline_s):
        return self.reason


class AdminRig(Rig):
    def __init__(self, root, **config):
        super().__init__(root)
        self.topic_writer = Writer(self)
        self.cluster = Cluster(namespace="default", name="kafkalite", uid="c", cluster_id="x", config=config)

    async def __aenter__(self):
        await super().__aenter__()
        for broker_id in range(3):
            self.see_broker(broker_id, self.port)
        return self
