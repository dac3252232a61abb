"""The handler of Produce over a real socket on uvloop, with real replicas and logs."""

import threading

import pytest

from kafkalite_broker.clock import now_ms
from kafkalite_broker.compression import compress
from kafkalite_broker.replication import driver as driver_module
from kafkalite_broker.server.handlers import produce as produce_module
from kafkalite_broker.server.handlers import record_checks
from kafkalite_broker.server.handlers.record_checks import BYTES_AT_ONCE, RECORDS_AT_ONCE
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.record_batch import SimpleRecord, build_batch, compute_crc
from kafkalite_core.replica import refused as refused_module
from kafkalite_core.replica.refused import AWAKE_MS, GAPS_MS
from tests.unit.replication.rig import Rig, batch, entry, on_uvloop, topic_ref, until
from tests.unit.server.client_requests import PRODUCE, produce, produce_request


@on_uvloop
async def test_produce_answers_each_partition_for_itself(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=3)
        bad = bytearray(batch())
        bad[-1] ^= 1
        answers = await produce(client, (0, batch()), (1, bytes(bad)), (7, batch()), (2, None))
        assert [(part.index, part.error_code, part.base_offset) for part in answers] == [
            (0, 0, 0),
            (1, ErrorCode.CORRUPT_MESSAGE, -1),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (2, ErrorCode.INVALID_RECORD, -1),
        ]
        counters = rig.telemetry.topic("orders")
        assert (counters.messages_in, counters.failed_produce_requests) == (1, 3)


@on_uvloop
async def test_records_that_are_sent_again_are_counted_once(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        records = batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0)
        answers = await produce(client, (0, records), (0, bytes(bytearray(records))))
        assert [(part.error_code, part.base_offset) for part in answers] == [(0, 0), (0, 0)]
        counters = rig.telemetry.topic("orders")
        assert (counters.messages_in, counters.bytes_in, counters.produce_requests) == (2, len(records), 2)


@on_uvloop
async def test_a_partition_that_comes_twice_in_one_produce_is_refused(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=2)
        response = await client.ask(PRODUCE, 9, produce_request((0, batch()), (1, batch()), (0, batch())))
        answers = response.responses[0].partition_responses
        assert [part.error_code for part in answers] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
        assert "orders-0 is named more than once" in answers[0].error_message
        assert (rig.driver().log.end_offset, rig.driver(number=1).log.end_offset) == (0, 1)


@pytest.mark.parametrize(
    ("records", "version", "code", "text"),
    [
        pytest.param(batch(b"x" * 2000), 9, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", id="too large"),
        pytest.param(
            batch(codec=4, compress=lambda _, data: data), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None, id="zstd"
        ),
        pytest.param(
            batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            9, ErrorCode.INVALID_TXN_STATE, "transactions", id="transactional",
        ),
        pytest.param(batch() + batch(), 9, ErrorCode.INVALID_RECORD, "more than one", id="two batches"),
        pytest.param(b"", 9, ErrorCode.INVALID_RECORD, "no records", id="no bytes"),
    ],
)  # fmt: skip
def test_produce_refuses_with_a_code_and_a_sentence(tmp_path, records, version, code, text):
    @on_uvloop
    async def run():
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead(config={"max.message.bytes": "1000"})
            (part,) = await produce(client, (0, records), version=version)
            assert part.error_code == code
            assert text is None or text in part.error_message
            assert rig.driver().log.end_offset == 0

    run()


@on_uvloop
async def test_a_compacted_topic_wants_keys(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(config={"cleanup.policy": "compact"})
        keyless = bytes(build_batch([SimpleRecord(1, None, b"v")]))
        refused, taken = await produce(client, (0, keyless), (0, batch()))
        assert (refused.error_code, taken.error_code) == (ErrorCode.INVALID_RECORD, 0)


ZSTD = 4
SQUEEZED = bytes(build_batch([SimpleRecord(1, b"k", bytes(BYTES_AT_ONCE))] * 3, codec=ZSTD, compress=compress))
MANY = bytes(build_batch([SimpleRecord(1, b"k", b"v")] * (RECORDS_AT_ONCE + 1)))


class SlowChecks:
    """Checks of records wait for the test."""

    def __init__(self, monkeypatch):
        self.threads = []
        self.may_go_on = threading.Event()
        check = produce_module.check_records

        def checking(*arguments):
            self.threads.append(threading.current_thread())
            if self.threads[-1] is not threading.main_thread():
                assert self.may_go_on.wait(60)
            check(*arguments)

        monkeypatch.setattr(produce_module, "check_records", checking)


@pytest.mark.parametrize("first", [SQUEEZED, MANY], ids=["compressed", "many"])
def test_many_records_are_checked_on_a_thread_and_what_comes_behind_waits(tmp_path, monkeypatch, first):
    @on_uvloop
    async def run():
        checks = SlowChecks(monkeypatch)
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead(partitions=2, config={"cleanup.policy": "compact"})
            keyless = bytes(build_batch([SimpleRecord(1, None, b"v")], codec=ZSTD, compress=compress))
            client.send(PRODUCE, 9, produce_request((0, first)))
            client.send(PRODUCE, 9, produce_request((0, batch())))
            client.send(PRODUCE, 9, produce_request((0, keyless)))
            client.send(PRODUCE, 9, produce_request((1, batch())))
            client.send(PRODUCE, 9, produce_request((0, batch())))
            await until(lambda: rig.driver(number=1).log.end_offset == 1)
            assert rig.driver().log.end_offset == 0
            assert first is SQUEEZED or rig.server.budget.used_bytes >= len(first)
            checks.may_go_on.set()
            answers = [(await client.receive(PRODUCE, 9))[1] for _ in range(5)]
            parts = [answer.responses[0].partition_responses[0] for answer in answers]
            count = 3 if first is SQUEEZED else RECORDS_AT_ONCE + 1
            assert [(part.error_code, part.base_offset) for part in parts] == [
                (0, 0), (0, count), (ErrorCode.INVALID_RECORD, -1), (0, 0), (0, count + 1),
            ]  # fmt: skip
            assert sum(thread is not threading.main_thread() for thread in checks.threads) == 1
            await until(lambda: rig.server.budget.used_bytes == 0)

    run()


@on_uvloop
async def test_a_batch_whose_topic_goes_while_it_is_checked_is_refused(tmp_path, monkeypatch):
    checks = SlowChecks(monkeypatch)
    async with Rig(tmp_path) as rig, rig.client() as client:
        ref = topic_ref()
        rig.see_broker(0, rig.port)
        rig.see_topic(ref, {0: entry(0, replicas=(0,))}, config={"cleanup.policy": "compact"})
        client.send(PRODUCE, 9, produce_request((0, SQUEEZED)))
        await until(lambda: checks.threads)
        rig.delete_topic(ref)
        checks.may_go_on.set()
        _, response = await client.receive(PRODUCE, 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_a_batch_that_waited_for_its_check_after_an_election_is_judged_by_when_it_came(tmp_path, monkeypatch):
    """The one before it may have been refused by who led then, and come again only after the check."""
    checks, skew_ms = SlowChecks(monkeypatch), [0.0]
    monkeypatch.setattr(driver_module, "now_ms", lambda: now_ms() + skew_ms[0])
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(config={"cleanup.policy": "compact"})
        records = [SimpleRecord(1, b"k", b"v")] * (RECORDS_AT_ONCE + 1)
        behind = bytes(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=5))
        client.send(PRODUCE, 9, produce_request((0, behind), timeout_ms=60_000))
        await until(lambda: checks.threads)
        while skew_ms[0] < GAPS_MS:
            skew_ms[0] += AWAKE_MS / 2
            rig.partitions.tick()
        checks.may_go_on.set()
        _, response = await client.receive(PRODUCE, 9)
        [answer] = response.responses[0].partition_responses
        assert (answer.error_code, rig.driver().log.end_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def numbered(sequence, *, value=b"v", key=b"k", count=1):
    records = [SimpleRecord(1, key, value)] * count
    return bytes(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence))


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        pytest.param(numbered(3, value=b"v" * 100_000), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
        pytest.param(numbered(3)[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE, id="corrupt"),
        pytest.param(numbered(3, key=None), ErrorCode.INVALID_RECORD, id="without a key"),
        pytest.param(numbered(3, key=None, count=RECORDS_AT_ONCE + 1), ErrorCode.INVALID_RECORD, id="on a thread"),
    ],
)
def test_what_was_sent_behind_a_batch_that_was_not_as_it_should_be_waits_until_that_comes_again(
    tmp_path, monkeypatch, refused, error
):
    """The log does not know the producer: whatever it takes first is the beginning for it."""

    @on_uvloop
    async def run():
        monkeypatch.setattr(refused_module, "GAPS_MS", 0.0)  # the election was long ago
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead(config={"cleanup.policy": "compact", "max.message.bytes": "50000"})
            codes = []
            for sent in (refused, numbered(4), numbered(3), numbered(4)):
                [answer] = await produce(client, (0, sent))
                codes.append(answer.error_code)
            assert codes == [error, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]

    run()


@on_uvloop
async def test_records_of_one_request_are_checked_on_a_thread_once_they_are_many(tmp_path, monkeypatch):
    checks = SlowChecks(monkeypatch)
    checks.may_go_on.set()
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=4, config={"cleanup.policy": "compact"})
        half = bytes(build_batch([SimpleRecord(1, b"k", b"v")] * (RECORDS_AT_ONCE // 2)))
        answers = await produce(client, *[(n, half) for n in range(4)])
        assert [part.error_code for part in answers] == [0] * 4
        assert [thread is threading.main_thread() for thread in checks.threads].count(True) == 2


@pytest.mark.parametrize("codec", [1, 2, 3, ZSTD])
def test_small_compressed_batches_are_checked_at_once(tmp_path, monkeypatch, codec):
    @on_uvloop
    async def run():
        checks = SlowChecks(monkeypatch)
        squeezed, keyless = (
            bytes(build_batch([SimpleRecord(1, key, b"v" * 100)] * 3, codec=codec, compress=compress))
            for key in (b"k", None)
        )
        async with Rig(tmp_path) as rig, rig.client() as client:
            await rig.lead(partitions=2, config={"cleanup.policy": "compact"})
            answers = await produce(client, (0, squeezed), (1, keyless))
            assert [part.error_code for part in answers] == [0, ErrorCode.INVALID_RECORD]
            assert {*checks.threads} == {threading.main_thread()}

    run()


@on_uvloop
async def test_what_batches_of_one_request_unfold_to_is_bounded_on_the_loop(tmp_path, monkeypatch):
    checks = SlowChecks(monkeypatch)
    checks.may_go_on.set()
    large = [SimpleRecord(1, b"k", bytes(BYTES_AT_ONCE * 2 // 5))]
    squeezed = bytes(build_batch(large, codec=ZSTD, compress=compress))
    broken = squeezed[:-1] + b"!"
    broken = broken[:17] + compute_crc(memoryview(broken), 0, len(broken)).to_bytes(4, "big") + broken[21:]
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead(partitions=4, config={"cleanup.policy": "compact"})
        answers = await produce(client, *[(n, squeezed) for n in range(4)])
        assert [part.error_code for part in answers] == [0] * 4
        assert [thread is threading.main_thread() for thread in checks.threads] == [True] * 3 + [False] * 2
        answers = await produce(client, (0, broken))
        assert [part.error_code for part in answers] == [ErrorCode.INVALID_RECORD]


def appends(rig):
    return rig.server._table._handlers[PRODUCE]._appends


async def code(client):
    _, response = await client.receive(PRODUCE, 9)
    [part] = response.responses[0].partition_responses
    return part.error_code


@on_uvloop
async def test_a_batch_that_waits_for_its_check_for_longer_than_its_time_is_not_appended(tmp_path, monkeypatch):
    monkeypatch.setattr(record_checks, "PATIENCE_MIN_S", 0.0)
    checks = SlowChecks(monkeypatch)
    async with Rig(tmp_path) as rig, rig.client() as one, rig.client() as other, rig.client() as patient:
        await rig.lead(config={"cleanup.policy": "compact"})
        one.send(PRODUCE, 9, produce_request((0, SQUEEZED), timeout_ms=50))
        await until(lambda: len(checks.threads) == 2)  # at once, and on the thread
        other.send(PRODUCE, 9, produce_request((0, batch()), timeout_ms=50))
        await until(lambda: appends(rig).waiting_bytes > len(SQUEEZED) + 2 * record_checks.WAITING_BATCH_BYTES)
        patient.send(PRODUCE, 9, produce_request((0, batch()), timeout_ms=60_000))
        assert [await code(one), await code(other)] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        checks.may_go_on.set()
        assert await code(patient) == 0
        assert rig.driver().log.end_offset == 1
        assert appends(rig).waiting_bytes == 0
        await until(lambda: rig.server.budget.used_bytes == 0)


@on_uvloop
async def test_what_waits_for_checks_is_bounded(tmp_path, monkeypatch):
    checks = SlowChecks(monkeypatch)
    async with Rig(tmp_path) as rig, rig.client() as one, rig.client() as other:
        await rig.lead(partitions=2, config={"cleanup.policy": "compact"})
        monkeypatch.setattr(record_checks, "WAITING_BYTES_MAX", len(SQUEEZED) + 3 * record_checks.WAITING_BATCH_BYTES)
        one.send(PRODUCE, 9, produce_request((0, SQUEEZED)))
        await until(lambda: len(checks.threads) == 2)
        other.send(PRODUCE, 9, produce_request((0, batch())))
        other.send(PRODUCE, 9, produce_request((1, SQUEEZED)))
        other.send(PRODUCE, 9, produce_request((1, batch())))
        await until(lambda: rig.driver(number=1).log.end_offset == 1)
        checks.may_go_on.set()
        assert [await code(other) for _ in range(3)] == [0, ErrorCode.REQUEST_TIMED_OUT, 0]
        assert await code(one) == 0
        assert appends(rig).waiting_bytes == 0


@pytest.mark.parametrize(("acks", "appended"), [(-1, 0), (0, 4)])
def test_what_waits_for_its_check_is_given_up_with_its_client_unless_that_wants_no_answer(
    tmp_path, monkeypatch, acks, appended
):
    @on_uvloop
    async def run():
        checks = SlowChecks(monkeypatch)
        async with Rig(tmp_path) as rig, rig.client() as other:
            await rig.lead(config={"cleanup.policy": "compact"})
            async with rig.client() as gone:
                gone.send(PRODUCE, 9, produce_request((0, SQUEEZED), acks=acks))
                gone.send(PRODUCE, 9, produce_request((0, batch()), acks=acks))
                await until(lambda: appends(rig).waiting_bytes > len(SQUEEZED) + 2 * record_checks.WAITING_BATCH_BYTES)
                await until(lambda: len(checks.threads) == 3)
            await until(lambda: len(rig.server.connections) == 1)
            other.send(PRODUCE, 9, produce_request((0, batch())))
            checks.may_go_on.set()
            assert await code(other) == 0
            assert rig.driver().log.end_offset == appended + 1
            assert appends(rig).waiting_bytes == 0

    run()


@on_uvloop
async def test_acks_0_has_no_answer_and_a_failure_closes_the_connection(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        await rig.lead()
        client.send(PRODUCE, 9, produce_request((0, batch()), acks=0))
        assert (await produce(client, (0, batch())))[0].base_offset == 1
        client.send(PRODUCE, 9, produce_request((9, batch()), acks=0))
        assert await client.closed()
        await until(lambda: rig.server.budget.used_bytes == 0)


@on_uvloop
async def test_a_waiting_produce_keeps_no_batch_and_is_answered_when_the_topic_goes(tmp_path):
    async with Rig(tmp_path) as rig, rig.client() as client:
        rig.see_broker(0, rig.port)
        rig.see_broker(1, 1)
        ref = topic_ref()
        rig.see_topic(ref, {0: entry(0)})
        client.send(PRODUCE, 9, produce_request((0, batch())))
        await until(lambda: rig.driver().log.end_offset == 1)
        rig.delete_topic(ref)
        _, response = await client.receive(PRODUCE, 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert rig.server.budget.used_bytes == 0
