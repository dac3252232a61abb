import json
import threading

import pytest
from click.testing import CliRunner

from kafkalite_cli import connection, outage
from kafkalite_cli.brokers import operator_lease
from kafkalite_cli.main import main
from kafkalite_cli.topics import objects, sizes
from kafkalite_runtime.kube import KubeClient, KubeUnavailable
from tests.unit.cli.world import Server, World


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("kube"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def world(kube_server, monkeypatch, tmp_path):
    """A namespace with a cluster of three brokers, where everything is well."""
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "none"))
    return World(kube_server)


@pytest.fixture
def run_topics(monkeypatch, tmp_path):
    """Runs the command line against an `Api`, as if it were the local cluster's."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")

    def run(api, *arguments, **more):
        monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path))
        monkeypatch.setattr(connection.Target, "client", lambda _self: api)
        monkeypatch.setattr(sizes, "read_sizes", lambda _addresses, _topics: {})
        monkeypatch.setattr(objects, "POLL_S", 0.001)
        return CliRunner().invoke(main, ["topics", *arguments], **more)

    return run


@pytest.fixture
def doctor(world, monkeypatch):
    """What it finds, by code; `rc` is the exit code that is expected."""
    monkeypatch.setattr(operator_lease, "SECOND_LOOK_S", 0.01)

    def doctor(*arguments, rc=1, text=False):
        output = () if text else ("-o", "json")
        result = CliRunner().invoke(main, ["doctor", *world.arguments, *output, *arguments])
        assert result.exit_code == rc, (result.output, result.exception)
        if text or rc == 2:
            return result
        found = {}
        for each in json.loads(result.stdout)["findings"]:
            found.setdefault(each["code"], []).append(each)
        return found

    return doctor


@pytest.fixture
def away(monkeypatch):
    """`away(2, "GET", "/pods/")`: the next two such requests of the command line have no answer; `after` so many."""
    monkeypatch.setattr(outage, "POLL_S", 0.001)
    really = KubeClient._call
    outages = []

    async def call(self, method, path, **more):
        for each in outages if threading.current_thread() is threading.main_thread() else ():
            if method == each["method"] and each["where"] in path and each["count"]:
                if each["after"]:
                    each["after"] -= 1
                    continue
                each["count"] -= 1
                raise KubeUnavailable("refused", ambiguous=method != "GET")
        return await really(self, method, path, **more)

    monkeypatch.setattr(KubeClient, "_call", call)

    def away(count, method, where, *, after=0):
        outages.append({"count": count, "method": method, "where": where, "after": after})

    return away
