"""List once, then follow the changes: the reading side of a watch, as the runtime's `Reflector` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.api import HOST, ApiServer, Outcome, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import Network
    from tests.simulation.patching import Json
    from tests.simulation.world import Process, World

SILENCE_LIMIT_MS = 10_000.0
BACK_OFF_MS = 500.0
LISTS_MAX = 5


class Reflector:
    """Keeps a consumer's picture of one kind current for ever.

    Brokers list anew after every loss of contact: another server may answer then, with another history (S11). kopf, which
    watches for operators, goes on from the last version that it was shown, and lists only when it has to (410).
    """

    def __init__(
        self,
        world: World,
        network: Network,
        api: ApiServer,
        host: str,
        process: Process,
        kind: str,
        on_list: Callable[[list[Json], int], bool | None],
        on_event: Callable[[str, Json], None],
        chance: Callable[[], float],
        on_ask: Callable[[], object] = lambda: None,
        *,
        lists_after_loss: bool = True,
    ) -> None:
        self._world = world
        self._network = network
        self._api = api
        self._host = host
        self._process = process
        self._kind = kind
        self._on_list = on_list
        self._on_event = on_event
        self._on_ask = on_ask
        self._lists_after_loss = lists_after_loss
        self._lists = 0
        self._chance = chance
        self._watch: Watch | None = None
        self._version = self._era = 0
        self._anew = False
        self.synced = False

    def has_listed_in(self, era: int) -> bool:
        """Whether what it knows is of the store since it went back that often."""
        return self._era >= era

    @property
    def alive(self) -> bool:
        """A stream tells what changes, as far as is known."""
        return self._watch is not None and not self._watch.dead

    def start(self) -> None:
        """Begin."""
        self._list()
        self._world.at(SILENCE_LIMIT_MS, self._process, self._look)

    def _list(self) -> None:
        self._on_ask()
        self._api.call(self._host, self._process, "list", self._kind, answer=self._listed)

    def _listed(self, outcome: Outcome, result: Any) -> None:
        if outcome is not Outcome.OK:
            self._world.at(BACK_OFF_MS * (0.5 + self._chance()), self._process, self._list)
            return
        items, self._version = result
        self._era = result[1].era
        self._anew = False
        self.synced = True
        self._lists += 1
        if self._on_list(items, self._version) and self._lists < LISTS_MAX:
            self._list()
            return
        self._lists = 0
        self._follow()

    def _follow(self) -> None:
        if not self._api.up or self._network.link(self._host, HOST).cut:
            self._world.at(BACK_OFF_MS * (0.5 + self._chance()), self._process, self._go_on)
            return
        self._watch = Watch(self._host, self._process, self._kind, self._event, self._broken)
        self._api.watch(self._watch, self._version)

    def _event(self, event: str, obj: Json) -> None:
        self._version = int(obj["metadata"]["resourceVersion"])
        self._on_event(event, obj)

    def _broken(self, expired: bool) -> None:
        self._watch = None
        if expired:
            self._world.bite("watch_expired")
            self._list()
        else:
            self._world.bite("watch_broken")
            self._world.at(BACK_OFF_MS * self._chance(), self._process, self._go_on)

    def begin_anew(self) -> None:
        """Somebody has seen that the store went back in time: list, and watch from there."""
        self._anew = True
        if self._watch is not None:
            self._watch.dead = True
            self._watch = None
            self._world.at(BACK_OFF_MS * self._chance(), self._process, self._list)

    def _go_on(self) -> None:
        """After a loss of contact."""
        if self._lists_after_loss or self._anew:
            self._list()
        else:
            self._follow()

    def _look(self) -> None:
        """Bookmarks are not sent as events: a stream that is dead has been silent since, and is begun anew."""
        if self._watch is not None and self._watch.dead:
            self._watch = None
            self._go_on()
        self._world.at(SILENCE_LIMIT_MS, self._process, self._look)
