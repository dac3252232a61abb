"""What the operator has under way: bounded, the most urgent first, and planned anew when it waited too long."""

import asyncio

import pytest
import pytest_asyncio

from kafkalite_core.controller.actions import ChangePartitions, Fence, UpdateTopicStatus
from kafkalite_core.controller.pacing import (
    LIMITS,
    LOOKS_MAX,
    NODE_LOOKS_MAX,
    PAUSE_MAX_S,
    PLAN_FRESH_S,
    Urgency,
    may_begin,
    pause_s,
    urgency_of,
)
from kafkalite_core.model.partition import TopicRef
from kafkalite_operator.metrics import OperatorMetrics
from kafkalite_operator.work import REMEMBERED_MAX, Work
from kafkalite_runtime.kube.errors import KubeInvalid
from tests.unit.controller.builders import make_broker
from tests.unit.operator.fakes import eventually

REF = TopicRef("ns", "t", "u", "id", "t")


class Desk:
    """Work whose pieces end when the test says so."""

    def __init__(self):
        self.now = 100.0
        self.acting = True
        self.woken = []
        self.begun = []
        self._ends = {}
        self.work = Work(
            may_act=lambda: self.acting, wake=self.woken.append, metrics=OperatorMetrics(), clock=lambda: self.now
        )
        self.work.plan_anew()

    async def piece(self, name):
        self.begun.append(name)
        error = await self._ends.setdefault(name, asyncio.get_running_loop().create_future())
        if error is not None:
            raise error

    def offer(self, name, urgency=Urgency.CHANGE, **more):
        return self.work.offer(("topic", name), lambda: self.piece(name), urgency, **more)

    def look(self, name, **more):
        self.work.look(("infrastructure", name), self.piece(name), **more)

    def start(self, name):
        self.work.start(("remove-broker", name), self.piece(name))

    async def end(self, name, error=None):
        await eventually(lambda: name in self.begun)
        before = len(self.woken)
        self._ends.pop(name).set_result(error)
        await eventually(lambda: len(self.woken) > before)


@pytest_asyncio.fixture
async def desk():
    desk = Desk()
    yield desk
    await desk.work.cancel()


async def test_a_thousand_placements_go_out_a_few_at_a_time_and_an_election_overtakes_them(desk):
    for n in range(1000):
        assert desk.offer(f"t{n}")
    await eventually(lambda: len(desk.begun) == LIMITS[Urgency.CHANGE])
    desk.offer("elected", Urgency.ELECTION)
    await eventually(lambda: "elected" in desk.begun)
    assert len(desk.work) == LIMITS[Urgency.CHANGE] + 1
    for n in range(3):
        await desk.end(f"t{n}")
    await eventually(lambda: len(desk.begun) == LIMITS[Urgency.CHANGE] + 1 + 2)
    assert desk.begun[-2:] == [f"t{LIMITS[Urgency.CHANGE] + n}" for n in range(2)], (
        "in the order of the plan, and without another plan"
    )


async def test_what_waits_gives_way_to_what_is_more_urgent(desk):
    for n in range(LIMITS[Urgency.ELECTION]):
        desk.offer(f"e{n}", Urgency.ELECTION)
    desk.offer("told", Urgency.TELLING)
    desk.offer("placed", Urgency.CHANGE)
    desk.offer("late", Urgency.ELECTION)
    await desk.end("e0")
    await eventually(lambda: "late" in desk.begun)
    assert not {"told", "placed"} & set(desk.begun)


async def test_what_takes_no_turn_takes_none_from_what_does(desk):
    for n in range(100):
        desk.start(f"removed {n}")
        desk.look(f"look {n}")
    desk.offer("told", Urgency.TELLING)
    desk.offer("placed", Urgency.CHANGE)
    desk.offer("elected", Urgency.ELECTION)
    await eventually(lambda: {"told", "placed", "elected"} <= set(desk.begun))
    assert len(desk.begun) == 100 + LOOKS_MAX + 3


async def test_looks_that_read_nodes_take_no_turn_from_anything_else(desk):
    for n in range(100):
        desk.look(f"nodes {n}", reads_nodes=True)
    for n in range(LOOKS_MAX):
        desk.look(f"look {n}")
    desk.offer("elected", Urgency.ELECTION)
    await eventually(lambda: "elected" in desk.begun)
    begun = {kind: sum(name.startswith(kind) for name in desk.begun) for kind in ("nodes", "look")}
    assert begun == {"nodes": NODE_LOOKS_MAX, "look": LOOKS_MAX}
    await desk.end("nodes 0")
    desk.work.plan_anew()
    for n in range(1, 100):
        desk.look(f"nodes {n}", reads_nodes=True)
    await eventually(lambda: f"nodes {NODE_LOOKS_MAX}" in desk.begun)


async def test_looks_have_few_turns_in_the_order_in_which_they_were_first_asked_for(desk):
    def plan(*names):
        desk.work.plan_anew()
        for name in names:
            desk.look(name)

    first = [f"a{n}" for n in range(LOOKS_MAX)]
    plan(*first, "b", "gone", "c")
    await eventually(lambda: desk.begun == first)
    await desk.end("a0")
    plan(*first, "b", "c")
    await eventually(lambda: desk.begun == [*first, "b"])
    await desk.end("b")
    plan("b", "c")
    plan("b", "c")
    await eventually(lambda: "c" in desk.begun)
    assert desk.begun == [*first, "b", "c"], (
        "who had its turn comes after those who wait, and nobody waits for who left"
    )


async def test_the_next_plan_replaces_what_waits_and_an_old_plan_is_not_carried_out(desk):
    for n in range(LIMITS[Urgency.CHANGE] + 1):
        desk.offer(f"t{n}")
    await eventually(lambda: len(desk.begun) == LIMITS[Urgency.CHANGE])
    desk.work.plan_anew()
    await desk.end("t0")
    assert f"t{LIMITS[Urgency.CHANGE]}" not in desk.begun
    desk.offer("u")
    await eventually(lambda: "u" in desk.begun)
    desk.offer("v")
    desk.now += PLAN_FRESH_S + 0.1
    await desk.end("t1")
    assert "v" not in desk.begun, "it was decided too long ago"


async def test_what_a_long_round_has_planned_is_not_out_of_date_at_its_end(desk):
    desk.work.plan_anew()
    desk.now += 10 * PLAN_FRESH_S
    for n in range(LIMITS[Urgency.CHANGE] + 1):
        desk.offer(f"t{n}")
    await desk.end("t0")
    await eventually(lambda: len(desk.begun) == LIMITS[Urgency.CHANGE] + 1)


async def test_one_piece_for_one_object_and_a_pause_after_it(desk):
    assert desk.offer("a", pause_s=5.0)
    assert desk.offer("a"), "under way"
    await desk.end("a")
    assert not desk.offer("a"), "written a moment ago"
    desk.now += 5.1
    assert desk.offer("a")
    await eventually(lambda: desk.begun == ["a", "a"])


async def test_only_a_failed_election_asks_for_a_plan_at_once(desk):
    desk.offer("a", Urgency.ELECTION)
    await desk.end("a")
    assert desk.woken == [False]
    desk.offer("c", Urgency.ELECTION)
    await desk.end("c", KubeInvalid(422, "", "somebody was faster"))
    desk.offer("b")
    await desk.end("b", KubeInvalid(422, "", "somebody was faster"))
    assert desk.woken == [False, True, False]


async def test_what_is_cancelled_before_its_first_step_leaves_its_object_free(desk):
    desk.offer("a")
    await desk.work.cancel()
    assert (len(desk.work), desk.begun) == (0, [])
    assert desk.offer("a")
    await eventually(lambda: desk.begun == ["a"])
    await desk.work.cancel()
    assert len(desk.work) == 0


async def test_who_lost_the_lease_begins_nothing_more(desk):
    desk.acting = False
    desk.offer("a")
    await eventually(lambda: len(desk.work) == 0)
    assert desk.begun == []


async def test_failures_of_objects_long_gone_are_forgotten(desk):
    for n in range(REMEMBERED_MAX + 1):
        desk.work._not_before["topic", f"t{n}"] = desk.now - 1
        desk.work._failures["topic", f"t{n}"] = 3
    desk.work.plan_anew()
    assert (desk.work._not_before, desk.work._failures) == ({}, {})


def test_urgency_and_room():
    change = ChangePartitions(topic=REF, generation=1, changes={}, reasons={})
    assert urgency_of(Fence(broker=make_broker(1), reason="", message="", by_expiry=True)) is Urgency.FENCE
    assert urgency_of(change) is Urgency.CHANGE
    elected = ChangePartitions(topic=REF, generation=1, changes={}, reasons={}, elected=frozenset({0}))
    assert urgency_of(elected) is Urgency.ELECTION
    assert urgency_of(UpdateTopicStatus(topic=REF, generation=1, conditions=(), in_sync="")) is Urgency.TELLING
    room = [max(n for n in range(1, 200) if may_begin(urgency, n - 1)) for urgency in Urgency]
    assert room == sorted(room, reverse=True), "the more urgent, the more room"
    assert len(set(room)) == len(room)


@pytest.mark.parametrize(("took", "pause"), [(0.0, 0.0), (0.05, 0.2), (20.0, PAUSE_MAX_S), (-1.0, 0.0)])
def test_a_round_is_followed_by_a_rest_of_four_times_its_length(took, pause):
    assert pause_s(took) == pause


async def test_when_the_last_of_what_waited_has_begun_there_is_another_plan_at_once(desk):
    for n in range(LIMITS[Urgency.CHANGE] + 2):
        desk.offer(f"t{n}")
    assert desk.work.waits
    await desk.end("t0")
    assert True not in desk.woken, "one waits still"
    await desk.end("t1")
    assert True in desk.woken
    desk.woken.clear()
    await desk.end("t2")
    assert desk.woken == [False], "once"


def test_the_longest_rest_ends_while_what_waits_may_still_begin():
    assert PAUSE_MAX_S < PLAN_FRESH_S


async def test_elections_under_way_and_waiting_are_known(desk):
    assert not desk.work.electing
    desk.offer("placed")
    assert not desk.work.electing
    desk.offer("elected", Urgency.ELECTION)
    assert desk.work.electing
    await desk.end("elected")
    assert not desk.work.electing
    for n in range(LIMITS[Urgency.ELECTION]):
        desk.offer(f"e{n}", Urgency.ELECTION)
    desk.work.plan_anew()
    assert desk.work.electing, "a new plan ends none of them"
    await desk.work.cancel()
    assert not desk.work.electing
