"""How far apart group flushes begin: the rule, and the flusher that follows it."""

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalite_broker.log.flusher import GroupFlusher
from kafkalite_core.model.config import resolve_topic_config
from kafkalite_core.model.partition import TopicRef
from kafkalite_core.storage import flush_gathering
from kafkalite_core.storage.flush_gathering import RATE_MIN_BYTES_PER_MS, FlushGathering

ENOUGH_BYTES = 12 * RATE_MIN_BYTES_PER_MS
REF = TopicRef("ns", "orders", "uid-1", "5f0c1c2e-0000-4000-8000-000000000001", "orders")


def test_after_a_large_flush_the_next_one_gathers():
    gathering = FlushGathering(12)
    assert gathering.wait_ms(0) == 0
    gathering.begun(100, ENOUGH_BYTES)
    assert gathering.wait_ms(103) == 9
    assert gathering.wait_ms(112) == 0
    assert gathering.wait_ms(500) == 0


def test_after_a_small_flush_it_begins_at_once():
    gathering = FlushGathering(12)
    gathering.begun(100, ENOUGH_BYTES)
    gathering.begun(112, ENOUGH_BYTES - 1)
    assert gathering.wait_ms(113) == 0


def test_zero_turns_it_off():
    gathering = FlushGathering(0)
    gathering.begun(100, 1 << 30)
    assert gathering.wait_ms(100) == 0


@pytest.mark.parametrize("rate", [0.001, RATE_MIN_BYTES_PER_MS])
async def test_the_flusher_waits_under_load_only_and_nothing_is_forgotten(manager, tools, monkeypatch, rate):
    monkeypatch.setattr(flush_gathering, "RATE_MIN_BYTES_PER_MS", rate)
    one = manager()
    one.open()
    log, _ = one.obtain(REF, 0, resolve_topic_config({}))
    begun_s, waits_ms = [], []
    wait = FlushGathering.wait_ms
    monkeypatch.setattr(FlushGathering, "wait_ms", lambda *given: waits_ms.append(wait(*given)) or waits_ms[-1])
    begin = log.begin_flush
    monkeypatch.setattr(type(log), "begin_flush", lambda _log: begun_s.append(time.monotonic()) or begin())
    with ThreadPoolExecutor(1) as pool:
        flusher = GroupFlusher(
            asyncio.get_running_loop(),
            pool,
            on_flushed=lambda _log: None,
            on_fatal=lambda error: pytest.fail(repr(error)),
            gather_ms=100,
        )
        for number in (1, 2, 3):
            tools.fill(log, 1)
            flusher.mark_dirty(log)
            await flusher.drain()
            assert log.flushed_end == number
    gaps_ms = [1000 * (after - before) for before, after in itertools.pairwise(begun_s)]
    assert len(gaps_ms) == 2
    if rate < 1:
        assert min(gaps_ms) > 98, "timers may be early by their resolution"
    else:
        assert waits_ms == [0, 0, 0]
