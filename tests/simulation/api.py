"""The API server: objects with versions, compare-and-swap behind the CRDs' fences, watches, and its own troubles.

Clients reach it over the network. A call ends in exactly one of `Outcome`; after a time-out nobody knows whether the
request was applied, is on its way still, or is lost: all three happen.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.simulation.network import API
from tests.simulation.oracles.decided_on import DecidedOn
from tests.simulation.patching import FenceHelped, Json, Refused, apply_patch, check
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import Network
    from tests.simulation.silence import Silence
    from tests.simulation.world import Process, World

HOST = API
KINDS = ("clusters", "brokers", "topics", "pods", "leases")


class Outcome(Enum):
    """How a call ended."""

    OK = 200
    NOT_FOUND = 404
    CONFLICT = 409
    INVALID = 422
    THROTTLED = 429
    REFUSED = "connection refused: certainly not applied"
    AMBIGUOUS = "no answer in time, reset, or 5xx"


class Call:
    """One request under way."""

    __slots__ = ("answer", "args", "arrived", "done", "host", "process", "throttled", "verb")

    def __init__(
        self, host: str, process: Process, verb: str, args: tuple[Any, ...], answer: Callable[[Outcome, Any], None]
    ) -> None:
        self.host = host
        self.process = process
        self.verb = verb
        self.args = args
        self.answer = answer
        self.arrived = self.throttled = False
        self.done = False


class Backup(NamedTuple):
    """A copy of everything that is stored, and of the last version given out."""

    objects: dict[str, dict[str, Json]]
    version: int


class Listed(int):
    """The version of a list, and how often the store had gone back when it was read: versions may come again after that."""

    era: int

    def __new__(cls, version: int, era: int) -> Self:
        """As a list answers it."""
        listed = super().__new__(cls, version)
        listed.era = era
        return listed


class Watch:
    """One stream of events of one kind to one process; it brings nothing up to the version `after`."""

    __slots__ = ("after", "dead", "host", "kind", "lag_ms", "last_ms", "on_broken", "on_event", "process")

    def __init__(
        self,
        host: str,
        process: Process,
        kind: str,
        on_event: Callable[[str, Json], None],
        on_broken: Callable[[bool], None],
    ) -> None:
        self.host = host
        self.process = process
        self.kind = kind
        self.on_event = on_event
        self.on_broken = on_broken
        self.after = 0
        self.lag_ms = 0.0
        self.last_ms = 0.0
        self.dead = False


class ApiServer:
    """See the module.

    Attributes:
        objects: By kind and name.
        version: The last resourceVersion given out.
        begins: Where the history of events begins; 0 if the store never went back in time.
        era: How often it did.
        up: Whether it listens.
        delay_ms: Mean time of serving a request.
        lose_answer: Share of answers that are lost after the request was applied.
        lose_request: Share of requests that time out and are never applied.
        delay_request: Share of requests that time out and are applied later.
        late: So many patches of the topic of that name are applied later.
        throttle: Share of requests that are answered 429.
        reject: Share of patches of topics that are refused whatever they say, and of reads of topics that fail.
        late_lists: Share of lists that arrive long after they were read, as large ones do; watches go on meanwhile, so
            that a list may show less than its reader has been told.
        silences: By host: its patches of topics are not answered for a while.
        lags: How much later than others a host is told, in ms: the server that it watches is behind, and a watch that
            is begun anew is served by the same one. Lists are consistent all the same: nobody asks for another kind.
        on_change: Told every accepted change: kind, old object, new object.
    """

    def __init__(self, world: World, network: Network) -> None:
        self._world = world
        self._network = network
        self._random = world.rng("api").random
        self.objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.version = 1
        self.begins = self.era = 0
        self.up = True
        self.delay_ms = 1.0
        self.lose_answer = 0.0
        self.lose_request = 0.0
        self.delay_request = 0.0
        self.throttle = 0.0
        self.reject = 0.0
        self.late_lists = 0.0
        self.lags: dict[str, float] = {}
        self.silences: dict[str, Silence] = {}
        self._starts = 0
        self._edges = world.rng("api edges").random
        self.late: dict[str, int] = {}
        self._open: dict[Call, None] = {}
        self.watches: list[Watch] = []
        self.events: dict[str, list[tuple[int, str, Json]]] = {kind: [] for kind in KINDS}
        self.on_change: Callable[[str, Json | None, Json | None], None] = lambda _kind, _old, _new: None
        self._uids = 0
        self._verbs: dict[str, Callable[..., tuple[Outcome, Any]]] = {
            "get": self._get,
            "list": self._list,
            "patch": self.patch,
            "create": self.create,
            "replace": self._replace,
            "delete": self.delete,
        }

    # ------------------------------------------------------------------------------------------------ calls

    def call(
        self,
        host: str,
        process: Process,
        verb: str,
        *args: Any,
        answer: Callable[[Outcome, Any], None],
        deadline_ms: float = 2000.0,
    ) -> None:
        """Ask; `answer` is called once, unless the process dies before."""
        call = Call(host, process, verb, args, answer)
        self._open[call] = None
        self._world.at(deadline_ms, process, self._expire, call)
        if not self.up:
            self._world.bite("api_outage")
            self._world.at(0.5, process, self._answered, call, Outcome.REFUSED, None)
            return
        self._network.send(host, HOST, None, self._arrived, call)

    def _arrived(self, call: Call) -> None:
        world, chance = self._world, self._random
        if not self.up:
            world.bite("api_outage")
            return
        if not call.arrived:
            call.arrived = True
            call.throttled = bool(self.throttle) and chance() < self.throttle
            if call.throttled:
                world.bite("api_throttle")
                self._reply(call, Outcome.THROTTLED, None)
        if call.throttled:
            return  # one answer for all copies of a request: 429 says that none of them was applied
        if self.late and call.verb == "patch" and self.late.get(call.args[1]):
            self.late[call.args[1]] -= 1
            world.bite("api_delayed_request")
            world.at(300.0 + chance() ** 2 * 3_000.0, None, self._serve, call, False)
            return
        if self.lose_request and chance() < self.lose_request:
            world.bite("api_lost_request")
            return
        if self.delay_request and chance() < self.delay_request:
            world.bite("api_delayed_request")
            world.at(2000.0 + chance() * 8000.0, None, self._serve, call, False)
            return
        silence = self.silences.get(call.host)
        if silence is not None and call.verb == "patch" and silence.takes(self, world.now, *call.args[:3]):
            self._serve_in_silence(call, silence)
            return
        world.at(self.delay_ms * (0.5 + chance()), None, self._serve, call, True)

    def _serve_in_silence(self, call: Call, silence: Silence) -> None:
        self._world.bite("unanswered")
        if silence.applies():
            self._verbs[call.verb](*call.args)
        if silence.broken:
            self._world.at(0.5, call.process, self._expire, call)

    def _serve(self, call: Call, reply: bool) -> None:
        outcome, result = self._rejected(call) or self._verbs[call.verb](*call.args)
        if not reply:
            return
        if self.lose_answer and self._random() < self.lose_answer:
            self._world.bite("api_lost_answer")
            return
        if self.late_lists and call.verb == "list" and self._edges() < self.late_lists:
            self._world.bite("late_list")
            self._world.at(100.0 + self._edges() * 1_700.0, None, self._reply_late, call, outcome, result, self._starts)
            return
        self._reply(call, outcome, result)

    def _rejected(self, call: Call) -> tuple[Outcome, Any] | None:
        if not self.reject or call.verb not in {"get", "patch"} or call.args[0] != "topics":
            return None
        if self._edges() >= self.reject:
            return None
        self._world.bite("api_reject")
        return (Outcome.INVALID if call.verb == "patch" else Outcome.THROTTLED), "no reason"

    def _reply_late(self, call: Call, outcome: Outcome, result: Any, starts: int) -> None:
        if starts == self._starts and not call.done:  # else the server, or the connection, ended in the middle of it
            self._reply(call, outcome, result)

    def _reply(self, call: Call, outcome: Outcome, result: Any) -> None:
        self._network.send(HOST, call.host, call.process, self._arrived_back, call, outcome, result, self.era)

    def _arrived_back(self, call: Call, outcome: Outcome, result: Any, era: int) -> None:
        if era == self.era:  # else the server that sent it ended, and its connections with it
            self._answered(call, outcome, result)

    def _answered(self, call: Call, outcome: Outcome, result: Any) -> None:
        if not call.done:
            call.done = True
            self._open.pop(call, None)
            call.answer(outcome, result)

    def _expire(self, call: Call) -> None:
        self._answered(call, Outcome.AMBIGUOUS, None)

    # ------------------------------------------------------------------------------------------------ verbs

    def _get(self, kind: str, name: str) -> tuple[Outcome, Any]:
        found = self.objects[kind].get(name)
        return (Outcome.NOT_FOUND, None) if found is None else (Outcome.OK, found)

    def _list(self, kind: str) -> tuple[Outcome, Any]:
        return Outcome.OK, (list(self.objects[kind].values()), Listed(self.version, self.era))

    def patch(
        self, kind: str, name: str, operations: list[Json], decided_on: DecidedOn | None = None
    ) -> tuple[Outcome, Any]:
        """JSON Patch; a change of `spec` raises the generation."""
        found = self.objects[kind].get(name)
        if found is None:
            return Outcome.NOT_FOUND, None
        try:
            patched = apply_patch(found, operations)
            check(kind, found, patched)
        except FenceHelped as refusal:
            raise Violation(DecidedOn.name, f"a fence had to help: {refusal}: {operations}") from refusal
        except Refused as refusal:
            return Outcome.INVALID, str(refusal)
        if decided_on is not None:
            decided_on.check(found)
        return Outcome.OK, self._write(kind, found, patched)

    def create(self, kind: str, obj: Json) -> tuple[Outcome, Any]:
        """A new object; 409 when the name is taken."""
        name = obj["metadata"]["name"]
        if name in self.objects[kind]:
            return Outcome.CONFLICT, None
        self._uids += 1
        metadata = {
            "namespace": "default",
            **obj["metadata"],
            "uid": f"uid-{self._uids:06d}",
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:00:{self._uids:09d}Z",
        }
        return Outcome.OK, self._write(kind, None, {**obj, "metadata": metadata})

    def _replace(self, kind: str, name: str, obj: Json) -> tuple[Outcome, Any]:
        found = self.objects[kind].get(name)
        if found is None:
            return Outcome.NOT_FOUND, None
        wanted = obj["metadata"].get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            return Outcome.CONFLICT, None
        return Outcome.OK, self._write(kind, found, {**obj, "metadata": {**found["metadata"], **obj["metadata"]}})

    def delete(self, kind: str, name: str, version: str = "") -> tuple[Outcome, Any]:
        """The object is gone; with `version` only if it still has that resourceVersion."""
        found = self.objects[kind].get(name)
        if found is None:
            return Outcome.NOT_FOUND, None
        if version and version != found["metadata"]["resourceVersion"]:
            return Outcome.CONFLICT, None
        del self.objects[kind][name]
        self.version += 1
        self.on_change(kind, found, None)
        self._publish(kind, "DELETED", found)
        return Outcome.OK, found

    def _write(self, kind: str, old: Json | None, new: Json) -> Json:
        if old is not None and new == old:
            return old
        self.version += 1
        metadata = {**new["metadata"], "resourceVersion": str(self.version)}
        if old is not None and old.get("spec") != new.get("spec"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        new = {**new, "metadata": metadata}
        self.objects[kind][metadata["name"]] = new
        self.on_change(kind, old, new)
        self._publish(kind, "ADDED" if old is None else "MODIFIED", new)
        return new

    # ------------------------------------------------------------------------------------------------ watches

    def watch(self, watch: Watch, version: int) -> None:
        """Begin to stream what happened after `version`; whoever knows one from before all events has to list anew (410).

        Who knows one that the store has not given out yet, since it went back in time, is told nothing before that comes
        again, and then goes on with what another history has behind it: no server notices.
        """
        if version < self.begins:
            self._world.at(1.0, watch.process, watch.on_broken, True)
            return
        if watch.host in self.lags:
            watch.lag_ms = self.lags[watch.host] * (0.5 + self._edges())
        watch.after = version
        events = self.events[watch.kind]
        self.watches.append(watch)
        for number, kind, obj in events:
            if number > version:
                self._stream(watch, kind, obj)

    def _publish(self, kind: str, event: str, obj: Json) -> None:
        if kind == "leases":
            return
        self.events[kind].append((self.version, event, obj))
        for watch in self.watches:
            if watch.kind == kind and self.version > watch.after:
                self._stream(watch, event, obj)

    def _stream(self, watch: Watch, event: str, obj: Json) -> None:
        world = self._world
        if watch.dead or not watch.process.alive:
            return
        link = self._network.link(HOST, watch.host)
        if link.cut:
            watch.dead = True  # TCP notices nothing; the reader's silence limit does
            world.bite("watch_silent")
            return
        due = world.now + link.delay_ms * (0.5 + self._random()) + watch.lag_ms
        if watch.lag_ms:
            world.bite("lagging_server" if watch.host in self.lags else "watch_lag")
        watch.last_ms = max(due, watch.last_ms)
        world.at(watch.last_ms - world.now, watch.process, self._deliver, watch, event, obj)

    @staticmethod
    def _deliver(watch: Watch, event: str, obj: Json) -> None:
        if not watch.dead:
            watch.on_event(event, obj)

    def forget_dead(self) -> None:
        """Streams of processes that ended are closed."""
        self.watches = [watch for watch in self.watches if watch.process.alive and not watch.dead]

    def break_watches(self, *, host: str = "", expired: bool = False) -> None:
        """Streams end, all or those of one host; with `expired` their readers have to list anew (410)."""
        for watch in self.watches:
            if not watch.dead and watch.process.alive and (not host or watch.host == host):
                watch.dead = True
                self._world.at(1.0, watch.process, watch.on_broken, expired)
        self.forget_dead()

    def reset(self, host: str) -> None:
        """The connections of a host break: what is under way on them is lost, and its process knows at once.

        Whether a request had been taken before that, or will be, it does not know.
        """
        self._network.reset(host, HOST)
        self._open = {call: None for call in self._open if call.process.alive}
        mine = [call for call in self._open if call.host == host]
        if mine or any(watch.host == host and watch.process.alive and not watch.dead for watch in self.watches):
            self._world.bite("api_reset")
        for call in mine:
            self._world.at(0.5, call.process, self._expire, call)
        self.break_watches(host=host)

    # ------------------------------------------------------------------------------------------------ outages

    def stop(self) -> None:
        """Nobody listens any more."""
        self.up = False
        self._starts += 1
        self.break_watches()

    def start(self) -> None:
        """It listens again, with everything that it had stored."""
        self.up = True

    def backup(self) -> Backup:
        """What is stored now."""
        return Backup({kind: dict(objects) for kind, objects in self.objects.items()}, self.version)

    def restore(self, backup: Backup, *, bump: bool) -> None:
        """The store goes back in time; to be done while nobody is served.

        What happened is forgotten. With `bump` no version is used again, as after a restore of etcd with
        `--bump-revision` and `--mark-compacted`; without, those since the backup come again, for other contents.
        """
        assert not self.up
        self.version = self.begins = self.version + 1 if bump else backup.version
        self.era += 1
        self.objects = {kind: dict(objects) for kind, objects in backup.objects.items()}
        for events in self.events.values():
            events.clear()
