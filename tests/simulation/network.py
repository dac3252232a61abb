"""The network: directed links with delay, loss, repetition and cuts; messages of one connection arrive in order.

A message to a process that is gone is refused at once, as by a closed port; one into a cut vanishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Process, World


class Bites(NamedTuple):
    """What the faults of a link count as."""

    cut: str
    delay: str
    reset: str


BETWEEN_BROKERS: Final = Bites("network_cut", "network_delay", "network_reset")
TO_CLIENTS: Final = Bites("client_cut", "client_delay", "client_reset")
TO_API: Final = Bites("network_cut", "api_delay", "api_reset")
API: Final = "api"


class Link:
    """One direction between two hosts.

    Attributes:
        bites: What its faults count as.
        cut: Nothing gets through.
        delay_ms: Mean delay.
        drop: Share of messages that are lost with their connection.
        repeat: Share of messages that arrive twice: the second one late, as from a connection given up.
        connection: Rises with each reset; messages of an older one are lost.
    """

    __slots__ = ("bites", "connection", "cut", "delay_ms", "drop", "last_ms", "repeat", "slow")

    def __init__(self, delay_ms: float, bites: Bites) -> None:
        self.bites = bites
        self.cut = False
        self.delay_ms = delay_ms
        self.slow = False
        self.drop = 0.0
        self.repeat = 0.0
        self.connection = 0
        self.last_ms = 0.0


class Network:
    """All links; made when first used.

    Attributes:
        clients: Names of producers, consumers and members of groups.
    """

    def __init__(self, world: World, *, delay_ms: float) -> None:
        self._world = world
        self._random = world.rng("network").random
        self._delay_ms = delay_ms
        self._links: dict[tuple[str, str], Link] = {}
        self.clients: frozenset[str] = frozenset()
        self.drop = 0.0
        self.repeat = 0.0

    def link(self, source: str, target: str) -> Link:
        """One direction."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._delay_ms, self._bites(source, target))
        return link

    def _bites(self, source: str, target: str) -> Bites:
        if API in {source, target}:
            return TO_API
        return TO_CLIENTS if self.clients & {source, target} else BETWEEN_BROKERS

    def send(
        self, source: str, target: str, process: Process | None, action: Callable[..., None], *args: object
    ) -> bool:
        """Deliver later; False when nobody listens there, which the sender learns at once."""
        return self._launch(source, target, process, action, args, may_repeat=True)

    def send_once(
        self, source: str, target: str, process: Process | None, action: Callable[..., None], *args: object
    ) -> bool:
        """As `send`, for requests that are not sent a second time by those who repeat them: none arrives twice."""
        return self._launch(source, target, process, action, args, may_repeat=False)

    def send_large(
        self,
        lag_ms: float,
        source: str,
        target: str,
        process: Process | None,
        action: Callable[..., None],
        *args: object,
    ) -> bool:
        """As `send`, with the time that it takes until the last byte has left."""
        return self._launch(source, target, process, action, args, may_repeat=True, lag_ms=lag_ms)

    def _launch(
        self,
        source: str,
        target: str,
        process: Process | None,
        action: Callable[..., None],
        args: tuple[object, ...],
        *,
        may_repeat: bool,
        lag_ms: float = 0.0,
    ) -> bool:
        if process is not None and not process.alive:
            return False
        link = self._links.get((source, target)) or self.link(source, target)
        world, chance = self._world, self._random
        if link.cut:
            world.bite(link.bites.cut)
            return True
        drop = link.drop or self.drop
        if drop and chance() < drop:
            world.bite("network_drop")
            return True
        arrival = world.now + link.delay_ms * (0.5 + chance()) + lag_ms
        if link.slow:
            world.bite(link.bites.delay)
        arrival = max(arrival, link.last_ms)
        link.last_ms = arrival
        world.at(arrival - world.now, process, self._deliver, link, link.connection, action, args)
        repeat = link.repeat or self.repeat
        if repeat and may_repeat and chance() < repeat:
            late = arrival - world.now + chance() ** 3 * 2000.0
            world.at(late, process, self._deliver, link, link.connection, action, args)
            world.bite("network_repeat")
        return True

    def _deliver(self, link: Link, connection: int, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if link.connection == connection:
            action(*args)
        else:
            self._world.bite(link.bites.reset)

    def reset(self, one: str, other: str) -> None:
        """Every connection between two hosts breaks; what is under way is lost."""
        for link in (self.link(one, other), self.link(other, one)):
            link.connection += 1
            link.last_ms = 0.0

    def heal(self) -> None:
        """All links are as they were."""
        self.drop = self.repeat = 0.0
        for link in self._links.values():
            link.cut = link.slow = False
            link.drop = link.repeat = 0.0
            link.delay_ms = self._delay_ms
