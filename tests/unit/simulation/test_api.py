"""The simulated API server."""

from __future__ import annotations

from tests.simulation.api import ApiServer, Outcome
from tests.simulation.network import Network
from tests.simulation.world import Process, World


def test_a_request_that_was_throttled_is_not_served_when_a_copy_of_it_comes() -> None:
    world = World(1)
    network = Network(world, delay_ms=1.0)
    network.repeat = 1.0
    server, outcomes, changed = ApiServer(world, network), [], []
    server.on_change = lambda kind, _old, new: changed.append((kind, new["metadata"]["name"]))
    server.throttle = 1.0
    body = {"metadata": {"name": "t"}}
    server.call("h", Process("p"), "create", "topics", body, answer=lambda outcome, _: outcomes.append(outcome))
    while Outcome.THROTTLED not in outcomes:
        world.run(world.now + 1.0)
    server.throttle = 0.0
    world.run(world.now + 10_000.0)
    assert outcomes == [Outcome.THROTTLED]
    assert not changed, "429 says that it was not applied"
