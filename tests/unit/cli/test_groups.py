import json
import os
import signal
import threading
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups import admin, command, reset
from kafkalite_cli.groups.model import Log, Partition
from kafkalite_cli.main import main
from tests.unit.cli.fakes import Cluster, member, opened


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster()
    for number, (start, end) in enumerate([(0, 100), (10, 20), (0, 0)]):
        cluster.log("t", number, start, end)
    cluster.log("u", 0, 0, 7)
    monkeypatch.setattr(command, "connect", lambda _options: opened(cluster))
    return cluster


def run(*arguments, **more):
    return CliRunner().invoke(main, ["groups", *arguments], **more)


def test_listing(cluster):
    assert run("list").output == "no groups\n"
    cluster.add("b", "Stable", members=(member("c1", ("t", 0)),))
    cluster.add("a")
    assert [line.split() for line in run("list").output.splitlines()] == [
        ["group", "state", "members", "assignor", "coordinator", "type"],
        ["a", "Empty", "0", "-", "1", "Classic"],
        ["b", "Stable", "1", "range", "1", "Classic"],
    ]
    assert json.loads(run("list", "-o", "json").output)[1] == {
        "group": "b", "state": "Stable", "members": 1, "assignor": "range", "coordinator": 1, "type": "Classic",
    }  # fmt: skip
    assert run("list", "-o", "name").output == "a\nb\n"
    assert run("list", "-o", "name", "--state", "stable").output == "b\n"


def test_a_broker_that_does_not_answer_is_told(cluster):
    cluster.add("a")
    cluster.down = ["Timed out"]
    result = run("list")
    assert (result.exit_code, "a broker did not answer: Timed out" in result.stderr) == (1, True)
    assert "Empty" in result.stdout


def test_describing(cluster):
    cluster.add(
        "g", "Stable", members=(member("c1", ("t", 0), ("t", 2)), member("c2", ("t", 1))), t_0=40, t_1=25, x_0=3
    )
    result = run("describe", "g")
    assert result.exit_code == 0
    head, *rows = result.output.splitlines()
    assert head == "group g   state Stable   members 2   assignor range   coordinator 1 (h:1)   total lag 60"
    cells = [[cell for cell in row.split("  ") if cell.strip()] for row in rows]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["topic", "partition", "committed", "log end", "lag", "client", "host", "member"],
        ["t", "0", "40", "100", "60", "c1", "/127.0.0.1", "c1-1"],
        ["t", "1", "25", "20", "0", "c2", "/127.0.0.1", "c2-1"],
        ["t", "2", "-", "0", "-", "c1", "/127.0.0.1", "c1-1"],
        ["x", "0", "3", "-", "-", "-", "-", "-"],
    ]
    assert "t:0,2" in run("describe", "g", "--members").output
    [document] = json.loads(run("describe", "g", "-o", "json").output)
    assert document["partitions"][0] == {
        "topic": "t", "partition": 0, "committed": 40, "logStart": 0, "logEnd": 100, "lag": 60, "memberId": "c1-1",
        "clientId": "c1", "host": "/127.0.0.1",
    }  # fmt: skip
    assert document["coordinator"] == {"id": 1, "address": "h:1"}
    assert document["members"][0]["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 2}]


def test_a_group_without_any_known_lag_has_no_total(cluster):
    cluster.add("g", x_0=3)
    assert "total lag -" in run("describe", "--all").output
    assert json.loads(run("describe", "g", "-o", "json").output)[0]["totalLag"] is None


def test_groups_that_do_not_exist(cluster):
    result = run("describe", "absent")
    assert (result.exit_code, result.stderr) == (1, "Error: group 'absent' does not exist\n")
    cluster.offsets["simple"] = {Partition("t", 0): 5}
    assert "total lag 95" in run("describe", "simple").output, "offsets without members"
    assert run("describe").exit_code == 2
    assert run("describe", "g", "--all").exit_code == 2


@pytest.fixture
def interruptible():
    """SIGINT as a terminal's processes have it; those that a shell puts into the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_watching_ends_with_an_interrupt(cluster, monkeypatch):
    cluster.add("g", t_0=40)
    really, seen = cluster.committed, []

    def committed(group_id):
        seen.append(group_id)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return really(group_id)

    monkeypatch.setattr(cluster, "committed", committed)
    assert threading.current_thread() is threading.main_thread()
    result = run("describe", "g", "--watch", "0.1", "-o", "json")
    assert result.exit_code == 130
    assert [json.loads(line)[0]["totalLag"] for line in result.output.splitlines()] == [60, 60, 60]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- reset-offsets ---------------------------------------------------------------------------------------------------


def moved(cluster, *arguments):
    """Partition -> offset after, of a run with --execute."""
    cluster.add("g", t_0=40, t_1=15)
    result = run("reset-offsets", "g", *arguments, "--execute")
    assert result.exit_code == 0, result.output
    return {str(partition): offset for partition, offset in cluster.offsets["g"].items()}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], [0, 10]),
        (["--to-latest"], [100, 20]),
        (["--to-current"], [40, 15]),
        (["--to-offset", "50"], [50, 20]),
        (["--to-offset", "5"], [5, 10]),
        (["--shift-by", "10"], [50, 20]),
        (["--shift-by", "-10"], [30, 10]),
        (["--to-datetime", "1970-01-01T00:00:01.500"], [33, 20]),
        (["--by-duration", "PT1H"], [33, 20]),
    ],
)
def test_where_a_group_can_be_set(cluster, where, expected):
    cluster.times = {Partition("t", 0): 33}
    assert moved(cluster, "--all-topics", *where) == {"t-0": expected[0], "t-1": expected[1]}


@pytest.mark.parametrize(
    "where",
    [
        ["--to-datetime", "0001-01-01T00:00:00"],
        ["--to-datetime", "1969-12-31T23:59:59.999"],
        ["--by-duration", "P99999D"],
    ],
)
def test_a_time_before_all_records_is_not_one_of_the_brokers_marks(cluster, where):
    moved(cluster, "--all-topics", *where)
    assert cluster.asked_for_ms == 0, "a broker takes -1 for the end of the log"


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", ""],
        ["delete", "", "--yes"],
        ["delete-offsets", "", "--topic", "t", "--yes"],
        ["reset-offsets", "", "--topic", "t", "--to-latest"],
    ],
)
def test_an_empty_group_id_is_wrong_usage(cluster, arguments):
    result = run(*arguments)
    assert (result.exit_code, "a group id is not empty" in result.stderr) == (2, True), result.stderr


def test_states_that_there_are_not(cluster):
    cluster.add("g")
    assert run("list", "--state", "EMPTY", "-o", "name").stdout == "g\n"
    result = run("list", "--state", "Emty")
    assert (result.exit_code, "'Emty' is not one of" in result.stderr) == (2, True)


def test_partitions_without_a_committed_offset(cluster):
    assert moved(cluster, "--topic", "t", "--to-current") == {"t-0": 40, "t-1": 15, "t-2": 0}
    assert moved(cluster, "--topic", "u", "--to-current") == {"t-0": 40, "t-1": 15, "u-0": 7}
    assert moved(cluster, "--topic", "t:0", "--topic", "u", "--to-earliest") == {"t-0": 0, "t-1": 15, "u-0": 0}
    result = run("reset-offsets", "g", "--topic", "t", "--shift-by", "1")
    assert (result.exit_code, "t-2 has no committed offset to shift" in result.stderr) == (1, True)


def test_nothing_is_changed_without_execute(cluster):
    for flag in ([], ["--dry-run"]):
        cluster.add("g", t_0=40)
        result = run("reset-offsets", "g", "--topic", "t:0,1", "--to-offset", "500", *flag, "-o", "json")
        assert result.exit_code == 0
        assert "dry run, nothing was changed" in result.stderr
        assert cluster.offsets["g"] == {Partition("t", 0): 40}
        assert json.loads(result.stdout) == [
            {"topic": "t", "partition": 0, "before": 40, "after": 100, "logStart": 0, "logEnd": 100, "lag": 0, "remark": "500 is beyond the log"},
            {"topic": "t", "partition": 1, "before": None, "after": 20, "logStart": 10, "logEnd": 20, "lag": 0, "remark": "500 is beyond the log"},
        ]  # fmt: skip


def test_a_plan_goes_through_a_file(cluster, tmp_path):
    cluster.add("g", t_0=40, t_1=15)
    plan = tmp_path / "plan.csv"
    plan.write_text(run("reset-offsets", "g", "--all-topics", "--to-earliest", "-o", "csv").stdout)
    assert plan.read_text() == '"t",0,0\n"t",1,10\n'
    assert run("reset-offsets", "g", "--from-file", str(plan), "--execute").exit_code == 0
    assert cluster.offsets["g"] == {Partition("t", 0): 0, Partition("t", 1): 10}
    plan.write_text('"other","t",0,7\n"g","t",1,12\n')
    assert run("reset-offsets", "g", "--from-file", str(plan), "--execute").exit_code == 0
    assert cluster.offsets["g"] == {Partition("t", 0): 0, Partition("t", 1): 12}
    for text, words in [("t,0", "line 1"), ("t,0,x", "line 1"), ("", "no offsets"), ("other,t,0,1", "no offsets")]:
        plan.write_text(text)
        assert words in run("reset-offsets", "g", "--from-file", str(plan)).stderr


def test_a_group_with_members_is_left_alone(cluster):
    cluster.add("g", "Stable", members=(member("c"),), t_0=40)
    result = run("reset-offsets", "g", "--all-topics", "--to-earliest", "--execute")
    assert (result.exit_code, "group 'g' is Stable with 1 members" in result.stderr) == (1, True)
    assert cluster.offsets["g"] == {Partition("t", 0): 40}


def test_offsets_that_are_refused_are_named(cluster):
    cluster.refuse = {Partition("t", 1): "no"}
    cluster.add("g", t_0=40, t_1=15)
    result = run("reset-offsets", "g", "--all-topics", "--to-earliest", "--execute")
    assert result.exit_code == 1
    assert "t-1: not changed: no" in result.stderr
    assert "1 of 2 offsets of group 'g' were not changed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--topic", "t"], 2, "say where to"),
        (["--topic", "t", "--to-latest", "--to-offset", "1"], 2, "say where to"),
        (["--topic", "t", "--to-earliest", "--to-latest"], 2, "say where to"),
        (["--topic", "t", "--by-duration", "P99999999999999D"], 1, "is longer than there are times"),
        (["--to-latest"], 2, "say which partitions"),
        (["--topic", "t", "--all-topics", "--to-latest"], 2, "say which partitions"),
        (["--topic", "t", "--to-latest", "--execute", "--dry-run"], 2, "--dry-run or --execute?"),
        (["--topic", "t:9", "--to-latest"], 1, "topic 't' has no partition 9: it has 0 to 2"),
        (["--topic", "t:", "--to-latest"], 1, "not of the form topic"),
        (["--topic", "t", "--to-datetime", "soon"], 1, "is not a time like"),
        (["--topic", "t", "--by-duration", "soon"], 1, "is not a duration like"),
        (["--all-topics", "--to-latest"], 1, "no committed offsets: name topics"),
    ],
)
def test_resets_that_cannot_be(cluster, arguments, code, words):
    result = run("reset-offsets", "g", *arguments)
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr


def test_a_partition_that_nobody_leads_stops_the_plan():
    with pytest.raises(Failure, match="t-1 are not known"):
        reset.plan(
            reset.Wish(to="latest"),
            [Partition("t", 0), Partition("t", 1)],
            committed={},
            logs={Partition("t", 0): Log(0, 1)},
            at_time={},
        )


def test_a_partition_that_does_not_tell_where_a_time_is_stops_the_plan(cluster, monkeypatch):
    cluster.add("g", t_0=40, t_1=15)
    known = {Partition("t", 0): 33}
    monkeypatch.setattr(cluster, "offsets_at", lambda _partitions, _timestamp_ms: known)
    result = run("reset-offsets", "g", "--all-topics", "--by-duration", "PT1H", "--execute")
    assert (result.exit_code, "t-1 are not known" in result.stderr) == (1, True), result.output
    assert cluster.offsets["g"] == {Partition("t", 0): 40, Partition("t", 1): 15}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("p2w", 1_209_600_000), ("1h30m", 5_400_000), ("45s", 45_000)],
)
def test_durations(text, milliseconds):
    assert reset.parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1h-3m", "1", "P1H"])
def test_no_durations(text):
    with pytest.raises(Failure, match="is not a duration"):
        reset.parse_duration(text)


def test_times_are_utc_unless_they_say_otherwise(monkeypatch):
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        _times_are_utc()
    finally:
        monkeypatch.undo()
        time.tzset()


def _times_are_utc():
    assert reset.parse_datetime("1970-01-02T00:00:00.250") == 86_400_250
    assert reset.parse_datetime("1970-01-02T01:00:00+01:00") == 86_400_000
    assert reset.parse_datetime("1970-01-02T00:00:00Z") == 86_400_000


# --- delete, delete-offsets ------------------------------------------------------------------------------------------


def test_deleting_groups(cluster):
    cluster.add("g")
    assert run("delete", "g", input="n\n").exit_code == 1
    assert "g" in cluster.groups
    result = run("delete", "g", "absent", "g", input="y\n")
    assert result.exit_code == 1
    assert result.stdout == "group g deleted\n"
    assert "group 'absent': The group id does not exist" in result.stderr
    assert cluster.groups == {}


def test_deleting_offsets(cluster):
    cluster.add("g", t_0=1, t_1=2, u_0=3)
    result = run("delete-offsets", "g", "--topic", "t:1,2", "--topic", "u", "--yes")
    assert (result.exit_code, result.stdout) == (0, "t-1: offset 2 deleted\nu-0: offset 3 deleted\n")
    assert cluster.offsets["g"] == {Partition("t", 0): 1}
    assert "has no committed offsets there" in run("delete-offsets", "g", "--topic", "u", "--yes").stderr
    cluster.refuse = {Partition("t", 0): "subscribed"}
    result = run("delete-offsets", "g", "--topic", "t", input="y\n")
    assert (result.exit_code, "t-0: subscribed" in result.stderr) == (1, True)


# --- confluent-kafka -------------------------------------------------------------------------------------------------


class Future:
    def __init__(self, value):
        self._value = value

    def result(self):
        if isinstance(self._value, BaseException):
            raise self._value
        return self._value


class Client:
    """An AdminClient that knows one answer to each question."""

    def __init__(self, **answers):
        self._answers = answers

    def __getattr__(self, name):
        return lambda *arguments, **_more: self._answers[name](*arguments)


def with_client(**answers):
    made = object.__new__(admin.ConfluentGroupAdmin)
    made._client = Client(**answers)
    return made


def refused(code):
    return Future(KafkaException(KafkaError(code)))


def test_unknown_groups_are_dead_whatever_the_version_of_the_answer():
    client = with_client(
        describe_consumer_groups=lambda ids: {each: refused(KafkaError.GROUP_ID_NOT_FOUND) for each in ids}
    )
    [group] = client.describe(["g"])
    assert not group.exists
    client = with_client(describe_consumer_groups=lambda ids: {each: refused(KafkaError._TIMED_OUT) for each in ids})
    with pytest.raises(Failure, match=r"group 'g': Timed out \(_TIMED_OUT\)"):
        client.describe(["g"])


def test_times_after_the_last_record_mean_the_end():
    def list_offsets(wanted):
        [(partition, spec)] = wanted.items()
        number = {True: 42, False: -1}[spec is admin.LATEST]
        return {partition: Future(type("Info", (), {"offset": number}))}

    client = with_client(list_offsets=list_offsets)
    assert client.offsets_at([Partition("t", 0)], 5) == {Partition("t", 0): 42}


def test_who_does_not_say_where_a_time_is_does_not_mean_the_end():
    def list_offsets(wanted):
        [(partition, spec)] = wanted.items()
        found = Future(type("Info", (), {"offset": 42}))
        return {
            partition: found if spec in (admin.EARLIEST, admin.LATEST) else refused(KafkaError.NOT_LEADER_FOR_PARTITION)
        }

    client = with_client(list_offsets=list_offsets)
    assert client.offsets_at([Partition("t", 0)], 5) == {}


def test_partitions_without_a_leader_have_no_known_end():
    client = with_client(list_offsets=lambda wanted: dict.fromkeys(wanted, refused(KafkaError.LEADER_NOT_AVAILABLE)))
    assert client.logs([Partition("t", 0)]) == {}


def test_what_is_committed_is_read_past_errors_and_gaps():
    answer = type("Answer", (), {"topic_partitions": [TopicPartition("t", 0, 5), TopicPartition("t", 1, -1001)]})
    client = with_client(list_consumer_group_offsets=lambda requests: {requests[0].group_id: Future(answer)})
    assert client.committed("g") == {Partition("t", 0): 5}
