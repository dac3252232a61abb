import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from rich.console import Console

from kafkalite_cli.local_mode import folder, logs, processes, start, stop
from kafkalite_cli.local_mode.operator_manifest import operator_pod
from kafkalite_cli.local_mode.progress import Steps
from kafkalite_cli.local_mode.readiness import Readiness
from kafkalite_cli.main import main
from kafkalite_cli.manifests import QUICKSTART_TOPIC
from kafkalite_cli.snapshot import Snapshot
from kafkalite_local import supervisor
from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.home import Home, Ports, ProcessRecord, start_time_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    monkeypatch.setenv("KAFKALITE_HOME", str(home.root))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KAFKALITE_PORT", raising=False)
    return home


@pytest.fixture
def broker(home):
    """A process that stands for broker 0."""
    home.create()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    record = ProcessRecord(
        name="kafkalite-broker-0",
        pid=process.pid,
        start_time=start_time_of(process.pid),
        started_at="",
        details={"restartCount": 2},
    )
    record.write(home.pod_records / "kafkalite-broker-0.json")
    yield process
    process.kill()
    process.wait()


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_help_shows_examples_line_by_line():
    for arguments in ([], ["up"], ["status"], ["kill"], ["apply"], ["verify"]):
        result = run(*arguments, "--help")
        assert result.exit_code == 0
        assert "\n  Examples:\n    " in result.output, arguments


def test_kill_sends_the_signal_and_says_to_whom(home, broker):
    result = run("kill", "0", "--signal", "term")
    assert result.output == f"sent SIGTERM to broker-0 (pid {broker.pid})\n"
    assert broker.wait(5) == -15
    result = run("kill", "0")
    assert result.exit_code == 1
    assert "does not run just now" in result.output
    result = run("kill", "7")
    assert result.exit_code == 1
    assert "no process 7" in result.output
    assert "there are: 0" in result.output


def nobody_answers(home):
    home.create()
    home.kubeconfig.write_text(
        json.dumps(
            {
                "contexts": [{"name": "x", "context": {"cluster": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
            }
        )
    )


def test_apply_without_an_api_server(home, tmp_path):
    nobody_answers(home)
    manifest = tmp_path / "topic.yaml"
    manifest.write_text(json.dumps(QUICKSTART_TOPIC))
    result = run("apply", "-f", str(manifest))
    assert result.exit_code == 1
    assert "is not running (start it with `kafkalite up`)" in result.stderr


def test_applying_nothing_is_an_error(home, tmp_path):
    (tmp_path / "empty.yaml").write_text("---\n")
    result = run("apply", "-f", str(tmp_path / "empty.yaml"))
    assert result.exit_code == 1
    assert "no objects in" in result.stderr


def test_status_without_an_api_server_still_shows_processes(home, broker):
    nobody_answers(home)
    result = run("status", "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["processes"] == [{"name": "broker-0", "pid": broker.pid, "state": "running"}]
    assert "does not answer" in result.stderr
    broker.send_signal(19)
    os.waitid(os.P_PID, broker.pid, os.WSTOPPED)
    assert json.loads(run("status", "-o", "json").stdout)["processes"][0]["state"] == "stopped"
    broker.kill()
    broker.wait()
    result = run("status")
    assert "is not running (`kafkalite up` starts it)" in result.stderr


def test_no_cluster_at_all(home):
    assert "start one with `kafkalite up`" in run("status").output
    assert "nothing to stop" in run("down").output
    assert "nothing to remove" in run("clean").output
    assert "no log" in run("logs", "broker-0").output


def test_following_a_log_ends_as_any_interrupt_does(home, monkeypatch):
    def follow(*_args):
        yield "line\n"
        raise KeyboardInterrupt

    home.create()
    home.log("broker-0").touch()
    monkeypatch.setattr(logs, "follow", follow)
    result = run("logs", "0", "-f")
    assert (result.exit_code, result.output) == (130, "line\n")


def test_logs(home):
    home.create()
    home.log("broker-0").write_text("".join(f"line {n}\n" for n in range(10)))
    assert run("logs", "0", "-n", "2").output == "line 8\nline 9\n"
    assert "there are: broker-0" in run("logs", "nobody").output
    assert run("logs", "../../etc/passwd").exit_code == 1


def test_last_lines_of_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "BLOCK", 7)
    path = tmp_path / "x.log"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    assert logs.last_lines(path, 3) == ["line 97", "line 98", "line 99"]
    assert logs.last_lines(path, 0) == []
    assert len(logs.last_lines(path, 1000)) == 100
    assert logs.last_lines(tmp_path / "absent", 3) == []


def test_following_survives_rotation(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("old\n")
    following = logs.follow(path, path.stat().st_size)
    with path.open("a") as writer:
        writer.write("new\n")
    assert next(following) == "new\n"
    path.write_text("x\n")
    assert next(following) == "x\n"


def test_log_lines_for_people():
    line = {
        "ts": "2026-01-01T10:11:12.345678Z",
        "level": "error",
        "msg": "it broke\nbadly",
        "exception": "Trace\nValueError: x",
        "pod": "a",
    }
    assert logs.readable([json.dumps(line), json.dumps(line), "plain"]) == [
        "10:11:12.345 error   it broke pod=a ValueError: x (2 times)",
        "plain",
    ]
    assert len(logs.readable(["y" * 1000])[0]) == logs.LINE_LIMIT


@pytest.fixture
def occupied():
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", free_ports().broker(1)))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_busy_port_is_named_with_its_holder_and_nothing_starts(home, occupied, monkeypatch):
    monkeypatch.setenv("KAFKALITE_PORT", str(occupied - 1))
    monkeypatch.setattr(start, "_launch", lambda *_: pytest.fail("must not start"))
    result = run("up")
    assert result.exit_code == 1
    assert f"port {occupied}, needed for broker 1, is in use by pid {os.getpid()} (" in result.output
    monkeypatch.setenv("KAFKALITE_PORT", "many")
    assert "KAFKALITE_PORT=many: expected a number" in run("up").output


def test_a_port_of_an_outgoing_connection_is_told_as_one(occupied):
    with socket.create_connection(("127.0.0.1", occupied)) as connection:
        port = connection.getsockname()[1]
        assert processes.port_holder(port).startswith("a connection (it gets any port from ")


def test_a_port_held_by_an_own_process_is_not_busy(home, occupied):
    home.create()
    pid = os.getpid()
    ProcessRecord(name="kafkalite-broker-0", pid=pid, start_time=start_time_of(pid), started_at="").write(
        home.pod_records / "kafkalite-broker-0.json"
    )
    start._check_ports(home, Ports(occupied - 1))


def test_a_cluster_keeps_its_ports(home, monkeypatch):
    home.create()
    assert start._settled_ports(home, Ports(9092)) == Ports(9092)
    (home.root / folder.PORT_NOTE).write_text("19092\n")
    assert start._settled_ports(home, Ports(9092)) == Ports(9092), "a start that made no cluster binds nobody"
    home.database.touch()
    assert start._settled_ports(home, Ports(9092)) == Ports(19092)
    monkeypatch.setenv("KAFKALITE_PORT", "9092")
    with pytest.raises(start.Failure, match="was made with KAFKALITE_PORT=19092"):
        start._settled_ports(home, Ports(9092))


def test_a_note_of_the_port_without_one_is_told(home, monkeypatch):
    """A full disk left an empty one, and `up` ended with a traceback ever after."""
    home.create()
    home.database.touch()
    (home.root / folder.PORT_NOTE).touch()
    with pytest.raises(start.Failure, match=r"port-base does not say .*: set KAFKALITE_PORT to .*, 9092 if"):
        start._settled_ports(home, Ports(9092))
    monkeypatch.setenv("KAFKALITE_PORT", "19092")
    assert start._settled_ports(home, Ports(19092)) == Ports(19092)


def test_the_note_of_the_port_survives_a_start_that_finds_the_disk_full(home, monkeypatch):
    home.create()
    note = home.root / folder.PORT_NOTE
    note.write_text("19092\n")

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))  # as a full disk: files can be made and emptied
    try:
        with pytest.raises(OSError, match="File too large"):
            start._launch(home, Ports(19092), Steps(Console(quiet=True)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert note.read_text() == "19092\n"


@pytest.mark.parametrize(
    ("error", "stopped"),
    [
        (start.TopicsNotReady(["topic t: 5 need 5"]), 0),
        (start.ManifestsRefused(["topic t: partitions can only grow"]), 0),
        (start.NotReady("x"), 1),
    ],
)
def test_a_cluster_is_not_stopped_for_its_topics(home, monkeypatch, error, stopped):
    async def bring_up(*_args):
        raise error

    stops = []
    monkeypatch.chdir(home.root.parent)
    monkeypatch.setattr(start, "_check_ports", lambda *_: None)
    monkeypatch.setattr(start, "_launch", lambda *_: None)
    monkeypatch.setattr(start, "_bring_up", bring_up)
    monkeypatch.setattr(start.stop, "stop_all", lambda *_args, **_more: stops.append(1))
    result = CliRunner().invoke(main, ["up"])
    assert result.exit_code == 1
    assert len(stops) == stopped
    assert ("was not stopped" in result.output) == (not stopped)


@pytest.mark.parametrize("error", [start.NotReady("x", "apiserver"), KeyboardInterrupt()])
def test_what_ran_before_is_not_stopped(home, broker, monkeypatch, error):
    async def bring_up(*_args):
        raise error

    monkeypatch.chdir(home.root.parent)
    monkeypatch.setattr(start, "_check_ports", lambda *_: None)
    monkeypatch.setattr(start, "_launch", lambda *_: None)
    monkeypatch.setattr(start, "_bring_up", bring_up)
    result = run("up")
    assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert "`kafkalite down`" in result.output
    assert broker.poll() is None


def test_an_interrupt_says_what_becomes_of_the_cluster(home, monkeypatch):
    async def bring_up(*_args):
        raise KeyboardInterrupt

    stops = []
    monkeypatch.setattr(start, "_check_ports", lambda *_: None)
    monkeypatch.setattr(start, "_launch", lambda *_: None)
    monkeypatch.setattr(start, "_bring_up", bring_up)
    monkeypatch.setattr(start.stop, "stop_all", lambda *_args, **_more: stops.append(1))
    result = run("up")
    assert (result.exit_code, stops) == (130, [1])
    assert result.stderr == "interrupted: stopping everything again\n"


def test_only_what_this_start_logged_counts(home):
    home.create()
    record = ProcessRecord(
        name="supervisor",
        pid=os.getpid(),
        start_time=start_time_of(os.getpid()),
        started_at="2026-11-26T12:00:00Z",
        details={},
    )
    record.write(home.record("supervisor"))

    def ended(minute):
        return json.dumps({"process": "apiserver", "ts": f"2026-11-26T{minute}:01.5Z", "msg": "ended"})

    home.log("supervisor").write_text("\n".join([ended("11:58")] * 3 + ["Traceback", ended("12:00")]) + "\n")
    assert start._crash_count(home, "apiserver") == 1
    lines = home.log("supervisor").read_text().splitlines()
    assert start.of_this_start(home, lines) == ["Traceback", ended("12:00")]


def test_an_end_after_a_while_begins_a_new_row(home):
    assert start.STABLE_S == supervisor.STABLE_S, "as for who starts it again"
    home.create()

    def said(what, second):
        return json.dumps({"process": "apiserver", "ts": f"2026-11-26T12:00:{second:02}.5Z", "msg": what})

    def count(*lines):
        home.log("supervisor").write_text("\n".join(lines) + "\n")
        return start._crash_count(home, "apiserver")

    quick = [said("started", 0), said("ended", 1), said("started", 2), said("ended", 3), said("started", 4)]
    assert count(*quick, said("ended", 5)) == 3
    assert count(*quick, said("ended", 14)) == 1
    assert count(said("adopted", 0), said("ended", 11), said("ended", 12)) == 2


class Quiet:
    """Steps that say nothing."""

    def begin(self, _title):
        pass

    waiting = done = begin


@pytest.mark.parametrize(("reason", "rejudge_s", "timeout_s"), [("", 0.01, 60), ("topic u waits", 2, 0.05)])
async def test_topics_to_correct_end_the_waiting(home, monkeypatch, reason, rejudge_s, timeout_s):
    async def read(*_args):
        return Snapshot()

    state = Readiness(topics=reason, to_correct=("topic t: 5 need 5",))
    monkeypatch.setattr(start, "read_snapshot", read)
    monkeypatch.setattr(start, "judge", lambda *_args, **_more: state)
    monkeypatch.setattr(start, "_check_supervised", lambda _home: None)
    monkeypatch.setattr(start, "REJUDGE_S", rejudge_s)
    with pytest.raises(start.TopicsNotReady, match=reason or "topic t: 5 need 5"):
        await start._wait_until_ready(home, None, Quiet(), time.monotonic() + timeout_s, timeout_s)


def test_two_ups_at_once(home):
    with start._one_at_a_time(home):
        assert "another `kafkalite up` is at work" in run("up").output


@pytest.mark.parametrize("command", ["up", "down", "clean"])
def test_a_home_that_is_a_file(home, command):
    home.root.write_text("precious")
    result = run(command)
    assert result.exit_code == 1
    assert "KAFKALITE_HOME" in result.output
    assert "defect" not in result.output
    assert home.root.read_text() == "precious"


def test_a_home_that_cannot_be_made(monkeypatch):
    monkeypatch.setenv("KAFKALITE_HOME", "/proc/kafkalite")
    result = run("up")
    assert result.exit_code == 1
    assert "no cluster can be kept in /proc/kafkalite (/proc/kafkalite: No such file or directory)" in result.output


@pytest.mark.parametrize("command", ["down", "clean"])
def test_somebody_elses_folder_is_not_called_stopped(home, command):
    home.root.mkdir()
    (home.root / "thesis.txt").write_text("precious")
    result = run(command)
    assert result.exit_code == 1
    assert "does not look like a KafkaLite folder" in result.output


def test_stopping_kills_what_is_left(home, broker, monkeypatch):
    assert stop.stop_all(home, timeout_s=1) == ["broker-0"]
    assert broker.wait(5) == -9


def test_clean_removes_only_its_own(home):
    home.root.mkdir()
    (home.root / "thesis.txt").write_text("precious")
    result = run("clean")
    assert "does not look like a KafkaLite folder" in result.output
    assert (home.root / "thesis.txt").exists()
    (home.root / "thesis.txt").unlink()
    home.create()
    assert run("clean").output == f"removed {home.root}\n"
    assert not home.root.exists()


def test_the_operators_manifest():
    (container,) = operator_pod(Ports(19092))["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert (env["KAFKALITE_METRICS_HOST"], env["KAFKALITE_METRICS_PORT"]) == ("127.0.0.1", "19202")
    cluster = json.loads(env["KAFKALITE_DEFAULT_CLUSTER"])
    assert cluster["listeners"] == [{"name": "plain", "type": "hostport", "port": 19092, "host": "127.0.0.1"}]
    assert cluster["metrics"] == {"port": 19192}
    assert cluster["replicas"] == 3
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 19202}
    liveness = container["livenessProbe"]
    assert liveness["httpGet"] == {"path": "/healthz", "port": 19202}, "/readyz depends on the API server"
    assert (liveness["periodSeconds"], liveness["failureThreshold"]) == (5, 3)


def test_names_for_people():
    assert processes.display_name("kafkalite-operator-local") == "operator"
    assert processes.display_name("kafkalite-broker-2") == "broker-2"
    assert processes.display_name("other-broker-2") == "other-broker-2"
    assert processes.display_name("x.kafkalite-broker-2") == "x.broker-2"
