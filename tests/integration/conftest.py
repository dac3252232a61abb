"""One cluster of real processes for the whole tier; tests leave it healed."""

import itertools

import pytest

from kafkalite_local.pytest_plugin import free_ports
from tests.integration.cluster import Cluster

_serial = itertools.count()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "home", free_ports().base)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.close()
        cluster.down()


@pytest.fixture
def cluster(shared_cluster):
    yield shared_cluster
    shared_cluster.wait_healed()


@pytest.fixture
def topic_name(request):
    """A name that no other test uses."""
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower()).strip("-")
    return f"{words[:40].strip('-')}-{next(_serial)}"
