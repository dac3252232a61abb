"""When faults of some kinds begin; which, and what they do to whom, comes from a source of chance of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.users import UserActions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tests.simulation.api import Watch
    from tests.simulation.cluster import SimCluster
    from tests.simulation.host import Host
    from tests.simulation.network import Link


class Strikes(UserActions):
    """Draws and carries out faults of these kinds until it is told to heal.

    Args:
        kinds: Those of the seed's faults that are drawn here.
        stream: The source of chance.
        every_ms: Mean time between two of them.
    """

    def __init__(self, cluster: SimCluster, kinds: Collection[str], stream: str, every_ms: float) -> None:
        super().__init__(cluster, stream)
        self._faults = {kind: weight for kind, weight in cluster.shape.faults.items() if kind in kinds}
        self._every_ms = every_ms

    def begin(self) -> None:
        """The chaos starts."""
        if self._faults:
            self._later()

    def _later(self) -> None:
        self._world.at(self._chance.expovariate(1.0 / self._every_ms), None, self._strike)

    def _strike(self) -> None:
        if self._healed:
            return
        (kind,) = self._chance.choices(list(self._faults), list(self._faults.values()))
        if self._world.tracing:
            self._world.trace("fault", kind)
        getattr(self, f"_{kind}")()
        self._later()

    def _any_host(self) -> Host:
        return self._chance.choice(self._cluster.host_list)

    def _sever(self, pairs: Iterable[tuple[str, str]], *kinds: str) -> None:
        """Nothing gets through these links for a while."""
        for kind in kinds:
            self._world.arm(kind)
        links = [self._cluster.network.link(*pair) for pair in pairs]
        for link in links:
            link.cut = True
        self._until(10_000.0, self._mend, links)

    def _slow(self, links: Iterable[Link], kind: str) -> None:
        """Messages take much longer on these links for a while, unless they do so already."""
        for link in links:
            if not link.slow:
                self._world.arm(kind)
                link.slow = True
                before, link.delay_ms = link.delay_ms, link.delay_ms * self._chance.choice((20.0, 300.0))
                self._until(8_000.0, self._speed_up, link, before)

    @staticmethod
    def _speed_up(link: Link, before: float) -> None:
        link.slow, link.delay_ms = False, before

    @staticmethod
    def _keep_up(lagging: Iterable[Watch]) -> None:
        for watch in lagging:
            watch.lag_ms = 0.0
