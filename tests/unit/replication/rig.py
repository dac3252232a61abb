"""A broker's data plane without the control plane: real logs, flusher, replicas, sockets; metadata by hand."""

from __future__ import annotations

import asyncio
import functools
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import uvloop

from kafkalite_broker.cluster.topic_changes import TopicChanges
from kafkalite_broker.groups.manager import GroupManager
from kafkalite_broker.groups.offsets_topic import OffsetsTopic
from kafkalite_broker.log.disk import LocalDisk
from kafkalite_broker.log.flusher import GroupFlusher
from kafkalite_broker.log.manager import LogManager
from kafkalite_broker.replication.fetcher import FetchSettings
from kafkalite_broker.replication.partitions import PartitionManager
from kafkalite_broker.server.answer_budget import AnswerBudget
from kafkalite_broker.server.broker_facts import BrokerFacts
from kafkalite_broker.server.dispatch import RequestTable
from kafkalite_broker.server.handlers import handlers
from kafkalite_broker.server.listener import Server
from kafkalite_broker.server.services import Services
from kafkalite_broker.server.waiting import WaitingFetches
from kafkalite_broker.telemetry import BrokerTelemetry
from kafkalite_core.membership.metadata_cache import MetadataCache, Sighting
from kafkalite_core.model.cluster import Broker, BrokerState, Registration
from kafkalite_core.model.partition import IsrEntry, Partition, Topic, TopicRef
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.header import decode_response_header, encode_request_frame
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, parse_batch_header
from kafkalite_core.replica.events import CasOutcome, ProduceRequested, ProposalAnswered

DEADLINE_S = 90.0
MIB = 1 << 20


def on_uvloop(test):
    """Run a coroutine test on the loop that the broker runs on, with a deadline."""

    @functools.wraps(test)
    def run(*arguments, **named):
        async def limited():
            async with asyncio.timeout(DEADLINE_S):
                await test(*arguments, **named)

        uvloop.run(limited())

    return run


async def until(condition, timeout_s=60.0):
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def topic_ref(name="orders", uid=None, topic_id=None):
    uid = uid or f"first-{name}"
    return TopicRef("default", name, uid, topic_id or str(uuid.uuid5(uuid.NAMESPACE_DNS, name + uid)), name)


def entry(leader=0, *, epoch=0, partition_epoch=0, replicas=(0, 1), min_isr=1, broker_epochs=None):
    members = tuple(IsrEntry(number, (broker_epochs or {}).get(number, 1)) for number in replicas)
    return Partition(
        leader=leader, leader_epoch=epoch, partition_epoch=partition_epoch, min_isr=min_isr, replicas=replicas,
        isr=members,
    )  # fmt: skip


def batch(*values, **fields):
    return bytes(build_batch([SimpleRecord(1000, b"k", value) for value in values or (b"v",)], **fields))


class FakeWriter:
    """Compare-and-swaps that the test answers."""

    def __init__(self):
        self.proposals = []

    def propose(self, ref, number, proposal, answer):
        self.proposals.append((ref, number, proposal, answer))

    def apply(self):
        _, _, proposal, answer = self.proposals.pop()
        answer(
            ProposalAnswered(proposal_id=proposal.proposal_id, outcome=CasOutcome.APPLIED, observed=proposal.proposed)
        )


class Rig:
    """One broker. Use as an async context manager."""

    def __init__(self, root, broker_id=0, *, epoch=1):
        self.root = root / f"broker-{broker_id}"
        self.id = broker_id
        self.epoch = epoch
        self.config = {}
        self.cache = MetadataCache()
        self.telemetry = BrokerTelemetry()
        self.writer = FakeWriter()
        self.fatal = []
        self.full = []
        self.tasks = set()
        self.version = 0
        self.producer_ids = None
        self.topic_writer = None
        self.cluster = None
        self.changes = TopicChanges()
        self.port = 0

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(2)
        self.logs = LogManager(
            LocalDisk(self.root), cluster_id="c", broker_id=self.id, wall_ms=lambda: 1_000_000, reserve_bytes=4096
        )
        self.logs.open()
        self.flusher = GroupFlusher(
            loop,
            self.pool,
            on_flushed=lambda log: self.partitions.log_flushed(log),
            on_fatal=self.fatal.append,
            workers=2,
        )
        self.partitions = PartitionManager(
            broker_id=self.id,
            broker_epoch=lambda: self.epoch,
            broker_config=self.config,
            cache=self.cache,
            logs=self.logs,
            flusher=self.flusher,
            writer=self.writer,
            telemetry=self.telemetry,
            fetch_settings=FetchSettings(wait_max_ms=500, max_bytes=10 * MIB, partition_max_bytes=MIB),
            io_pool=self.pool,
            on_disk_full=lambda: self.full.append(True),
            on_fatal=self.fatal.append,
        )
        self.groups = GroupManager(
            OffsetsTopic(self.cache, self.topic_writer, self.background),
            broker_config=self.config,
            io_pool=self.pool,
            telemetry=self.telemetry.groups,
            on_fatal=self.fatal.append,
        )
        self.partitions.on_role_changed = self.groups.role_changed
        self.telemetry.drivers = self.partitions.drivers
        self.answers = AnswerBudget(64 * MIB)
        self.services = Services(
            broker_id=self.id,
            cluster_id="cluster",
            facts=BrokerFacts(
                broker_id=self.id,
                listeners=("plain://127.0.0.1:9092",),
                advertised_listeners=("plain://localhost:9092",),
                inter_broker="plain",
                data_directory=self.root,
                config=self.config,
            ),
            cache=self.cache,
            partitions=self.partitions,
            groups=self.groups,
            waiting=WaitingFetches(),
            answers=self.answers,
            producer_ids=self.producer_ids,
            telemetry=self.telemetry,
            io_pool=self.pool,
            topic_writer=self.topic_writer,
            topic_changes=self.changes,
            cluster=lambda: self.cluster,
            background=self.background,
        )
        self.server = Server(
            RequestTable(handlers(self.services), self.telemetry, self.fatal.append),
            frame_bytes_max=MIB,
            in_flight_bytes_max=64 * MIB,
            connections_max=50,
            idle_s=600,
        )
        self.port = await self.server.listen("plain", "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        await self.partitions.stop_fetching()
        await self.partitions.aside.stop()
        await self.server.stop()
        self.groups.close()
        await asyncio.sleep(0)
        for task in list(self.tasks):
            task.cancel()
        await self.flusher.drain()
        self.pool.shutdown()
        self.logs.abandon()

    def background(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # ------------------------------------------------------------ metadata

    def see_broker(self, broker_id, port, *, epoch=1, rack=""):
        self.version += 1
        broker = Broker(
            id=broker_id,
            object_name=f"b-{broker_id}",
            uid=f"b-{broker_id}",
            registration=Registration(
                broker_epoch=epoch, incarnation=f"i{epoch}", directory_id="d", trusted_since=1, clean_since=1,
                host="127.0.0.1", port=port, rack=rack, state=BrokerState.RUNNING,
            ),
        )  # fmt: skip
        self.cache.see_broker(Sighting(value=broker, resource_version=str(self.version), created=""))
        self.partitions.brokers_changed()
        self.changes.look_again()

    def see_topic(self, ref, partitions, **changes):
        self.version += 1
        topic = Topic(
            ref=ref, generation=1, resource_version=str(self.version), controller_epoch=0, partitions=partitions
        )
        sighting = Sighting(value=replace(topic, **changes), resource_version=str(self.version), created="")
        self.partitions.partitions_changed(self.cache.see_topic(sighting).partitions)
        self.changes.look_again()

    def delete_topic(self, ref):
        self.partitions.partitions_changed(self.cache.delete_topic(ref.uid).partitions)
        self.changes.look_again()

    async def all_set_aside(self):
        """Logs that no replica uses any more have become strays."""
        assert await self.partitions.aside.finished(60)

    def driver(self, name="orders", number=0):
        return self.partitions.hosted(name, number)

    async def lead(self, ref=None, *, partitions=1, **changes):
        """This broker leads every partition of a topic alone."""
        self.see_broker(self.id, self.port)
        ref = ref or topic_ref()
        self.see_topic(ref, {n: entry(self.id, replicas=(self.id,)) for n in range(partitions)}, **changes)
        await self.flusher.drain()
        return ref

    def client(self):
        return Client(self.port)


class Client:
    """A client connection that speaks by the project's codec."""

    def __init__(self, port):
        self.port = port
        self.correlation_id = 0

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    def send(self, key, version, request):
        self.correlation_id += 1
        frame = encode_request_frame(API[key], version, self.correlation_id, "test", request)
        self.writer.write(b"".join(bytes(part) for part in frame))
        return self.correlation_id

    async def receive(self, key, version):
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = memoryview(await self.reader.readexactly(size))
        correlation_id, offset = decode_response_header(frame, API[key], version)
        return correlation_id, API[key].decode_response(frame[offset:], version)

    async def ask(self, key, version, request):
        sent = self.send(key, version, request)
        correlation_id, response = await self.receive(key, version)
        assert correlation_id == sent
        return response

    async def closed(self):
        """Wait until the broker closes the connection."""
        try:
            return await self.reader.read() is not None
        except ConnectionError:
            return True


def append(driver, acks=1):
    """Give a leader one batch; what it answers is in `answers` of the token that is returned."""

    class Token:
        answers = []

        def produce_answered(self, answer):
            self.answers.append(answer)

    data = bytearray(batch())
    token = Token()
    driver.step(
        ProduceRequested(
            token=token, acks=acks, batch=data, header=parse_batch_header(data), received_ms=0.0,
            deadline_ms=1e18, wall_ms=1,
        )
    )  # fmt: skip
    return token
