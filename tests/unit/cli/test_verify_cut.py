"""`kafkalite verify check` of a history that ends too early: the run was killed, or the file is a part of one."""

import json

import pytest
from click.testing import CliRunner

from kafkalite_cli.verify.command import verify
from kafkalite_cli.verify.history import FINAL_READ, Ack, Assign, End, Header, Read, Watermark, write_history

LIVE = [Header(1, "run", "t", 1, 0), Assign(0, 0, 0, 0)]
for _n in range(3):  # what a consumer is given may be written down before the producer hears of it, and behind that
    _ack, _read = Ack(0, 0, _n + 1, 0, _n, 10 * _n + 1, 10 * _n + 2), Read(0, 0, _n, 0, 0, _n + 1, 10 * _n + 3)
    LIVE += [_ack, _read] if _n % 2 else [_read, _ack]
FINAL = [Assign(FINAL_READ, 0, 0, 50), *(Read(FINAL_READ, 0, n, 0, 0, n + 1, 60) for n in range(3))]
WHOLE = [*LIVE, *FINAL, End(FINAL_READ, 0, 3, 70)]


@pytest.fixture
def check(tmp_path):
    def judge(*histories, options=()):
        paths = [tmp_path / str(number) for number in range(len(histories))]
        for path, events in zip(paths, histories, strict=True):
            write_history(path, events)
        return CliRunner().invoke(verify, ["check", *map(str, paths), *options])

    return judge


def test_wherever_it_is_cut_there_is_no_verdict(check):
    assert check(WHOLE).exit_code == 0
    for end in range(1, len(WHOLE)):
        result = check(WHOLE[:end])
        assert (result.exit_code, result.stdout) == (2, ""), f"{end} lines: {result.output}"
    assert "0: the history ends before its final read did" in result.stderr


def test_what_is_wrong_for_certain_is_wrong_in_a_part_as_well(check):
    twice = Read(0, 0, 1, 0, 0, 1, 40)
    result = check([*LIVE[:4], twice])
    assert result.exit_code == 1
    assert "BROKEN" in result.output
    options = ["--allow", "duplicate", "--allow", "lost"]
    assert check([*LIVE[:4], twice], options=options).exit_code == 2, "what is left says nothing"


def test_a_part_beside_a_broken_history_is_shown_without_a_verdict(check):
    lost = [event for event in WHOLE if event != FINAL[2]]
    result = check(lost, LIVE)
    assert result.exit_code == 1
    assert ("BROKEN" in result.stdout, "NO VERDICT" in result.stdout) == (True, True)
    reports = json.loads(check(lost, LIVE, options=["-o", "json"]).stdout)
    assert [report["broken_off"] for report in reports.values()] == [False, True]


@pytest.mark.parametrize("garbage", [Ack(0, 0, 4, 0, 3, 1, 1 << 64), Watermark(0, 0, 1 << 64, 1, 2)])
def test_numbers_that_no_run_writes_are_no_anomaly(check, garbage):
    result = check([*WHOLE, garbage])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: a number of more than 64 bits: {type(garbage).__name__}")
