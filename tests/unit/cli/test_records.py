import base64
import io
import json
import os
import signal
import threading
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

from kafkalite_cli import kafka
from kafkalite_cli.errors import Failure
from kafkalite_cli.main import main
from kafkalite_cli.records import command, produce
from kafkalite_cli.records.consume import Position, first_offset, parse_position
from kafkalite_cli.records.parse import LineError, LineFormat, LineSplitter, Record, parse_json
from kafkalite_cli.records.show import JsonFormat, TextFormat
from tests.unit.cli.fakes import Consumer, Message, Producer, end_of

# --- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_do_not_depend_on_how_they_arrive(size):
    data = b"one\n\nthree\r\nlast"
    splitter = LineSplitter()
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    assert [*lines, *splitter.finish()] == [b"one", b"", b"three\r", b"last"]
    assert splitter.finish() == []


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("kafkalite_cli.records.parse.LINE_BYTES_MAX", 10)
    splitter = LineSplitter()
    assert splitter.feed(b"12345") == []
    with pytest.raises(LineError, match="longer than 10 bytes"):
        splitter.feed(b"678901")


@pytest.mark.parametrize(
    ("form", "line", "record"),
    [
        (LineFormat(), b"a:b", Record(value=b"a:b")),
        (LineFormat(), b"", Record(value=b"")),
        (LineFormat(key=b"k"), b"v", Record(key=b"k", value=b"v")),
        (LineFormat(key_separator=b":"), b"a:b:c", Record(key=b"a", value=b"b:c")),
        (LineFormat(key_separator=b":", null_marker=b"-"), b"a:-", Record(key=b"a", value=None)),
        (LineFormat(key_separator=b":", null_marker=b"-"), b"-:b", Record(key=None, value=b"b")),
        (LineFormat(line_headers=True), b"h:1,g:\tv", Record(value=b"v", headers=[("h", b"1"), ("g", b"")])),
        (LineFormat(line_headers=True, headers=[("x", b"y")]), b"\tv", Record(value=b"v", headers=[("x", b"y")])),
        (
            LineFormat(line_headers=True, key_separator=b"\t"),
            b"h:1\tk\tv\t",
            Record(key=b"k", value=b"v\t", headers=[("h", b"1")]),
        ),
    ],
)
def test_reading_lines(form, line, record):
    assert form.parse(line) == record


@pytest.mark.parametrize(
    ("form", "line", "words"),
    [
        (LineFormat(key_separator=b"::"), b"a:b", "no key separator '::'"),
        (LineFormat(line_headers=True), b"h:1", "no tab"),
        (LineFormat(line_headers=True), b"h\tv", "not of the form name:value"),
    ],
)
def test_lines_that_are_no_records(form, line, words):
    with pytest.raises(LineError, match=words):
        form.parse(line)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k", b"v", []),
        (None, None, []),
        (b"", b"", [("h", None)]),
        (b"\xff", b"\x00\xfe", [("h", b"\xff"), ("h", b"text"), ("\u00e4", b"")]),
    ],
)
def test_what_consume_writes_as_json_produce_reads(key, value, headers):
    line = JsonFormat().line(Message("t", 3, 17, value, key, headers=headers, timestamp=(1, 1234)))
    assert json.loads(line) | {"topic": "t", "partition": 3, "offset": 17, "timestampType": "CreateTime"} == json.loads(
        line
    )
    assert parse_json(line) == Record(key=key, value=value, headers=headers, timestamp_ms=1234)


def test_json_of_other_programs():
    assert parse_json(b'{"value": {"a": 1}}') == Record(value=b'{"a":1}')
    assert parse_json(b'{"key": 7, "value": "x", "headers": null}') == Record(key=b"7", value=b"x")
    for line in (b"{", b"[]", b'{"headers": 1}', b'{"timestamp": "now"}', b'{"valueBase64": "%"}'):
        with pytest.raises(LineError):
            parse_json(line)


def test_json_of_what_is_not_utf_8():
    document = json.loads(JsonFormat().line(Message("t", 0, 0, b"\xff", timestamp=(0, -1))))
    assert document["valueBase64"] == base64.b64encode(b"\xff").decode()
    assert "value" not in document
    assert (document["timestamp"], document["timestampType"]) == (None, None)


def test_text():
    message = Message("t", 3, 17, b"\xffv", b"k", headers=[("a", b"1"), ("a", None), ("b", b"")], timestamp=(2, 5))
    assert TextFormat().line(message) == b"\xffv\n"
    fields = ("timestamp", "partition", "offset", "headers", "key", "topic")
    assert (
        TextFormat(fields=fields, separator=b"|").line(message)
        == b"LogAppendTime:5|Partition:3|Offset:17|a:1,a:null,b:|k|Topic:t|\xffv\n"
    )
    empty = Message("t", 0, 0, None, timestamp=(0, -1))
    assert TextFormat(fields=("key", "headers", "timestamp")).line(empty) == b"null\tNO_HEADERS\tNO_TIMESTAMP\tnull\n"


# --- produce ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def producing(monkeypatch):
    """Runs `produce` with a producer that is made with the given fates; the producer is in the result."""
    monkeypatch.setattr(kafka, "check_reachable", lambda *_arguments, **_more: None)
    monkeypatch.setattr(kafka, "UNKNOWN_TOPIC_S", 0.0)

    def run(*arguments, data=b"", topics=None, **fates):
        made = []

        def make(config):
            made.append(Producer(config, {"t": 3} if topics is None else topics, **fates))
            return made[0]

        monkeypatch.setattr(command, "make_producer", make)
        result = CliRunner().invoke(main, ["produce", "t", "-b", "h:1", *arguments], input=data)
        result.producer = made[0] if made else None
        return result

    return run


def values(result):
    return [value for _, _, value, _ in result.producer.records]


def test_lines_become_records(producing):
    result = producing(data=b"one\n\nthree")
    assert (result.exit_code, result.stdout) == (0, "")
    assert values(result) == [b"one", b"", b"three"]
    assert {more["partition"] for *_, more in result.producer.records} == {-1}
    assert "sent 3 records (8 B) in " in result.stderr
    assert result.producer.config["enable.idempotence"] is True
    assert result.producer.config["acks"] == "all"
    assert result.producer.config["partitioner"] == "murmur2_random"
    assert producing("-q", data=b"one\n").output == ""


def test_options_of_records(producing, tmp_path):
    (tmp_path / "in").write_bytes(b"a::1\nb::-\n")
    result = producing(
        "-f", str(tmp_path / "in"), "-K", "::", "-H", "h=x=y", "--null-marker", "-", "-p", "2", "-z", "zstd",
        "--acks", "1", "-X", "linger.ms=0",
    )  # fmt: skip
    assert result.exit_code == 0
    more = {"headers": [("h", b"x=y")], "partition": 2}
    assert result.producer.records == [("t", b"a", b"1", more), ("t", b"b", None, more)]
    config = result.producer.config
    assert (config["compression.type"], config["enable.idempotence"], config["linger.ms"]) == ("zstd", False, "0")


def test_a_full_queue_is_waited_for(producing):
    assert values(producing(data=b"1\n2\n", full=3)) == [b"1", b"2"]


def test_failures_are_told_and_counted(producing):
    data = b"".join(b"%d\n" % number for number in range(15))
    fails = {b"%d" % number: KafkaError.MSG_SIZE_TOO_LARGE for number in range(1, 14)}
    result = producing("-o", "json", data=data, fails=fails)
    assert result.exit_code == 1
    assert "line 2: not sent: Message size too large (MSG_SIZE_TOO_LARGE)" in result.stderr
    assert result.stderr.count("not sent: ") == 10
    assert "13 of 15 records were not acknowledged: MSG_SIZE_TOO_LARGE 13" in result.stderr
    summary = json.loads(result.stdout)
    assert summary.pop("elapsedSeconds") >= 0
    assert summary == {
        "topic": "t", "sent": 15, "acknowledged": 2, "failed": 13, "sizeBytes": 3, "errors": {"MSG_SIZE_TOO_LARGE": 13},
    }  # fmt: skip


def test_a_line_that_is_no_record_ends_the_sending(producing):
    result = producing("-K", ":", data=b"a:1\nb\nc:3\n")
    assert (result.exit_code, values(result)) == (1, [b"1"])
    assert "Error: line 2: no key separator ':'" in result.stderr
    assert "sent 1 record" in result.stderr


def test_json_goes_in(producing):
    result = producing("-i", "json", data=b'{"key":"k","value":"v","timestamp":7,"partition":1}\n')
    assert result.producer.records == [("t", b"k", b"v", {"timestamp": 7, "partition": -1})]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-p", "3"], 1, "topic 't' has no partition 3: it has 0 to 2"),
        (["--acks", "0", "--idempotent"], 2, "--idempotent needs --acks all"),
        (["-k", "a", "-K", ":"], 2, "--key or --key-separator?"),
        (["-i", "json", "-k", "a"], 2, "keys and headers stand in the lines"),
        (["-f", "/does/not/exist"], 2, "No such file"),
        (["-H", "a"], 2, "not of the form key=value"),
    ],
)
def test_what_cannot_be_produced(producing, arguments, code, words):
    result = producing(*arguments, data=b"x\n")
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert result.producer is None or result.producer.records == []


def test_topics_that_do_not_exist(producing):
    result = producing(topics={}, data=b"x\n")
    assert (result.exit_code, "`kafkalite topics create t` makes it" in result.stderr) == (1, True)
    result = producing(topics={"t": KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}, data=b"x\n")
    assert (result.exit_code, "TOPIC_AUTHORIZATION_FAILED" in result.stderr) == (1, True)


def test_an_interrupt_ends_in_order(producing, monkeypatch):
    monkeypatch.setattr(produce, "STOP_S", 0.05)
    really = Producer.produce

    def interrupted(self, topic, value=None, key=None, **more):
        really(self, topic, value, key, **more)
        if value == b"2":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Producer, "produce", interrupted)
    assert threading.current_thread() is threading.main_thread()
    result = producing(data=b"1\n2\n3\n", never=[b"1"])
    assert values(result) == [b"1", b"2"], "nothing new is begun"
    assert result.exit_code == 1
    assert "1 of 2 records were not acknowledged: _PURGE_QUEUE 1" in result.stderr
    result = producing(data=b"1\n2\n3\n")
    assert (result.exit_code, values(result)) == (130, [b"1", b"2"])


def test_a_rate_is_kept(producing):
    began = time.monotonic()
    assert producing("--rate", "50", data=b"x\n" * 11).exit_code == 0
    assert time.monotonic() - began >= 0.2


def test_input_that_comes_slowly_is_taken_as_it_comes():
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file:
        source = produce.chunks(file)
        assert next(source) == b"", "delivery reports are served meanwhile"
        os.write(write, b"a\nb")
        assert next(chunk for chunk in source if chunk) == b"a\nb"
        os.close(write)
        assert [chunk for chunk in source if chunk] == []
    assert list(produce.chunks(io.BytesIO(b"abc"))) == [b"abc"]


# --- consume ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def consuming(monkeypatch):
    monkeypatch.setattr(kafka, "check_reachable", lambda *_arguments, **_more: None)
    monkeypatch.setattr(kafka, "UNKNOWN_TOPIC_S", 0.0)

    def run(*arguments, batches=(), topics=None, **more):
        made = []

        def make(config):
            made.append(Consumer(config, topics or {"t": 2}, batches, **more))
            return made[0]

        monkeypatch.setattr(command, "make_consumer", make)
        result = CliRunner().invoke(main, ["consume", "t", "-b", "h:1", *arguments])
        result.consumer = made[0] if made else None
        return result

    return run


def record(partition, offset, value=b"v"):
    return Message("t", partition, offset, value, b"k")


def assigned(result):
    return {each.partition: each.offset for each in result.consumer.assigned}


def test_reading_to_the_end(consuming):
    batches = [[record(0, 5), record(1, 3), end_of("t", 1, 4)], [end_of("t", 0, 6)]]
    result = consuming("--from-beginning", "-e", batches=batches, start=2, ends={0: 6, 1: 4})
    assert (result.exit_code, result.stdout) == (0, "v\nv\n")
    assert assigned(result) == {0: 2, 1: 2}
    assert "read 2 records (4 B) in " in result.stderr
    assert "; lag 0" in result.stderr
    assert (result.consumer.closed, result.consumer.stored) == (True, {}), "without a group nothing is committed"
    assert result.consumer.config["enable.auto.commit"] is False


def test_an_end_that_moves_on_is_no_end(consuming):
    batches = [[end_of("t", 0, 5), end_of("t", 1, 3)][:1], [record(0, 5), end_of("t", 1, 3)], [end_of("t", 0, 6)]]
    assert consuming("--from-beginning", "-e", batches=batches).stdout == "v\n"


def test_a_group_commits_what_was_written(consuming):
    batches = [[record(0, 5), record(0, 6), record(1, 3)]]
    result = consuming(
        "--group", "g", "--from-beginning", "-c", "3", "--print", "partition,offset,key", batches=batches
    )
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "Partition:0\tOffset:6\tk\tv"
    assert result.consumer.stored == {("t", 0): 7, ("t", 1): 4}
    config = result.consumer.config
    assert (config["group.id"], config["auto.offset.reset"], config["enable.auto.commit"]) == ("g", "earliest", True)
    assert config["enable.auto.offset.store"] is False
    assert consuming("-g", "g", "-c", "1", batches=[[record(0, 0)]]).consumer.config["auto.offset.reset"] == "latest"


def test_what_was_given_away_is_not_committed(consuming):
    def lose(consumer):
        gone = [each for each in consumer.assigned if each.partition == 0]
        consumer.assigned = [each for each in consumer.assigned if each.partition == 1]
        consumer.revoke(consumer, gone)
        return [record(0, 9), record(1, 3)]

    result = consuming("-g", "g", "-c", "3", batches=[[record(0, 5)], lose])
    assert result.consumer.stored == {("t", 0): 6, ("t", 1): 4}


def test_nothing_is_committed_when_nobody_reads_the_output(consuming, monkeypatch):
    class Closed(io.BytesIO):
        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(TextFormat, "line", lambda _self, _message: (_ for _ in ()).throw(BrokenPipeError))
    result = consuming("-g", "g", batches=[[record(0, 5)]])
    assert (result.exit_code, result.output) == (141, "")
    assert (result.consumer.stored, result.consumer.closed) == ({}, True)


def test_silence_ends_it(consuming):
    result = consuming("--timeout", "0.05", batches=[[record(0, 5)]])
    assert result.exit_code == 0
    result = consuming("--timeout", "0.05", "-c", "2", batches=[[record(0, 5)]])
    assert (result.exit_code, result.stdout) == (1, "v\n")
    assert "only 1 of 2 records came: none for 0.05 s" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_close_the_consumer(consuming, number):
    def interrupt(_consumer):
        os.kill(os.getpid(), number)
        return [record(0, 5)]

    assert threading.current_thread() is threading.main_thread()
    result = consuming("-g", "g", batches=[interrupt])
    assert (result.exit_code, result.stdout) == (128 + number, "v\n")
    assert (result.consumer.closed, result.consumer.stored) == (True, {("t", 0): 6})


def test_errors_that_pass_are_told_once_and_others_end_it(consuming):
    def failing(code):
        return [Message("t", 0, 0, None, error=KafkaError(code))]

    passing = failing(KafkaError._TRANSPORT)
    result = consuming("-c", "1", batches=[passing, passing, [record(0, 0)]])
    assert result.exit_code == 0
    assert result.stderr.count("trying on") == 1
    result = consuming("-c", "1", batches=[failing(KafkaError.UNKNOWN_TOPIC_OR_PART)])
    assert (result.exit_code, "UNKNOWN_TOPIC_OR_PART" in result.stderr, result.consumer.closed) == (1, True, True)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position("beginning")),
        ("latest", Position("end")),
        ("17", Position("at", 17)),
        ("-3", Position("tail", 3)),
        ("@1500", Position("time", 1500)),
        ("@1970-01-01T00:00:02", Position("time", 2000)),
    ],
)
def test_positions(text, position):
    assert parse_position(text) == position


def test_no_position():
    with pytest.raises(Failure, match="is none of"):
        parse_position("soon")


def test_first_offsets():
    assert first_offset(Position("tail", 3), 5, 20, -1) == 17
    assert first_offset(Position("tail", 30), 5, 20, -1) == 5
    assert first_offset(Position("time", 9), 5, 20, 12) == 12
    assert first_offset(Position("time", 9), 5, 20, -1) == 20
    assert first_offset(Position("at", 20), 5, 20, -1) == 20
    for offset in (4, 21):
        with pytest.raises(Failure, match="the log begins at 5 and ends at 20"):
            first_offset(Position("at", offset), 5, 20, -1)


def test_partitions_can_be_chosen(consuming):
    assert assigned(consuming("-p", "1", "--offset", "4", "-c", "1", batches=[[record(1, 4)]], ends={1: 9})) == {1: 4}
    assert "no partition 2" in consuming("-p", "0,2").stderr
    assert consuming("-p", "x").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-g", "g", "--offset", "5"], "a group decides itself"),
        (["-g", "g", "-p", "1"], "a group decides itself"),
        (["--from-beginning", "--offset", "end"], "--from-beginning or --offset?"),
        (["--offset", "5"], "say --partition as well"),
        (["--print", "colour"], "'colour' is not among topic"),
    ],
)
def test_options_of_consume_that_contradict_each_other(consuming, arguments, words):
    result = consuming(*arguments)
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


def test_progress_off_a_terminal_is_lines(consuming, monkeypatch):
    monkeypatch.setattr("kafkalite_cli.records.meter.LINE_EVERY_S", 0.0)
    batches = [[record(0, 0)], [record(0, 1)]]
    result = consuming("-c", "2", "--progress", batches=batches, ends={0: 12})
    assert "read 1 record (2 B) in " in result.stderr
    assert ", lag 11" in result.stderr
    assert consuming("-c", "2", batches=batches).stderr.count("\n") == 1
