"""One cluster of real processes for the whole tier; tests leave it healed."""

import itertools

import pytest

from tests.integration.cluster import started

_serial = itertools.count()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    with started(tmp_path_factory.mktemp("cluster") / "home") as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    yield shared_cluster
    shared_cluster.wait_healed()


@pytest.fixture
def topic_name(request):
    """A name that no other test uses."""
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower()).strip("-")
    return f"{words[:40].strip('-')}-{next(_serial)}"
