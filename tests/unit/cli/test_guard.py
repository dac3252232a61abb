import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kafkalite_cli import guard, kafka, main
from kafkalite_cli.errors import Failure
from kafkalite_cli.options import KafkaOptions, KubeOptions, read_properties
from kafkalite_cli.output import print_table, size_text
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_runtime.kube import KubeUnavailable
from tests.unit.cli.fakes import Api, cluster_object


def ending_with(monkeypatch, error):
    @click.command()
    def broken():
        raise error

    monkeypatch.setitem(main.LAZY, "broken", ("tests", "broken"))
    monkeypatch.setattr(main.importlib, "import_module", lambda _name: type("Module", (), {"broken": broken}))
    return CliRunner().invoke(main.main, ["broken"])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KafkaLiteError("no luck"), 1, "Error: no luck\n"),
        (
            KubeUnavailable("GET /x: E(1)", ambiguous=False, server="http://there:1", why="Connection refused"),
            1,
            "Error: the API server http://there:1 does not answer (Connection refused)\n",
        ),
        (Failure("no luck"), 1, "Error: no luck\n"),
        (click.UsageError("what?"), 2, "Error: what?"),
        (KeyboardInterrupt(), 130, ""),
        (guard.Terminated(), 143, ""),
        (PermissionError(13, "Permission denied", "/srv/x"), 1, "Error: /srv/x: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "Error: No space left on device\n"),
        (TimeoutError(), 1, "Error: this is a defect of kafkalite, please report it: TimeoutError"),
        (BrokenPipeError(), 141, ""),
        (
            ZeroDivisionError("by 0"),
            1,
            "Error: this is a defect of kafkalite, please report it: ZeroDivisionError: by 0 (",
        ),
    ],
)
def test_no_command_ends_in_a_traceback(monkeypatch, error, code, words):
    result = ending_with(monkeypatch, error)
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output


def test_every_command_shows_examples():
    seen = 0

    def walk(command, path):
        nonlocal seen
        if isinstance(command, click.Group):
            for name in command.list_commands(None):
                walk(command.get_command(None, name), [*path, name])
        if path and path[0] in {"topics", "groups", "produce", "consume"}:
            result = CliRunner().invoke(main.main, [*path, "--help"])
            assert (result.exit_code, "\n  Examples:\n    " in result.output) == (0, True), path
            seen += 1

    walk(main.main, [])
    assert seen == 14


@pytest.mark.parametrize(
    ("words", "last", "offered"),
    [
        ("kafkalite top", 1, "topics"),
        ("kafkalite topics al", 2, "alter"),
        ("kafkalite topics alter --rep", 3, "--replicas"),
    ],
)
def test_completion_as_the_documentation_sets_it_up(words, last, offered):
    environment = {"_KAFKALITE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(last)}
    result = CliRunner().invoke(main.main, prog_name="kafkalite", env=environment)
    assert (result.exit_code, result.stdout) == (0, f"plain,{offered}\n")


FLOOD = """
import sys
from kafkalite_cli.main import main

@main.command()
def flood():
    sys.stdout.write("x")
    sys.stdout.flush()

main(["flood"])
"""


def test_nothing_complains_about_a_closed_pipe():
    read, write = os.pipe()
    os.close(read)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", FLOOD], env=buffered, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


SLEEPER = """
import time
from kafkalite_cli.main import main

@main.command()
def sleeper():
    try:
        print("asleep", flush=True)
        time.sleep(60)
    finally:
        print("in order", flush=True)

main(["sleeper"])
"""


def test_sigterm_ends_a_command_in_order():
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "asleep\n"
    process.terminate()
    assert process.communicate(timeout=20)[0] == "in order\n"
    assert process.returncode == 143


CHECKED = """
from rich.console import Console
from kafkalite_cli.local_mode.progress import Steps
from kafkalite_cli.main import main

@main.command()
def checked():
    with Steps(Console()) as steps:
        steps.done("ready")

main(["checked"])
"""


def test_what_the_terminal_cannot_show_is_no_error():
    result = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout[:8], result.stderr) == (0, "? ready ", "")


def test_tables(capsys):
    rows = [{"name": "a", "n": 1, "flag": True}, {"name": "long name", "n": None, "flag": False}]
    print_table([row | {"name": row["name"] + "\x1b[31m"} for row in rows])
    assert capsys.readouterr().out.splitlines() == [
        "name               n  flag",
        "a\\x1b[31m          1  yes",
        "long name\\x1b[31m  -  no",
    ]
    print_table([], empty="nothing")
    assert capsys.readouterr().out == "nothing\n"


@pytest.mark.parametrize(
    ("size", "text"), [(None, None), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**60, "1024.0 PiB")]
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_property_files(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("# comment\n\nsecurity.protocol = SSL\nssl.ca.location=/a=b\n")
    assert read_properties(path) == {"security.protocol": "SSL", "ssl.ca.location": "/a=b"}
    path.write_text("a=1\nsasl.password: hunter2\n")
    with pytest.raises(click.UsageError, match="line 2 is not of the form key=value") as caught:
        read_properties(path)
    assert "hunter2" not in str(caught.value)


# --- bootstrap -------------------------------------------------------------------------------------------------------


@pytest.fixture
def local(monkeypatch, tmp_path):
    """A local cluster whose API server is the one that is set."""
    from kafkalite_cli import connection

    def set_api(api, server="http://127.0.0.1:19212"):
        context = {"name": "x", "context": {"cluster": "x"}}
        cluster = {"name": "x", "cluster": {"server": server}}
        (tmp_path / "kubeconfig").write_text(json.dumps({"contexts": [context], "clusters": [cluster]}))
        monkeypatch.setattr(connection.Target, "client", lambda _self: api)

    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return set_api


def test_the_clusters_own_addresses(local):
    local(Api(clusters=[cluster_object(bootstrap="a:1,b:2")]))
    assert kafka.find_bootstrap(KubeOptions())[0] == "a:1,b:2"
    local(Api(clusters=[cluster_object(), cluster_object("second", bootstrap="c:3")]))
    with pytest.raises(Failure, match="default/kafkalite, default/second"):
        kafka.find_bootstrap(KubeOptions())
    assert kafka.find_bootstrap(KubeOptions(cluster="second"))[0] == "c:3"
    local(Api(clusters=[cluster_object(bootstrap=None)]))
    with pytest.raises(Failure, match=r"no status\.bootstrap yet"):
        kafka.find_bootstrap(KubeOptions())
    with pytest.raises(
        Failure, match="there is no KafkaLiteCluster 'third' in any namespace; name the brokers with --bootstrap"
    ):
        kafka.find_bootstrap(KubeOptions(cluster="third"))


@pytest.mark.parametrize(
    ("namespace", "cluster", "options", "make"),
    [
        ("default", "kafkalite", {}, ""),
        ("default", "events", {}, " --cluster events"),
        ("default", "events", {"all_namespaces": True}, " --cluster events"),
        ("kafka", "kafkalite", {}, " -n kafka"),
        ("kafka", "events", {"namespace": "kafka", "cluster": "events"}, " -n kafka --cluster events"),
    ],
)
def test_a_topic_that_is_missing_is_made_in_the_cluster_that_was_asked(local, namespace, cluster, options, make):
    local(Api(clusters=[cluster_object(cluster, namespace=namespace)]))
    say = kafka.find_bootstrap(KubeOptions(**options)).say
    assert say.kafkalite("topics create t") == f"kafkalite topics create t{make}"


def test_clients_of_a_local_cluster_need_no_api_server(local):
    class Silent(Api):
        async def list(self, *_arguments, **_more):
            raise KubeUnavailable("refused", ambiguous=False)

    local(Silent())
    assert kafka.find_bootstrap(KubeOptions())[0] == "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"


def test_without_any_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Failure, match="--bootstrap HOST:PORT"):
        kafka.brokers_of(KafkaOptions())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h:1", ("h", 1)),
        ("h", ("h", 9092)),
        ("[::1]:5", ("::1", 5)),
        ("PLAINTEXT://h:7", ("h", 7)),
        (" h:1 ", ("h", 1)),
    ],
)
def test_addresses(text, address):
    assert kafka.split_address(text) == address


@pytest.mark.parametrize("text", [":1", "h:port", "h:99999", "[::1:9092", "kafka..svc:9092", f"{'a' * 64}.svc:9092"])
def test_no_addresses(text):
    with pytest.raises(Failure, match=r"is not an address \(host:port\)"):
        kafka.check_reachable(text)


@pytest.mark.parametrize("text", ["", " , "])
def test_nothing_is_no_address(text):
    with pytest.raises(Failure, match="names no address"):
        kafka.check_reachable(text)


def test_the_local_cluster_is_said_to_be_down_and_no_other(local, tmp_path, monkeypatch):
    def nobody_at(bootstrap, *listeners, **options):
        cluster = cluster_object(bootstrap=bootstrap)
        cluster["status"]["listeners"] = list(listeners)
        local(Api(clusters=[cluster]))
        with pytest.raises(Failure, match=r"no broker can be reached \(127\.0\.0\.1:1") as caught:
            kafka.brokers_of(KafkaOptions(kube=KubeOptions(**options)))
        return caught.value.message

    inside = "127.0.0.1:1"
    assert "is the cluster running? (`kafkalite up` starts it)" in nobody_at(inside)
    elsewhere = tmp_path / "elsewhere"
    local(Api())
    elsewhere.write_text((tmp_path / "kubeconfig").read_text())
    said = nobody_at(inside, {"name": "plain", "bootstrapServers": inside}, kubeconfig=elsewhere)
    assert "kafkalite up" not in said
    assert "--bootstrap with addresses that lead there, or a nodeport or loadbalancer listener" in said
    outside = {"name": "external", "bootstrapServers": "kafka.example.com:9094"}
    said = nobody_at(inside, {"name": "plain", "bootstrapServers": inside}, outside, kubeconfig=elsewhere)
    assert "try its listener external: --bootstrap kafka.example.com:9094" in said


def test_one_broker_that_listens_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        kafka.check_reachable(f"127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(Failure, match=r"127\.0\.0\.1:1: Connection refused"):
        kafka.brokers_of(KafkaOptions(bootstrap="127.0.0.1:1"))


# --- docs/cli.md -----------------------------------------------------------------------------------------------------


def commands(command, path=()):
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path)


def test_the_documentation_names_every_command_and_no_other():
    text = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    [table] = [block for block in text.split("\n\n") if block.startswith("| command | what it does |")]
    documented = [line.split("|")[1].strip().strip("`") for line in table.splitlines()[2:]]
    assert sorted(documented) == sorted(commands(main.main))


def test_options_that_the_documentation_names_exist():
    text = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    every = " ".join(CliRunner().invoke(main.main, [*path.split(), "--help"]).output for path in commands(main.main))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named
    assert {option for option in named if not re.search(rf"{option}\b", every)} == set()
