"""Producer ids go by the time: what excuses an id that comes again rests on that."""

from __future__ import annotations

import pytest

from tests.simulation.api import Outcome
from tests.simulation.world import Violation


def test_a_block_of_producer_ids_below_the_time(healthy, monkeypatch) -> None:
    """Ids that come again are put down to a clock that is behind, so who does not go by the clock is noticed here."""
    broker = healthy.host_list[0].broker
    monkeypatch.setattr(broker, "call", lambda *_arguments, **_options: None)
    cluster = healthy.api.objects["clusters"]["kafkalite"]
    broker.draws._read(Outcome.OK, cluster)
    monkeypatch.setattr(type(broker.producer_ids), "beginning", lambda _ids, counter, *, wall_ms: counter)
    with pytest.raises(Violation, match="unique producer ids"):
        broker.draws._read(Outcome.OK, {**cluster, "status": {**cluster["status"], "nextProducerId": 7}})
