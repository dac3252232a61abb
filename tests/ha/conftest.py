"""A control plane for the whole run, and a world of its own for each test."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane import control_plane
from tests.ha.world import World, sockets_closed


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory):
    """etcd, kube-apiserver and the controllers for garbage and namespaces."""
    with control_plane(tmp_path_factory.mktemp("ha") / "control-plane") as started:
        yield started


@pytest.fixture
async def world(plane, tmp_path):
    """A namespace, a gate, and nothing in it yet."""
    made = World(plane, tmp_path)
    try:
        yield await made.open()
    finally:
        await made.close()
        await sockets_closed()
