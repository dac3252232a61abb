"""One led partition: appending, time, and what goes wrong; the coordinator is the test's."""

import asyncio
from time import monotonic

import pytest

from kafkalite_broker.clock import now_ms
from kafkalite_broker.groups import manager as manager_module
from kafkalite_core.groups.events import (
    Answered,
    Append,
    Appended,
    AppendFailed,
    Requested,
    Tick,
    TopicsDeleted,
)
from kafkalite_core.groups.refusals import refusal
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.storage.errors import DiskFailure
from tests.unit.broker_groups.fakes import REF, GroupRig, heartbeat, led, loaded, use_fakes
from tests.unit.replication.rig import on_uvloop, until


@pytest.fixture
def made(monkeypatch):
    return use_fakes(monkeypatch)


# ---------------------------------------------------------------------------------------------------- records


def append_on_request(coordinator, *records):
    numbers = iter(range(1, 100))

    def react(event):
        if isinstance(event, Requested):
            return [Append(append_id=next(numbers), records=list(records))]
        if isinstance(event, Appended | AppendFailed):
            code = event.error_code if isinstance(event, AppendFailed) else 0
            asked = coordinator.waiting.pop(0)
            return [Answered(token=asked.token, response=refusal(asked.request, asked.api_version, code))]
        return []

    coordinator.react = react


@on_uvloop
async def test_an_answer_is_released_when_the_high_watermark_passes_the_records(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.follower_fetches()
        coordinator = await loaded(rig)
        append_on_request(coordinator, (b"k", b"v"), (b"dead", None))
        asked = heartbeat()
        led(rig).ask(asked)
        await rig.flusher.drain()
        await asyncio.sleep(0.02)
        assert rig.offsets().log.end_offset == 2
        assert asked.token.response is None
        rig.follower_fetches()
        await until(lambda: asked.token.response is not None)
        assert asked.token.response.error_code == 0
        assert coordinator.of(Appended) == [Appended(append_id=1)]
        assert rig.telemetry.topic(REF.name).messages_in == 2


@on_uvloop
async def test_records_that_are_not_committed_in_time(tmp_path, made):
    rig = GroupRig(tmp_path)
    rig.config["offsets.commit.timeout.ms"] = "1000"  # a busy machine does not take that long for two lines
    async with rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.follower_fetches()
        append_on_request(await loaded(rig), (b"k", b"v"))
        asked = heartbeat()
        led(rig).ask(asked)
        rig.partitions.tick()
        await asyncio.sleep(0)
        assert asked.token.response is None
        await asyncio.sleep(1.01)
        rig.partitions.tick()
        await until(lambda: asked.token.response is not None)
        assert asked.token.response.error_code == ErrorCode.REQUEST_TIMED_OUT


@on_uvloop
async def test_too_few_in_sync_refuses_before_anything_is_appended(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.see_broker(0, rig.port)
        state = rig.entries(0, 1, (0,), leader=0)
        rig.see_topic(REF, {0: _min_isr(state[0], 2)})
        append_on_request(await loaded(rig), (b"k", b"v"))
        asked = heartbeat()
        led(rig).ask(asked)
        await until(lambda: asked.token.response is not None)
        assert asked.token.response.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert rig.offsets().log.end_offset == 0


def _min_isr(partition, number):
    from dataclasses import replace

    return replace(partition, min_isr=number)


@on_uvloop
async def test_a_batch_beyond_max_message_bytes_is_refused(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(config={"max.message.bytes": "1000"})
        append_on_request(await loaded(rig), (b"k", b"v" * 1000))
        asked = heartbeat()
        led(rig).ask(asked)
        await until(lambda: asked.token.response is not None)
        assert asked.token.response.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert rig.offsets().log.end_offset == 0


@on_uvloop
async def test_completions_come_in_order_and_never_in_the_middle_of_a_step(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        # With relaxed flushing and a single replica a record is committed within its own append.
        rig.lead_offsets(config={"flush.messages": "1000"})
        coordinator = await loaded(rig)
        depth, order, numbers = [0], [], iter(range(1, 100))
        step = coordinator.step

        def watched(now, event):
            assert depth == [0], "one step at a time"
            depth[0] += 1
            try:
                return step(now, event)
            finally:
                depth[0] -= 1

        def react(event):
            if isinstance(event, Requested):
                return [Append(append_id=next(numbers), records=[(b"k", b"v")]) for _ in range(3)]
            if isinstance(event, Appended):
                order.append(event.append_id)
                if len(order) < 5:
                    return [Append(append_id=next(numbers), records=[(b"k", b"v")])]
            return []

        coordinator.step, coordinator.react = watched, react
        led(rig).ask(heartbeat())
        await until(lambda: len(order) == 7)
        assert order == sorted(order)


@on_uvloop
async def test_who_asks_again_from_within_an_answer_waits_for_the_end_of_the_step(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        first, second, third = heartbeat(), heartbeat(), heartbeat()
        order = []

        def answer(response):
            led(rig).ask(third)
            order.append("first")

        first.token.answer = answer
        second.token.answer = lambda response: order.append("second")
        third.token.answer = lambda response: order.append("third")
        led(rig).ask(first)
        coordinator.react = lambda event: coordinator.answer_all()
        led(rig).ask(second)
        assert order == ["first", "second", "third"]


# ---------------------------------------------------------------------------------------------------- time


@on_uvloop
async def test_the_coordinator_is_woken_at_its_deadline(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        fired = []

        def react(event):
            if isinstance(event, Requested):
                coordinator.deadline_ms = now_ms() + 60.0
            if isinstance(event, Tick):
                fired.append(now_ms() - coordinator.deadline_ms)
                coordinator.deadline_ms = None
            return []

        coordinator.react = react
        led(rig).ask(heartbeat())
        led(rig).ask(heartbeat())
        await until(lambda: fired)
        assert 0.0 <= fired[0] < 10_000.0
        await asyncio.sleep(0.1)
        assert len(fired) == 1


@on_uvloop
async def test_an_earlier_deadline_replaces_a_later_one_and_none_ends_the_timer(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        deadlines = [now_ms() + 60_000.0, now_ms() + 10.0]

        def react(event):
            coordinator.deadline_ms = deadlines.pop(0) if isinstance(event, Requested) else None
            return []

        coordinator.react = react
        began_s = monotonic()
        led(rig).ask(heartbeat())
        led(rig).ask(heartbeat())
        await until(lambda: coordinator.of(Tick))
        assert monotonic() - began_s < 30, "the timer of the first answer would have been a minute"
        assert led(rig)._timer is None


@on_uvloop
async def test_a_deadline_that_the_coordinator_does_not_move_does_not_stop_the_loop(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        coordinator.deadline_ms = now_ms() - 1000.0
        began_s = monotonic()
        led(rig).ask(heartbeat())
        await until(lambda: len(coordinator.of(Tick)) >= 2)
        await asyncio.sleep(0.05)
        assert len(coordinator.of(Tick)) <= 1.2 * (monotonic() - began_s) * 1000.0, "one in a millisecond, at most"


# ---------------------------------------------------------------------------------------------------- defects


@on_uvloop
async def test_a_coordinator_that_fails_is_given_up_and_loaded_again(tmp_path, made, monkeypatch):
    monkeypatch.setattr(manager_module, "LOAD_AGAIN_S", 0.02)
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        waiting = heartbeat()
        led(rig).ask(waiting)

        def fail(event):
            raise ZeroDivisionError

        coordinator.react = fail
        fatal = heartbeat()
        led(rig).ask(fatal)
        assert waiting.token.response.error_code == ErrorCode.NOT_COORDINATOR
        assert fatal.token.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "nobody should send it again"
        assert rig.groups._led == {}
        assert (await loaded(rig)) is not coordinator
        assert rig.fatal == []


@on_uvloop
async def test_a_coordinator_that_fails_while_leadership_goes_is_not_loaded_again(tmp_path, made, monkeypatch):
    monkeypatch.setattr(manager_module, "LOAD_AGAIN_S", 0.02)
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)

        def fail(event):
            raise ZeroDivisionError

        coordinator.react = fail
        led(rig).ask(heartbeat())
        rig.lose_offsets(epoch=1)
        await asyncio.sleep(0.06)
        assert rig.groups._led == {}
        assert len(made) == 1


@on_uvloop
async def test_a_partition_that_cannot_be_loaded_is_tried_again_less_and_less_often(tmp_path, made, monkeypatch):
    monkeypatch.setattr(manager_module, "LOAD_AGAIN_S", 0.01)
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)

        def fail(*_, **__):
            raise ZeroDivisionError

        monkeypatch.setattr(type(rig.offsets().log), "plan_read", fail)
        began_s = monotonic()
        rig.lead_offsets(epoch=2, replicas=(0, 1))
        await until(lambda: rig.groups._failures.get(0) == 3)
        assert monotonic() - began_s >= 0.02 + 0.04
        assert rig.groups._led == {}
        monkeypatch.undo()
        use_fakes(monkeypatch)
        rig.follower_fetches()
        await loaded(rig)


@on_uvloop
async def test_a_disk_failure_ends_the_broker(tmp_path, made, monkeypatch):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        append_on_request(await loaded(rig), (b"k", b"v"))

        def fail(*_, **__):
            raise DiskFailure("EIO")

        monkeypatch.setattr(type(rig.offsets().log), "append_as_leader", fail)
        led(rig).ask(heartbeat())
        assert [type(error) for error in rig.fatal] == [DiskFailure]


# ---------------------------------------------------------------------------------------------------- news


@on_uvloop
async def test_deleted_topics_are_told_now_or_after_loading(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        led(rig).topics_deleted(frozenset({"a"}))
        led(rig).topics_deleted(frozenset({"b"}))
        await rig.flusher.drain()
        assert made[0].of(TopicsDeleted) == []
        rig.follower_fetches()
        coordinator = await loaded(rig)
        await until(lambda: coordinator.of(TopicsDeleted))
        led(rig).topics_deleted(frozenset({"c"}))
        await until(lambda: len(coordinator.of(TopicsDeleted)) == 2)
        assert [event.topics for event in coordinator.of(TopicsDeleted)] == [{"a", "b"}, {"c"}]


@on_uvloop
async def test_new_configuration_reaches_running_and_future_coordinators(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(partitions=2)
        coordinator = await loaded(rig)
        assert coordinator.config.initial_rebalance_delay_ms == 3000
        rig.groups.reconfigure({"group.initial.rebalance.delay.ms": "0", "offsets.retention.minutes": "2"})
        assert coordinator.config.initial_rebalance_delay_ms == 0
        assert coordinator.config.offsets_retention_ms == 120_000
        rig.lose_offsets(epoch=1, partitions=2)
        rig.lead_offsets(epoch=2, partitions=2)
        assert (await loaded(rig)).config.initial_rebalance_delay_ms == 0
