"""The history file: what is written is read, broken files are refused with file and line."""

import pytest

from kafkalite_cli.verify.history import (
    Ack,
    Assign,
    End,
    Fault,
    FileRecorder,
    Foreign,
    Header,
    HistoryError,
    Read,
    Unknown,
    Unnamed,
    UnnamedError,
    decode_value,
    encode_value,
    read_history,
    write_history,
)

EVENTS = [
    Header(1, "run", "orders", 6, 1_700_000_000_000),
    Assign(0, 1, -1, 1),
    Ack(1, 2, 3, 4, 5, 6, 7),
    Unknown(1, 2, 4, 4, "MSG_TIMED_OUT", 6, 7),
    Read(0, 4, 5, 1, 2, 3, 8),
    Foreign(0, 4, 6, 9),
    Unnamed(0, 4, 6, 9),
    Fault("SIGKILL broker 1", [0, 3], 10),
    End(0, 4, 7, 11),
]


def test_events_survive_the_file(tmp_path):
    path = tmp_path / "run.jsonl"
    write_history(path, EVENTS)
    assert list(read_history(path)) == EVENTS
    assert path.read_text().splitlines()[2] == '["ack",1,2,3,4,5,6,7]'


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "run.jsonl"
    write_history(path, EVENTS)
    path.write_text(path.read_text() + '["ack",1]\n')
    with pytest.raises(HistoryError, match=r"run\.jsonl, line 10"):
        list(read_history(path))


def test_what_a_killed_run_left_unfinished_is_ignored(tmp_path):
    path = tmp_path / "run.jsonl"
    write_history(path, EVENTS)
    path.write_text(path.read_text() + '["ack",1,2')
    assert list(read_history(path)) == EVENTS


@pytest.mark.parametrize("text", ["", "hello", '{"a":1}\n'])
def test_what_is_no_history_is_refused(tmp_path, text):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    if text:
        with pytest.raises(HistoryError, match="line 1"):
            list(read_history(path))
    else:
        assert list(read_history(path)) == []
    with pytest.raises(HistoryError, match="No such file"):
        list(read_history(tmp_path / "absent"))


def test_a_recorder_writes_as_it_goes(tmp_path):
    with FileRecorder(tmp_path / "run.jsonl") as recorder:
        for event in EVENTS:
            recorder.record(event)
    assert len((tmp_path / "run.jsonl").read_bytes().splitlines()) == len(EVENTS)


def test_values_name_their_record_and_nobody_elses():
    value = encode_value("run", 1, 2, 3, 100)
    assert len(value) == 100
    assert decode_value(value, "run") == (1, 2, 3)
    assert decode_value(value, "other") is None
    assert decode_value(b"hello", "run") is None
    assert decode_value(None, "run") is None


@pytest.mark.parametrize(
    "named",
    [
        b"0 x7 1 ",
        b"0 7 \xff ",
        b"0 7 1",  # cut off: what names it ends with a space
        b"0 7",
        b"",
        b"4096 7 1 ",
        b"0 1048576 1 ",
        b"0 7 0 ",
        b"0 7 4294967296 ",
        b"-1 7 1 ",
        b"0 7 " + b"9" * 5000 + b" ",
    ],
)
def test_a_record_of_the_run_with_a_name_that_no_record_has_is_told_from_others(named):
    value = b"kafkalite-verify run " + named
    with pytest.raises(UnnamedError):
        decode_value(value, "run")
    assert decode_value(value, "other") is None
