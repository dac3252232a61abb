"""`kafkalite up` with several clusters: what becomes of the others when the brokers of one are not ready."""

import copy
import itertools
import math
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console

from kafkalite_cli.local_mode import start
from kafkalite_cli.local_mode.progress import Steps
from kafkalite_cli.main import main
from kafkalite_runtime.home import Home
from tests.unit.cli.test_readiness import ALIVE, another, crash
from tests.unit.cli.test_readiness import ready as ready_cluster

ready = ready_cluster
NOT_MADE = "broker 0 of cluster x/kafkalite is not ready (not yet made)"


@pytest.fixture
def up(tmp_path, monkeypatch):
    """Waits as `up` does; it sees one snapshot after the other, and the last one until the time is over."""

    async def up(*snapshots, deadline=math.inf):
        left = [*snapshots]

        async def read_snapshot(*_args):
            return left.pop(0) if left[1:] else left[0]

        monkeypatch.setattr(start, "read_snapshot", read_snapshot)
        monkeypatch.setattr(start, "container_alive", ALIVE.__contains__)
        monkeypatch.setattr(start, "_check_supervised", lambda _home: None)
        monkeypatch.setattr(start, "POLL_S", 0)
        await start._wait_until_ready(Home(tmp_path), None, Steps(Console(quiet=True)), deadline, 60)

    return up


def without_broker(ready, name, namespace="default"):
    """As long as the first broker of that cluster is not made."""
    for objects in (ready.pods, ready.brokers):
        objects[:] = [
            each
            for each in objects
            if (each["metadata"]["name"], each["metadata"].get("namespace", "default"))
            != (f"{name}-broker-0", namespace)
        ]


async def test_it_ends_with_what_crashes_when_the_others_are_ready(ready, up):
    another(ready, "analytics")
    crash(ready.pods[0])
    with pytest.raises(start.ClustersNotReady) as told:
        await up(ready)
    assert told.value.message.startswith(
        "cluster default/analytics: analytics-broker-0: no program (`kafkalite logs analytics-broker-0` tells more)\n"
    )


async def test_a_crash_that_is_over_when_all_brokers_are_ready_is_not_told(ready, up):
    another(ready, "analytics")
    starts = copy.deepcopy(ready)
    starts.pods[0]["status"]["conditions"] = []
    waits = copy.deepcopy(ready)
    waits.topics[0]["status"]["conditions"] = []
    waits_and_crashed = copy.deepcopy(waits)
    crash(waits_and_crashed.pods[0])
    await up(waits_and_crashed, waits, ready)
    with pytest.raises(start.ClustersNotReady):
        await up(waits_and_crashed, starts)
    with pytest.raises(start.TopicsNotReady) as told:
        await up(waits_and_crashed, waits, deadline=-math.inf)
    assert "no program" in told.value.message, "when the time was over it was not ready"


async def test_a_cluster_that_is_late_is_told_and_the_others_go_on(ready, up, tmp_path):
    another(ready, "kafkalite", "x")
    without_broker(ready, "kafkalite", "x")
    with pytest.raises(start.ClustersNotReady) as told:
        await up(ready, deadline=-math.inf)
    assert told.value.message.splitlines()[0] == f"not ready after 60 s: {NOT_MADE}"
    Home(tmp_path).create()
    Home(tmp_path).log("x.broker-0").touch()
    with pytest.raises(start.ClustersNotReady) as told:
        await up(ready, deadline=-math.inf)
    assert told.value.message.startswith(f"not ready after 60 s: {NOT_MADE} (`kafkalite logs x.broker-0` tells more)\n")


async def test_the_cluster_that_is_late_may_be_the_usual_one(ready, up):
    another(ready, "analytics")
    without_broker(ready, "kafkalite")
    with pytest.raises(start.ClustersNotReady, match=r"^not ready after 60 s: broker 0 is not ready \(not yet made\)"):
        await up(ready, deadline=-math.inf)


async def test_when_no_cluster_serves_all_that_are_late_are_told(ready, up):
    another(ready, "kafkalite", "x")
    without_broker(ready, "kafkalite", "x")
    without_broker(ready, "kafkalite")
    with pytest.raises(start.NotReady) as told:
        await up(ready, deadline=-math.inf)
    assert told.value.message.splitlines() == [
        f"not ready after 60 s: {NOT_MADE}",
        "not ready after 60 s: broker 0 is not ready (not yet made)",
    ]
    assert told.value.process == "x.broker-0"


async def test_an_operator_that_is_late_is_what_is_waited_for(ready, up):
    ready.pods.pop()
    with pytest.raises(start.NotReady, match="the operator is starting") as told:
        await up(ready, deadline=-math.inf)
    assert told.value.process == "operator"
    ready.clusters.clear()
    with pytest.raises(start.NotReady, match="the operator is starting"):
        await up(ready, deadline=-math.inf)


@pytest.mark.parametrize(("served", "stopped"), [(True, 0), (False, 1)])
def test_it_stops_nothing_while_another_cluster_serves(ready, tmp_path, monkeypatch, served, stopped):
    async def nothing(*_args):
        return []

    async def api_server(*_args):
        return Client()

    class Client:
        async def close(self):
            pass

    async def read_snapshot(*_args):
        return ready

    stops = []
    if served:
        another(ready, "analytics")
    without_broker(ready, "kafkalite")
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(start, "_check_ports", lambda *_: None)
    monkeypatch.setattr(start, "_launch", lambda *_: None)
    monkeypatch.setattr(start, "_check_supervised", lambda *_: None)
    monkeypatch.setattr(start, "_api_server", api_server)
    monkeypatch.setattr(start, "_apply", nothing)
    monkeypatch.setattr(start, "read_snapshot", read_snapshot)
    monkeypatch.setattr(start, "container_alive", ALIVE.__contains__)
    monkeypatch.setattr(start.stop, "stop_all", lambda *_args, **_more: stops.append(1))
    monkeypatch.setattr(start, "time", SimpleNamespace(monotonic=itertools.count(0, 100).__next__))
    result = CliRunner().invoke(main, ["up"])
    assert (result.exit_code, len(stops)) == (1, stopped)
    assert "broker 0 is not ready (not yet made)" in result.stderr
    assert ("nothing was stopped" in result.stderr) == served
