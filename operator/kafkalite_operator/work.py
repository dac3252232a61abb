"""What the controller has under way: one piece of work for each object, bounded in number, the most urgent first.

What finds no room waits until something is answered, or until the next plan, which replaces all that waits. Every
action tests what it was decided on, so one that has waited is refused when it is out of date.

There are three kinds, and none takes the room of another. What is started begins at once: there is little of it, and
some of it takes long (the end of a pod). What is offered waits for its turn. Looks have few turns of their own, and
those that read nodes have others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkalite_core.controller.pacing import LOOKS_MAX, NODE_LOOKS_MAX, PLAN_FRESH_S, Urgency, may_begin
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.errors import KubeConflict, KubeInvalid, KubeThrottled, KubeUnavailable
from kafkalite_runtime.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkalite_operator.metrics import OperatorMetrics

BACKOFFS_S = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
REMEMBERED_MAX = 4096
"""Failures and pauses of objects; beyond it those that are over are forgotten."""

Key = tuple[str, str]
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    key: Key
    make: Callable[[], Coroutine[Any, Any, None]]
    pause_s: float


class _Turns:
    """Of looks of one kind."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.taken: set[Key] = set()
        self._waiting: dict[Key, int] = {}
        """Looks that found no room, in the order in which they were first asked for, and the last plan that did."""

    def plan_anew(self, plan: int) -> None:
        """That plan has ended: who was not asked for with it is not waited for."""
        self._waiting = {key: asked for key, asked in self._waiting.items() if asked == plan}

    def take(self, key: Key, plan: int) -> bool:
        """Whether there is room for it; else it waits."""
        room = self._count - len(self.taken)
        if len(self._waiting) < room or key in islice(self._waiting, max(0, room)):
            self._waiting.pop(key, None)
            self.taken.add(key)
            return True
        self._waiting[key] = plan
        return False


@dataclass(frozen=True, slots=True)
class _End:
    """After which delay an object may be written again, and whether a plan is urgent."""

    delay_s: float
    hurry: bool


class Work:
    """See the module. All methods are called on the controller's event loop."""

    def __init__(
        self,
        *,
        may_act: Callable[[], bool],
        wake: Callable[[bool], None],
        metrics: OperatorMetrics,
        clock: Callable[[], float],
    ) -> None:
        """`wake(urgent)` asks for a plan; `may_act()` says whether this process still holds the Lease."""
        self._may_act = may_act
        self._wake = wake
        self._metrics = metrics
        self._clock = clock
        self._under_way: dict[Key, asyncio.Task[_End]] = {}
        self._failures: dict[Key, int] = {}
        self._complaints = Complaints(_log)
        self._not_before: dict[Key, float] = {}
        self._electing: set[Key] = set()
        self._offered: set[Key] = set()
        self._looks, self._node_looks = _Turns(LOOKS_MAX), _Turns(NODE_LOOKS_MAX)
        self._plan = 0
        self._waiting: dict[Urgency, deque[_Waiting]] = {urgency: deque() for urgency in Urgency}
        self._planned_at = 0.0

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def electing(self) -> bool:
        """Elections are under way or wait for their turn."""
        return bool(self._electing or self._waiting[Urgency.ELECTION])

    @property
    def waits(self) -> bool:
        """Something that was planned waits for its turn."""
        return any(self._waiting.values())

    def plan_anew(self) -> None:
        """A plan was made: what still waits of the last one is dropped."""
        self._drop_waiting()
        for turns in (self._looks, self._node_looks):
            turns.plan_anew(self._plan)
        self._plan += 1
        now = self._clock()
        if len(self._not_before) > REMEMBERED_MAX:
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
            self._failures = {key: count for key, count in self._failures.items() if key in self._not_before}

    def start(
        self,
        key: Key,
        work: Coroutine[Any, Any, None],
        *,
        pause_s: float = 0.0,
        urgency: Urgency = Urgency.FENCE,
    ) -> bool:
        """Run `work` for the object `key` unless it has work under way, failed a moment ago, or was just written.

        Whether work for it is under way now.
        """
        if not self._free(key):
            work.close()
            return key in self._under_way
        self._begin(key, work, urgency, pause_s)
        return True

    def look(
        self, key: Key, work: Coroutine[Any, Any, None], *, pause_s: float = 0.0, reads_nodes: bool = False
    ) -> None:
        """As `start`, when there is room for a look. Else ask again with the next plan: the turn is kept."""
        turns = self._node_looks if reads_nodes else self._looks
        if self._free(key) and turns.take(key, self._plan):
            self._begin(key, work, Urgency.FENCE, pause_s)
        else:
            work.close()

    def offer(
        self, key: Key, make: Callable[[], Coroutine[Any, Any, None]], urgency: Urgency, *, pause_s: float = 0.0
    ) -> bool:
        """As `start`, but with its turn: `make()` gives the work when there is room for it."""
        if not self._free(key):
            return key in self._under_way
        if may_begin(urgency, len(self._offered)):
            self._offered.add(key)
            self._begin(key, make(), urgency, pause_s)
        else:
            self._waiting[urgency].append(_Waiting(key, make, pause_s))
            # Now, not when the round began: one that took long would find all that it planned out of date.
            self._planned_at = self._clock()
        return True

    async def cancel(self) -> None:
        """Give everything up and wait until it has ended."""
        self._drop_waiting()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop_waiting(self) -> None:
        for queue in self._waiting.values():
            queue.clear()

    def _free(self, key: Key) -> bool:
        return key not in self._under_way and self._clock() >= self._not_before.get(key, 0.0)

    def _begin(self, key: Key, work: Coroutine[Any, Any, None], urgency: Urgency, pause_s: float) -> None:
        task = asyncio.create_task(self._guard(key, work, urgency, pause_s), name=f"{key[0]} {key[1]}")
        self._under_way[key] = task
        if urgency is Urgency.ELECTION:
            self._electing.add(key)
        # Not in `_guard`: a task that is cancelled before its first step never gets there.
        task.add_done_callback(lambda task: self._ended(key, task, work))

    def _ended(self, key: Key, task: asyncio.Task[_End], work: Coroutine[Any, Any, None]) -> None:
        del self._under_way[key]
        for kind in (self._electing, self._offered, self._looks.taken, self._node_looks.taken):
            kind.discard(key)
        work.close()
        end = _End(0.0, hurry=False) if task.cancelled() else task.result()
        if end.delay_s > 0:
            self._not_before[key] = self._clock() + end.delay_s
            asyncio.get_running_loop().call_later(end.delay_s, self._wake, end.hurry)
        else:
            self._not_before.pop(key, None)
        self._next()
        self._wake(end.hurry)

    def _next(self) -> None:
        """There is room: the most urgent of what waits, unless it was planned too long ago. Without more, plan."""
        waited = self.waits
        if self._clock() - self._planned_at > PLAN_FRESH_S:
            self._drop_waiting()
        for urgency, queue in self._waiting.items():
            while queue and may_begin(urgency, len(self._offered)):
                waiting = queue.popleft()
                if self._free(waiting.key):
                    self._offered.add(waiting.key)
                    self._begin(waiting.key, waiting.make(), urgency, waiting.pause_s)
        if waited and not self.waits:
            self._wake(True)

    async def _guard(self, key: Key, work: Coroutine[Any, Any, None], urgency: Urgency, pause_s: float) -> _End:
        """The root of one action: whatever goes wrong, the object is planned again after a while."""
        # An election that was refused is decided anew at once; one that was applied leaves nothing urgent.
        hurry = urgency is Urgency.FENCE
        if not self._may_act():
            return _End(pause_s, hurry)
        try:
            await work
        except KafkaLiteError as error:
            return _End(max(pause_s, self._back_off(key, error)), urgency <= Urgency.ELECTION)
        except Exception:
            _log.exception("action failed", key=key)
            self._metrics.reconcile_failures.labels(key[0]).inc()
            return _End(BACKOFFS_S[-1], hurry)
        self._failures.pop(key, None)
        self._complaints.well(key, "action applied again", key=key)
        return _End(pause_s, hurry)

    def _back_off(self, key: Key, error: KafkaLiteError) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._metrics.reconcile_failures.labels(key[0]).inc()
        # One lost race is nothing to talk about: the next round decides on the newer state at once.
        lost_race = isinstance(error, KubeInvalid | KubeConflict) and failures == 0
        if lost_race:
            _log.debug("action not applied", key=key, error=str(error))
        else:
            self._complaints.wrong(key, "action not applied", error, key=key, failures=failures + 1)
        if isinstance(error, KubeThrottled):
            return error.retry_after_s
        first = 1 if isinstance(error, KubeUnavailable) else 0
        return BACKOFFS_S[min(failures + first, len(BACKOFFS_S) - 1)]
