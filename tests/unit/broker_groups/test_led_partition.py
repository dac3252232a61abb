"""One led partition: loading, appending, time, and the ends that it may come to; the coordinator is the test's."""

import asyncio
from itertools import pairwise
from time import monotonic

import pytest

from kafkalite_broker.clock import now_ms
from kafkalite_broker.groups import loading
from kafkalite_broker.groups import manager as manager_module
from kafkalite_core.groups.events import (
    Answered,
    Append,
    Appended,
    AppendFailed,
    Loaded,
    RecordsLoaded,
    Requested,
    Resigned,
    Tick,
    TopicsDeleted,
)
from kafkalite_core.groups.refusals import refusal
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.storage.errors import DiskFailure, ReadInterrupted
from tests.unit.broker_groups.fakes import REF, GroupRig, heartbeat, use_fakes
from tests.unit.replication.rig import on_uvloop, topic_ref, until


@pytest.fixture
def made(monkeypatch):
    return use_fakes(monkeypatch)


def led(rig, number=0):
    return rig.groups._led[number]


def loaded_records(coordinator):
    return [record for event in coordinator.of(RecordsLoaded) for record in event.records]


async def loaded(rig, number=0):
    await until(lambda: number in rig.groups._led and led(rig, number).loaded)
    return led(rig, number).coordinator


# ---------------------------------------------------------------------------------------------------- loading


@on_uvloop
async def test_an_empty_partition_is_loaded_at_once(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        assert [type(event) for event in coordinator.events] == [Loaded]
        assert coordinator.events[0].wall_ms > 1_600_000_000_000


@on_uvloop
async def test_everything_in_the_log_is_loaded_in_order_and_in_slices(tmp_path, made, monkeypatch):
    monkeypatch.setattr(loading, "PIECE_BYTES", 600)
    monkeypatch.setattr(loading, "SLICE_RECORDS", 3)
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        written = []
        for number in range(40):
            pairs = [(b"k%d-%d" % (number, n), b"v" * n if n else None) for n in range(number % 9 + 1)]
            compressed = {"codec": 1, "compress": lambda _, data: _gzip(data)} if number % 5 == 0 else {}
            rig.write(*pairs, **compressed)
            written += pairs
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1, replicas=(0, 1))
        turns = []

        async def count_turns():
            while True:
                turns.append(sum(len(event.records) for event in made[-1].of(RecordsLoaded)) if len(made) > 1 else 0)
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        rig.lead_offsets(epoch=2)
        coordinator = await loaded(rig)
        counting.cancel()
        assert loaded_records(coordinator) == written
        assert max(len(event.records) for event in coordinator.of(RecordsLoaded)) == 3
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) <= 6, "other work has its turn between the slices"
        assert type(coordinator.events[-1]) is Loaded


def _gzip(data):
    import gzip

    return gzip.compress(data)


@on_uvloop
async def test_markers_and_records_without_key_are_left_out(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"a", b"1"))
        rig.write((b"\0\0\0\0", b"\0\0\0\0\0\0"), control=True, transactional=True)
        rig.write((None, b"2"), (b"b", b"3"))
        rig.write((b"c", b"4"), codec=2, compress=lambda _, data: b"no snappy at all")
        rig.write((b"d", b"5"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2)
        assert loaded_records(await loaded(rig)) == [(b"a", b"1"), (b"b", b"3"), (b"d", b"5")]


@on_uvloop
async def test_of_a_key_that_was_written_again_and_again_the_last_record_is_enough(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        rig.write((b"c", b"1"), (b"b", None), (b"a", b"3"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2)
        assert loaded_records(await loaded(rig)) == [(b"c", b"1"), (b"b", None), (b"a", b"3")]


@on_uvloop
async def test_what_is_loaded_is_committed_before_it_is_served(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2, replicas=(0, 1))
        await until(lambda: made[-1].of(RecordsLoaded))
        await asyncio.sleep(0.05)
        assert rig.offsets().replica.high_watermark == 0
        assert not led(rig).loaded
        assert made[-1].of(Loaded) == []
        rig.follower_fetches()
        assert (await loaded(rig)) is made[-1]


@on_uvloop
async def test_a_read_that_was_overtaken_is_made_again(tmp_path, made, monkeypatch):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        rig.lose_offsets(epoch=1)
        log, failures = rig.offsets().log, [ReadInterrupted("cut"), ReadInterrupted("cut")]
        plan_read = type(log).plan_read

        def interrupted(self, *arguments, **named):
            if failures:
                raise failures.pop()
            return plan_read(self, *arguments, **named)

        monkeypatch.setattr(type(log), "plan_read", interrupted)
        rig.lead_offsets(epoch=2)
        assert loaded_records(await loaded(rig)) == [(b"k", b"v")]
        assert failures == []
        assert len(made) == 2, "by the same coordinator"


@on_uvloop
async def test_leadership_lost_and_regained_while_loading_loads_anew(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.write((b"k", b"v"))
        await rig.flusher.drain()
        first, asked = led(rig), heartbeat()
        first.ask(asked)
        rig.lose_offsets(epoch=1)
        rig.lead_offsets(epoch=2, replicas=(0, 1))
        assert led(rig) is not first
        await asyncio.sleep(0.01)
        assert first._loading.cancelled()
        rig.follower_fetches()
        coordinator = await loaded(rig)
        assert loaded_records(coordinator) == [(b"k", b"v")]
        assert first.coordinator.of(Loaded) == []
        assert not first.loaded
        assert asked.token.response.error_code == ErrorCode.NOT_COORDINATOR


# ---------------------------------------------------------------------------------------------------- leadership


@on_uvloop
async def test_a_leader_that_stays_leader_keeps_its_coordinator(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        rig.lead_offsets(epoch=1)
        await asyncio.sleep(0)
        assert led(rig).coordinator is coordinator
        assert coordinator.of(Resigned) == []


@on_uvloop
async def test_who_waits_at_the_resignation_is_sent_to_the_new_coordinator(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        partition, asked = led(rig), [heartbeat() for _ in range(3)]
        for one in asked:
            partition.ask(one)
        # The coordinator forgets one of them; nobody must wait for ever on that account.
        coordinator.waiting.pop()
        rig.lose_offsets(epoch=1)
        assert rig.groups._led == {}
        await until(lambda: all(one.token.response for one in asked))
        assert {one.token.response.error_code for one in asked} == {ErrorCode.NOT_COORDINATOR}
        late = heartbeat()
        partition.ask(late)
        assert late.token.response.error_code == ErrorCode.NOT_COORDINATOR
        assert coordinator.of(Requested) == asked


@on_uvloop
async def test_a_topic_that_was_deleted_and_made_again_has_new_coordinators(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        await loaded(rig)
        rig.write((b"k", b"v"))
        rig.delete_topic(REF)
        assert rig.groups._led == {}
        rig.lead_offsets(topic_ref(REF.name, uid="second"))
        coordinator = await loaded(rig)
        assert coordinator is not made[0]
        assert loaded_records(coordinator) == []
        assert made[0].of(Resigned)


@on_uvloop
async def test_other_topics_have_no_coordinator(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        await rig.lead(topic_ref("orders"))
        assert made == []


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
    rig.config["offsets.commit.timeout.ms"] = "20"
    async with rig:
        rig.lead_offsets(replicas=(0, 1))
        rig.follower_fetches()
        append_on_request(await loaded(rig), (b"k", b"v"))
        asked = heartbeat()
        led(rig).ask(asked)
        rig.partitions.tick()
        await asyncio.sleep(0)
        assert asked.token.response is None
        await asyncio.sleep(0.03)
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
        assert 0.0 <= fired[0] < 500.0
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
        assert monotonic() - began_s < 5.0
        assert led(rig)._timer is None


@on_uvloop
async def test_a_deadline_that_the_coordinator_does_not_move_does_not_stop_the_loop(tmp_path, made):
    async with GroupRig(tmp_path) as rig:
        rig.lead_offsets()
        coordinator = await loaded(rig)
        coordinator.deadline_ms = now_ms() - 1000.0
        led(rig).ask(heartbeat())
        await asyncio.sleep(0.05)
        assert 2 <= len(coordinator.of(Tick)) <= 60


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
