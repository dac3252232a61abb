import pytest

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
