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
from kafkalite_cli.main import main
from kafkalite_cli.records import command, produce
from kafkalite_cli.records.parse import LineError, LineFormat, LineSplitter, Record, parse_json
from kafkalite_cli.records.show import JsonFormat, TextFormat
from tests.unit.cli.fakes import Message, Producer

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
    assert parse_json(b'{"key": "k", "value": null}') == Record(key=b"k")
    assert parse_json(b'{"value": null, "valueBase64": "eA=="}') == Record(value=b"x")
    for line in (b"{}", b'{"key": "k", "vlaue": "v"}', b'{"value": "v", "valueBase64": "eA=="}'):
        with pytest.raises(LineError, match="value"):
            parse_json(line)
    for line in (b"{", b"[]", b'{"headers": 1}', b'{"timestamp": "now"}', b'{"valueBase64": "%"}'):
        with pytest.raises(LineError):
            parse_json(line)


def test_timestamps_are_those_that_kafka_can_write():
    assert parse_json(b'{"value": "x", "timestamp": 9223372036854775807}').timestamp_ms == 2**63 - 1
    for wrong in (b"9223372036854775808", b"99999999999999999999", b"-1", b"true", b"1.5", b'"1"'):
        with pytest.raises(LineError, match="timestamp is not a number of milliseconds since 1970"):
            parse_json(b'{"value": "x", "timestamp": %s}' % wrong)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (r"\t", b"\t"),
        (r"a\n\0", b"a\n\0"),
        (r"\\t", rb"\t"),
        (r"\\\t", b"\\\t"),
        (r"\x-\y", rb"\x-\y"),
        ("ä\\", "ä\\".encode()),
    ],
)
def test_escapes_mean_what_they_mean_everywhere(typed, meant):
    assert command._text(typed) == meant


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


def test_what_was_taken_is_sent_whatever_ends_the_reading(producing, monkeypatch):
    def refused(self, topic, value=None, key=None, **more):
        if value == b"3":
            raise OverflowError("int too big to convert")
        really(self, topic, value, key, **more)

    really = Producer.produce
    monkeypatch.setattr(Producer, "produce", refused)
    result = producing("-o", "json", data=b"1\n2\n3\n4\n")
    assert (result.exit_code, "OverflowError" in result.stderr) == (1, True)
    assert values(result) == [b"1", b"2"]
    assert not len(result.producer), "every delivery report was waited for"
    summary = json.loads(result.stdout)
    assert (summary["sent"], summary["acknowledged"], summary["failed"]) == (2, 2, 0)


def test_a_key_is_taken_as_it_stands(producing):
    result = producing("-k", r"C:\new", data=b"v\n")
    assert result.producer.records[0][1] == rb"C:\new"


def test_json_goes_in(producing):
    result = producing("-i", "json", data=b'{"key":"k","value":"v","timestamp":7,"partition":1}\n')
    assert result.producer.records == [("t", b"k", b"v", {"timestamp": 7, "partition": -1})]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-p", "3"], 1, "topic 't' has no partition 3: it has 0 to 2"),
        (["--acks", "0", "--idempotent"], 2, "--idempotent needs --acks all"),
        (["-k", "a", "-K", ":"], 2, "--key or --key-separator?"),
        (["-K", ""], 2, "--key-separator is empty"),
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
    assert (result.exit_code, result.stderr) == (1, "Error: topic 't' does not exist\n"), (
        "of which cluster is not known"
    )
    place = ("--context", "prod", "-n", "kafka", "--cluster", "events")
    offered = f"`kafkalite topics create t {' '.join(place)}` makes it"
    assert offered in producing(*place, topics={}, data=b"x\n").stderr
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
