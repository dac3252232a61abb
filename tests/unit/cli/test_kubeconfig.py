"""Which cluster, which context and which namespace a command means: as kubectl, of which it is a plugin."""

import json
import sys
import time

import pytest
import yaml
from click.testing import CliRunner

from kafkalite_cli import connection, kubeconfig
from kafkalite_cli.errors import Failure
from kafkalite_cli.main import main
from kafkalite_cli.manifests import QUICKSTART_TOPIC
from kafkalite_cli.options import KubeOptions
from kafkalite_core.model.errors import ConfigError
from kafkalite_runtime.kube import TOPICS
from tests.unit.cli.world import World, entry


def config(*contexts, current=None, user=None, **cluster):
    return {
        "current-context": current,
        "contexts": [
            {"name": name, "context": {"cluster": f"c-{name}", "user": "u", "namespace": f"of-{name}"}} for name in contexts
        ],
        "clusters": [
            {"name": f"c-{name}", "cluster": {"server": f"http://{name}.invalid:1", **cluster}} for name in contexts
        ],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(name, document):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def test_a_context_is_chosen_by_name_else_the_current_one_else_the_first(write):
    path = write("k", config("a", "b", current="b"))
    assert kubeconfig.load([path]).server == "http://b.invalid:1"
    found = kubeconfig.load([path], "a")
    assert (found.server, found.namespace, found.token) == ("http://a.invalid:1", "of-a", "secret")
    assert kubeconfig.load([write("n", config("a", "b"))]).namespace == "of-a"
    with pytest.raises(ConfigError, match=r"no c among its contexts \(there are: a, b\)"):
        kubeconfig.load([path], "c")


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        (["status"], ""),
        (["topics", "list"], "Error: "),
        (["reassign", "status"], "Error: "),
        (["restart", "--all", "--yes"], "Error: "),
        (["doctor"], "Error: "),
        (["apply", "-f", "topic.yaml"], "Error: KafkaLiteTopic quickstart: "),
    ],
    ids=["status", "topics", "reassign", "restart", "doctor", "apply"],
)
def test_an_api_server_that_is_away_is_named_with_what_to_do(write, monkeypatch, command, subject):
    document = config("prod")
    document["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    path = write("k", document)
    write("topic.yaml", QUICKSTART_TOPIC)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("KAFKALITE_HOME", str(path.parent / "absent"))
    result = CliRunner().invoke(main, [*command, "--kubeconfig", str(path), "--context", "prod"])
    assert result.exit_code
    assert result.stderr == (
        f"{subject}the API server http://127.0.0.1:1 does not answer (Connection refused); context prod of {path} "
        "names it: see that it runs and can be reached from here\n"
    )


def test_several_files_are_one_and_the_first_counts(write):
    first, second = write("1", config("a")), write("2", config("a", "b", current="b"))
    other = yaml.safe_load(second.read_text())
    other["clusters"][0]["cluster"]["server"] = "http://other.invalid:1"
    second.write_text(yaml.safe_dump(other))
    assert kubeconfig.load([first, second]).server == "http://b.invalid:1", "the current context is of the second"
    assert kubeconfig.load([first, second], "a").server == "http://a.invalid:1"


def test_paths_are_relative_to_their_own_file(write, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "token").write_text("from-file")
    path = write("sub/k", config("a", user={"tokenFile": "token"}))
    assert kubeconfig.load([write("k", config("z")), path], "a").token_file is None, "the first user u counts"
    assert kubeconfig.load([path]).token_file.get() == "from-file"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "has no context"),
        ([], "has no context"),
        (config("a", **{"proxy-url": "http://p"}), "through a proxy"),
        (config("a", **{"tls-server-name": "x"}), "tls-server-name"),
        (config("a", server=""), "no server address"),
        (config("a", server="https://x", **{"certificate-authority": "gone.pem"}), "certificates cannot be used"),
        ({**config("a"), "users": []}, r"no u among its users \(there are: none\)"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_which(write, document, words):
    path = write("k", document)
    with pytest.raises(ConfigError, match=words) as raised:
        kubeconfig.load([path])
    assert str(path) in str(raised.value)


PLUGIN = """
import json, os, pathlib, sys
count = pathlib.Path(sys.argv[1])
count.write_text(str(int(count.read_text() or 0) + 1))
assert json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] == "ExecCredential"
if len(sys.argv) > 3:
    sys.exit("not logged in")
print(json.dumps({
    "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
    "status": {"token": "token-" + count.read_text(), "expirationTimestamp": sys.argv[2]},
}))
"""


def plugin(tmp_path, *, expires, fails=()):
    (tmp_path / "plugin.py").write_text(PLUGIN)
    count = tmp_path / "count"
    count.write_text("")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + expires))
    arguments = [str(tmp_path / "plugin.py"), str(count), stamp, *fails]
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": arguments},
    }


def test_a_login_plugin_is_asked_again_when_its_token_expires(write, tmp_path):
    lasting = kubeconfig.load([write("k", config("a", user=plugin(tmp_path, expires=3600)))])
    assert [lasting.token_file.get(), lasting.token_file.get()] == ["token-1", "token-1"]
    lasting.token_file.forget()
    assert lasting.token_file.get() == "token-2"
    short = kubeconfig.load([write("k", config("a", user=plugin(tmp_path, expires=5)))])
    assert [short.token_file.get(), short.token_file.get()] == ["token-2", "token-3"]


def test_a_login_plugin_that_fails_is_named(write, tmp_path):
    path = write("k", config("a", user=plugin(tmp_path, expires=5, fails=["yes"])))
    with pytest.raises(ConfigError, match=r"login plugin .* failed: .*not logged in"):
        kubeconfig.load([path])
    path = write("k", config("a", user={"exec": {"command": "/no/such", "apiVersion": "v1"}}))
    with pytest.raises(ConfigError, match=r"login plugin /no/such of the kubeconfig failed"):
        kubeconfig.load([path])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("as", "admin", "acts as somebody else"),
        ("as-groups", ["system:masters"], "acts as somebody else"),
        ("as-uid", "7", "acts as somebody else"),
        ("as-user-extra", {"reason": ["audit"]}, "acts as somebody else"),
        ("username", "me", "logs in by name and password"),
        ("password", "hidden", "logs in by name and password"),
    ],
)
def test_another_identity_than_kubectls_is_not_taken(write, key, value, words):
    path = write("k", config("a", user={"token": "secret", key: value}))
    with pytest.raises(ConfigError, match=f"user u {words}.*which is not served") as caught:
        kubeconfig.load([path])
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert kubeconfig.load([write("empty", config("a", user={"token": "secret", key: None}))]).token == "secret"


# --- which files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def places(write, tmp_path, monkeypatch):
    """A local cluster, KUBECONFIG, and the usual file; each can be taken away."""
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "local"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    found = {
        "local": write("local/kubeconfig", config("local")),
        "named": write("named", config("a", "b", current="b")),
        "usual": write(".kube/config", config("usual")),
    }
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'gone'}:{found['named']}")
    return found


def server_of(**options):
    target = connection.choose_target(KubeOptions(**options))
    return target.client().config.server, target.home is not None


def test_the_local_cluster_comes_first_and_last_for_kubectl(places, monkeypatch):
    assert server_of() == ("http://local.invalid:1", True)
    assert server_of(context="a") == ("http://a.invalid:1", False)
    assert server_of(kubeconfig=places["usual"]) == ("http://usual.invalid:1", False)
    assert server_of(kubeconfig=places["local"]) == ("http://local.invalid:1", True)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-kafkalite", "status"])
    assert server_of() == ("http://b.invalid:1", False)
    monkeypatch.delenv("KUBECONFIG")
    assert server_of() == ("http://usual.invalid:1", False)
    places["usual"].unlink()
    assert server_of() == ("http://local.invalid:1", True)


def test_without_any_cluster(places, monkeypatch):
    places["local"].unlink()
    assert server_of() == ("http://b.invalid:1", False)
    monkeypatch.setenv("KUBECONFIG", "/no/such")
    with pytest.raises(Failure, match="KUBECONFIG=/no/such: no such file"):
        server_of()
    monkeypatch.delenv("KUBECONFIG")
    places["usual"].unlink()
    with pytest.raises(Failure, match="start one with `kafkalite up`"):
        server_of()
    with pytest.raises(Failure, match="there is no kubeconfig"):
        server_of(context="a")


# --- which namespace, of every command -------------------------------------------------------------------------------


@pytest.fixture
def two(kube_server, world, write):
    """Two namespaces with a topic each, and a kubeconfig with a context for either."""
    other = World(kube_server)
    world.topic("mine", entry([0, 1, 2]))
    other.topic("theirs", entry([0, 1, 2]))
    document = yaml.safe_load(kube_server.kubeconfig.read_text())
    [context] = document["contexts"]
    document["contexts"] = [
        {"name": name, "context": {**context["context"], "namespace": each.namespace}}
        for name, each in (("one", world), ("two", other))
    ]
    document["current-context"] = "one"
    return write("two", document), other


def test_the_namespace_is_the_contexts_unless_it_is_named(two):
    path, other = two

    def topics(*arguments, code=0):
        result = CliRunner().invoke(main, ["topics", "list", "-o", "name", "--kubeconfig", str(path), *arguments])
        assert result.exit_code == code, result.output
        return set(result.output.split())

    assert topics() == {"mine"}
    assert topics("--context", "two") == {"theirs"}
    assert topics("-n", other.namespace) == {"theirs"}
    assert topics("-A") >= {"mine", "theirs"}
    topics("-A", "-n", "x", code=2)


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["topics", "list"],
        ["topics", "describe"],
        ["reassign", "status"],
        ["rebalance"],
        ["doctor"],
        ["decommission", "2", "--dry-run"],
    ],
    ids=" ".join,
)
def test_every_command_takes_a_kubeconfig_a_context_and_a_namespace(two, command):
    path, _ = two
    result = CliRunner().invoke(main, [*command, "--kubeconfig", str(path), "--context", "two", "-o", "json"])
    if "No such option" in result.output:
        result = CliRunner().invoke(main, [*command, "--kubeconfig", str(path), "--context", "two"])
    assert result.exit_code in {0, 1}, result.output
    assert "mine" not in result.output
    assert "Error" not in result.output or command[0] == "decommission", result.output


def test_applying_goes_to_the_contexts_namespace_too(two, tmp_path):
    path, other = two
    manifest = tmp_path / "t.json"
    topic = {"apiVersion": TOPICS.api_version, "kind": TOPICS.kind, "metadata": {"name": "new"}, "spec": {"partitions": 1, "replicas": 1}}  # fmt: skip
    manifest.write_text(json.dumps(topic))
    for arguments in (["--context", "two"], ["-n", other.namespace]):
        result = CliRunner().invoke(main, ["apply", "--kubeconfig", str(path), *arguments, "-f", str(manifest)])
        assert result.exit_code == 0, result.output
    assert other.get(TOPICS, "new")
