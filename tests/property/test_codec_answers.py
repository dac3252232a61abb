"""Whatever a client asks, in any version of any API: the broker's answer can be encoded, and nothing breaks."""

import random
from uuid import UUID

import pytest

from kafkalite_broker.cluster.reassigning import Judgement
from kafkalite_broker.groups.manager import GroupManager
from kafkalite_broker.server import dispatch
from kafkalite_broker.server.handlers import handlers
from kafkalite_core.model.errors import BrokerError
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.header import decode_response_header, encode_request_frame
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch
from kafkalite_core.protocol.schema import APIS
from kafkalite_core.protocol.schema.notation import Array, Struct
from tests.unit.protocol.messages import module_of
from tests.unit.replication.rig import on_uvloop, topic_ref, until
from tests.unit.server.admin_rig import AdminRig, Writer

REQUESTS = 800
JOIN_GROUP = 11
LONGEST = 32767
TOPIC, OFFSETS = topic_ref("orders"), topic_ref("__consumer_offsets")
EDGES = {
    "bool": [False, True],
    "int8": [0, 1, 2, 3, 4, 8, -1, 127, -128],
    "int16": [0, 1, 3, -1, 32767, -32768],
    "int32": [0, 1, 2, 3, -1, -2, 6000, 10000, 2**31 - 1, -(2**31)],
    "int64": [0, 1, -1, -2, -3, 1000, 2**63 - 1, -(2**63)],
    "uuid": [UUID(TOPIC.topic_id), UUID(int=0), UUID(int=7)],
    "bytes": [b"", b"x", b"\x00\x00\x00\x00\x00\x01\x00\x06orders"],
    "records": [b"", b"x" * 80, bytes(build_batch([SimpleRecord(1000, b"k", b"v")]))],
}
NAMES = [
    "orders",
    "g",
    "h",
    "__consumer_offsets",
    "new",
    "",
    "a b",
    "cleanup.policy",
    "retention.ms",
    "compact",
    "1000",
    "0",
]
LONG_NAMES = ["x" * LONGEST, "é" * (LONGEST // 2), "'" * LONGEST, "\x01" * LONGEST]
# Fields in which most random values only lead to the same refusal, or to a long wait.
LIKELY = {
    "timeout_ms": [0, 1, 5, -1],
    "max_wait_ms": [0, 1, 5, -1],
    "session_timeout_ms": [10_000, 10_000, 10_000, 0],
    "replica_id": [-1],
    "generation_id": [0, 1, 2, -1],
    "generation_id_or_member_epoch": [-1, -1, 0, 1, 2],
    "partition_index": [0, 1, 0, 1, 2, -1],
    "partition_indexes": [0, 1, 2],
    "partitions": [0, 1, 2],
    "index": [0, 1, 2],
    "name": ["orders", "orders", "orders", "__consumer_offsets", "retention.ms", "new"],
    "protocol_type": ["consumer", "consumer", "consumer", "connect", ""],
}


class Slot:
    """Where the answer of one request goes."""

    peer = "127.0.0.1:1"
    listener = "plain"
    on_abandoned = None
    attachment = None
    is_first = True
    replicates = False
    received_s = 0.0

    def __init__(self, spec, version):
        self.spec, self.version = spec, version
        self.closed = self.done = False
        self.answer = None

    def let_go(self, kept_bytes):
        assert kept_bytes >= 0

    def replication_noted(self):
        self.replicates = True

    def finish(self, buffers):
        self.done = True
        self.answer = b"".join(bytes(part) for part in buffers)

    def close(self, _reason):
        self.closed = True

    def decoded(self):
        frame = memoryview(self.answer)[4:]
        _, position = decode_response_header(frame, self.spec, self.version)
        return self.spec.decode_response(frame[position:], self.version)


class MoodyWriter(Writer):
    """Does what it is asked, or refuses."""

    def __init__(self, rig, dice):
        super().__init__(rig)
        self.dice = dice

    def _refuse(self):
        if self.dice.random() < 0.5:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "no")

    async def set_config(self, name, decide, *, deadline_s, validate_only=False):
        self._refuse()
        topic = self.rig.cache.topic(name)
        if topic is None:
            return {}
        changes = decide(topic)
        if not validate_only:
            config = {key: text for key, text in {**topic.config, **changes}.items() if text is not None}
            self.rig.see_topic(topic.ref, dict(topic.partitions), config=config)
        return changes

    async def set_cluster_config(self, decide, *, deadline_s, validate_only=False):
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "no")

    async def request_election(self, name, partitions, *, unclean, deadline_s):
        self._refuse()

    async def reassign(self, name, wish, *, brokers, deadline_s):
        self._refuse()
        return Judgement()

    async def ensure_offsets_topic(self, *, deadline_s):
        self._refuse()

    async def delete(self, name, *, uid=None, deadline_s):
        raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED, f"{name} is needed")


class ProducerIds:
    async def next(self):
        return 1


class Questions:
    """Random requests, made from the schema."""

    def __init__(self, dice):
        self.dice = dice
        self.member_ids = [""]

    def of(self, api, version):
        return self._struct(api, api.request, version)

    def _struct(self, api, struct, version):
        values = {field.name: self._value(api, field, version) for field in struct.fields if version in field.versions}
        return getattr(module_of(api), struct.name)(**values)

    def _value(self, api, field, version):
        if field.nullable is not None and version in field.nullable and self.dice.random() < 0.3:
            return None
        if field.name == "replica_state":
            return None  # no follower
        if isinstance(field.type, Array):
            element = field.type.element
            return [
                self._struct(api, element, version)
                if isinstance(element, Struct)
                else self._scalar(field.name, element)
                for _ in range(self.dice.choice([0, 1, 1, 1, 2, 3]))
            ]
        if isinstance(field.type, Struct):
            return self._struct(api, field.type, version)
        return self._scalar(field.name, field.type)

    def _scalar(self, name, type_):
        if name == "member_id":
            return self.dice.choice(self.member_ids)
        if name in LIKELY and self.dice.random() < 0.9:
            return self.dice.choice(LIKELY[name])
        if type_ in EDGES:
            return self.dice.choice(EDGES[type_])
        return self.dice.choice(LONG_NAMES if self.dice.random() < 0.1 else NAMES)


@pytest.fixture
def failures(monkeypatch):
    """What must not happen: a handler that raises, an answer that cannot be encoded, a coordinator that breaks."""
    found = []

    def failed(_table, api, version, slot, error):
        found.append((api, version, repr(error)))
        slot.close("")

    monkeypatch.setattr(dispatch.RequestTable, "failed", failed)
    monkeypatch.setattr(GroupManager, "_broken", lambda _manager, _led, error: found.append(repr(error)))
    return found


def test_every_answer_can_be_encoded(tmp_path, failures):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    answered = set()

    @on_uvloop
    async def run():
        rig = AdminRig(tmp_path)
        rig.topic_writer = MoodyWriter(rig, dice)
        rig.producer_ids = ProducerIds()
        questions, slots = Questions(dice), []
        async with rig:
            await rig.lead(TOPIC, partitions=2)
            await rig.lead(OFFSETS, partitions=2)
            table = dispatch.RequestTable(handlers(rig.services), rig.telemetry, failures.append)
            served = [api for api in APIS if api.key in handlers(rig.services)]
            for number in range(REQUESTS):
                api = dice.choice(served)
                version = dice.choice(api.versions.numbers())
                slot = Slot(API[api.key], version)
                body = questions.of(api, version)
                frame = b"".join(bytes(part) for part in encode_request_frame(slot.spec, version, number, "c", body))
                table.dispatch(bytearray(frame[4:]), slot)
                slots.append(slot)
                if number % 10 == 0:
                    await rig.flusher.drain()
                if api.key == JOIN_GROUP and slot.answer:
                    questions.member_ids.append(slot.decoded().member_id)
            rig.groups.close()  # refuses those that wait for other members
            await until(lambda: all(slot.closed or slot.answer is not None for slot in slots))
        answered.update(slot.spec.key for slot in slots if slot.answer and slot.decoded() is not None)
        assert failures == []
        assert answered == {api.key for api in served}

    run()
