"""Keys of the cluster that a running broker follows reach whatever goes by them."""

from types import SimpleNamespace

import pytest

from kafkalite_broker.data_plane import DataPlane
from kafkalite_broker.log.manager import DAY_MS

CONFIG = {
    "max.connections": "77",
    "num.io.threads": "3",
    "producer.id.expiration.ms": "5000",
    "log.retention.check.interval.ms": "9",
}


@pytest.fixture
def told():
    return []


@pytest.fixture
def plane(told):
    """A data plane of which only what `reconfigure` reaches is there."""

    def retention_pass(deletable, *, producer_expiration_ms):
        told.append(("expiration", producer_expiration_ms))
        return {}

    def component(name):
        return SimpleNamespace(reconfigure=lambda config: told.append((name, config)))

    return SimpleNamespace(
        partitions=SimpleNamespace(reconfigure=component("partitions").reconfigure, deletable_up_to=dict),
        groups=component("groups"),
        cleaner=component("cleaner"),
        server=SimpleNamespace(limit_connections=lambda most: told.append(("connections", most))),
        flusher=SimpleNamespace(workers=8),
        logs=SimpleNamespace(logs_to_flush=list, retention_pass=retention_pass),
        _io_pool=SimpleNamespace(resize=lambda threads: told.append(("threads", threads))),
        _stray_removal=SimpleNamespace(look=lambda: None),
        _connections_max=DataPlane._connections_max,
        _keys_in_force={},
    )


def test_every_part_of_the_data_plane_is_told_once(plane, told):
    DataPlane.reconfigure(plane, CONFIG, 1)
    DataPlane.reconfigure(plane, CONFIG, 2)
    DataPlane._retain_once(plane)
    assert told == [
        ("partitions", CONFIG), ("groups", CONFIG), ("cleaner", CONFIG), ("connections", 77), ("threads", 3),
        ("expiration", 5000),
    ]  # fmt: skip
    assert plane.flusher.workers == 3


def test_keys_that_are_gone_are_the_default_again(plane, told):
    DataPlane.reconfigure(plane, CONFIG, 1)
    told.clear()
    DataPlane.reconfigure(plane, {}, 2)
    DataPlane._retain_once(plane)
    assert dict(told)["threads"] == plane.flusher.workers == 8
    assert dict(told)["expiration"] == DAY_MS
    assert dict(told)["connections"] > 77
