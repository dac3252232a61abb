"""Our own requests, against sockets that answer as brokers do, or otherwise."""

import contextlib
import socket
import threading

import pytest

from kafkalite_cli import wire
from kafkalite_cli.errors import Failure
from kafkalite_cli.groups import coordinator
from kafkalite_cli.groups.model import Partition
from kafkalite_cli.topics import sizes
from kafkalite_core.protocol import describe_log_dirs, find_coordinator, offset_delete
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.header import decode_request_header, encode_response_frame


class Broker:
    """Answers each request with what `answer(key, version, request)` returns: a response, bytes, or None to hang up."""

    def __init__(self, answer):
        self._answer, self.requests = answer, []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(ConnectionError):
                self._serve(connection)

    def _serve(self, connection):
        while size := connection.recv(4, socket.MSG_WAITALL):
            view = memoryview(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
            header, position = decode_request_header(view)
            spec, version = API[header.api_key], header.api_version
            request = spec.decode_request(view[position:], version)
            self.requests.append(request)
            answer = self._answer(header.api_key, version, request)
            if answer is None:
                return
            if not isinstance(answer, bytes):
                answer = b"".join(
                    bytes(part) for part in encode_response_frame(spec, version, header.correlation_id, answer)
                )
            connection.sendall(answer)

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)


@pytest.fixture
def serve():
    brokers = []

    def make(answer):
        brokers.append(Broker(answer))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()


def text_of(broker):
    return f"{broker.address[0]}:{broker.address[1]}"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(coordinator, "RETRY_S", 0.001)


def group_broker(serve, *, elected_after=0, refusals=(), codes=None):
    """One broker that is its own coordinator."""
    broker = None
    pending = [int(code) for code in refusals]
    lookups = iter([int(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * elected_after)

    def answer(key, _version, request):
        if key == 10:
            code = next(lookups, 0)
            return find_coordinator.FindCoordinatorResponse(
                error_code=code, host="127.0.0.1", port=broker.address[1], error_message=None
            )
        code = pending.pop(0) if pending else 0
        if code:
            return offset_delete.OffsetDeleteResponse(error_code=code)
        topics = [
            offset_delete.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    offset_delete.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=int((codes or {}).get((topic.name, each.partition_index), 0)),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return offset_delete.OffsetDeleteResponse(topics=topics)

    broker = serve(answer)
    return broker


def test_offsets_are_deleted_at_the_coordinator_once_it_is_there(serve, quick):
    broker = group_broker(
        serve,
        elected_after=2,
        refusals=[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
        codes={("t", 1): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC},
    )
    partitions = [Partition("t", 0), Partition("t", 1), Partition("u", 5)]
    # The first address is dead: the next one is asked.
    codes = coordinator.delete_offsets(f"127.0.0.1:1,{text_of(broker)}", "g", partitions)
    assert codes == {Partition("t", 0): 0, Partition("t", 1): 86, Partition("u", 5): 0}
    last = broker.requests[-1]
    assert (last.group_id, [topic.name for topic in last.topics]) == ("g", ["t", "u"])


def test_a_group_that_does_not_exist(serve, quick):
    broker = group_broker(serve, refusals=[ErrorCode.GROUP_ID_NOT_FOUND])
    with pytest.raises(Failure, match=r"group 'g': .*GROUP_ID_NOT_FOUND"):
        coordinator.delete_offsets(text_of(broker), "g", [Partition("t", 0)])


def test_a_coordinator_that_never_comes(serve, quick, monkeypatch):
    monkeypatch.setattr(coordinator, "COORDINATOR_S", 0.05)
    broker = group_broker(serve, elected_after=10**6)
    with pytest.raises(Failure, match="COORDINATOR_NOT_AVAILABLE"):
        coordinator.delete_offsets(text_of(broker), "g", [Partition("t", 0)])
    with pytest.raises(Failure, match="cannot be reached"):
        coordinator.delete_offsets("127.0.0.1:1", "g", [Partition("t", 0)])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "it closed the connection"),
        (b"\xff\xff\xff\xff", "no answer of a Kafka broker"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no answer of a Kafka broker"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", "cannot be read"),
        (b"\x00\x00", "no answer to OffsetDelete in time"),
    ],
)
def test_answers_that_are_none(serve, answer, words):
    broker = serve(lambda *_request: answer)
    with wire.Connection(broker.address, timeout_s=0.2) as connection, pytest.raises(Failure, match=words):
        connection.request(47, 0, offset_delete.OffsetDeleteRequest(group_id="g"))


def test_sizes_come_from_every_broker_that_answers(serve):
    def holding(size):
        def answer(_key, _version, request):
            partitions = [
                describe_log_dirs.DescribeLogDirsPartition(partition_index=number, partition_size=size + number)
                for number in request.topics[0].partitions
            ]
            partitions.append(
                describe_log_dirs.DescribeLogDirsPartition(partition_index=0, partition_size=9, is_future_key=True)
            )
            topic = describe_log_dirs.DescribeLogDirsTopic(name=request.topics[0].topic, partitions=partitions)
            return describe_log_dirs.DescribeLogDirsResponse(
                results=[describe_log_dirs.DescribeLogDirsResult(log_dir="/d", topics=[topic])]
            )

        return answer

    addresses = {
        0: serve(holding(100)).address,
        1: serve(lambda *_request: None).address,
        2: serve(holding(200)).address,
    }
    assert sizes.read_sizes(addresses | {3: ("127.0.0.1", 1)}, {"t": [0, 1]}) == {
        ("t", 0, 0): 100, ("t", 1, 0): 101, ("t", 0, 2): 200, ("t", 1, 2): 201,
    }  # fmt: skip
    assert sizes.read_sizes({}, {"t": [0]}) == {}


def test_a_broker_that_names_no_host_cannot_be_reached():
    with pytest.raises(Failure, match=r"broker kafka\.\.svc:9092 cannot be reached"):
        wire.Connection(("kafka..svc", 9092))
