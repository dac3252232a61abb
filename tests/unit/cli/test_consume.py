import io
import os
import signal
import threading

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

from kafkalite_cli import kafka
from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import Stop
from kafkalite_cli.main import main
from kafkalite_cli.records import command, consume
from kafkalite_cli.records.consume import Inbox, Limits, Position, first_offset, parse_position
from kafkalite_cli.records.meter import Meter
from kafkalite_cli.records.show import TextFormat
from tests.unit.cli.fakes import Consumer, Message, end_of


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
    batches = [[end_of("t", 0, 5)], [record(0, 5), end_of("t", 1, 3)], [record(0, 6), end_of("t", 0, 7)]]
    assert consuming("--from-beginning", "-e", batches=batches).stdout == "v\nv\n"


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


def test_what_comes_back_is_read_again_to_its_end(consuming):
    def lose(consumer):
        consumer.revoke(consumer, [each for each in consumer.assigned if each.partition == 0])
        return [record(1, 3)]

    def regain(consumer):
        consumer.stored.clear()
        return [record(1, 4), end_of("t", 1, 5)]

    batches = [[record(0, 5), end_of("t", 0, 6)], lose, regain, [end_of("t", 0, 90)]]
    result = consuming("-g", "g", "-e", "--timeout", "0.1", batches=batches)
    assert result.consumer.stored == {("t", 1): 5}, "somebody else has committed more of partition 0 meanwhile"
    assert result.consumer._batches == [], "its end was looked for again"


def test_nothing_is_committed_when_nobody_reads_the_output(consuming, monkeypatch):
    class Closed(io.BytesIO):
        def flush(self):
            raise BrokenPipeError

    consumer = Consumer({}, {"t": 2}, [[record(0, 5)]])
    consumer.subscribe(["t"], on_revoke=None)
    inbox = Inbox(consumer, Closed(), TextFormat(), in_group=True, from_beginning=False, tell=print)
    with pytest.raises(BrokenPipeError):
        inbox.run(Limits(), stop=Stop(), meter=Meter("read", shown=False))
    assert (consumer.stored, inbox.count) == ({}, 0)

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


def test_a_group_that_gives_nothing_is_waited_for_with_a_word(consuming, monkeypatch):
    monkeypatch.setattr(consume, "UNASSIGNED_S", 0.0)

    def nothing(consumer):
        consumer.assigned = []
        return []

    result = consuming("-g", "g", "--timeout", "0.05", batches=[nothing])
    assert result.stderr.count("no partition yet: its coordinator does not answer") == 1
    # one that had partitions and lost them knows
    assert "no partition yet" not in consuming("-g", "g", "--timeout", "0.05", batches=[[], nothing]).stderr
    assert "no partition yet" not in consuming("--timeout", "0.05", batches=[nothing]).stderr


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
        ("@0001-01-01T00:00:00", Position("time", 0)),
        (f"@{10**30}", Position("time", 2**63 - 1)),
    ],
)
def test_positions(text, position):
    assert parse_position(text) == position


def test_no_position():
    with pytest.raises(Failure, match="is none of"):
        parse_position("soon")
    with pytest.raises(Failure, match="is not a time like"):
        parse_position("@\u00b2")


def test_first_offsets():
    assert first_offset(Position("tail", 3), 5, 20, -1) == 17
    assert first_offset(Position("tail", 30), 5, 20, -1) == 5
    assert first_offset(Position("time", 9), 5, 20, 12) == 12
    assert first_offset(Position("time", 9), 5, 20, -1) == 20
    assert first_offset(Position("at", 20), 5, 20, -1) == 20
    for offset in (4, 21):
        with pytest.raises(Failure, match="the log begins at 5 and ends at 20"):
            first_offset(Position("at", offset), 5, 20, -1)


def test_a_topic_that_is_named_twice_is_read_once(consuming):
    result = consuming("t", "-p", "1", "--offset", "4", "-c", "1", batches=[[record(1, 4)]], ends={1: 9})
    assert [(each.topic, each.partition) for each in result.consumer.assigned] == [("t", 1)]


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
        (["-g", ""], "a group id is not empty"),
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
