"""The cleaner's keys are followed while it works."""

import asyncio
import threading

from kafkalite_broker.log import cleaner as cleaner_module
from tests.unit.replication.rig import until
from tests.unit.storage.test_cleaner import COMPACTED, REF, cleaning, put, state_of


async def test_the_number_of_threads_changes_while_they_work(open_manager, clock):
    logs = [open_manager.obtain(REF, number, COMPACTED)[0] for number in range(4)]
    for log in logs:
        put(log, 60)
    gate, begun = threading.Event(), []
    async with cleaning(open_manager, clock) as cleaner:
        submit = cleaner._pool.submit
        cleaner._pool.submit = lambda job, *rest: submit(lambda: (begun.append(1), gate.wait(60), job(*rest))[2])
        task = asyncio.create_task(cleaner.run())
        await until(lambda: cleaner._in_progress)
        assert len(cleaner._in_progress) == 1
        cleaner.reconfigure({"log.cleaner.threads": "3", "log.cleaner.backoff.ms": "0"})
        await until(lambda: len(cleaner._in_progress) == len(begun) == 3)
        cleaner.reconfigure({"log.cleaner.backoff.ms": "0"})
        gate.set()
        await until(lambda: not any(open_manager.cleaner_offset(log) is None for log in logs))
        await until(lambda: not cleaner._in_progress)
        gate.clear()
        for log in logs:
            put(log, 60, tag="w")
        await until(lambda: cleaner._in_progress)
        cleaner.reconfigure({"log.cleaner.backoff.ms": "50"})
        await asyncio.sleep(0)
        assert len(cleaner._in_progress) == 1, "whoever is too many has nothing to do any more"
        gate.set()
        await until(lambda: all(open_manager.cleaner_offset(log) == log.active.base_offset for log in logs))
        task.cancel()
    assert all(state_of(log)[0].keys() == {b"k0", b"k1", b"k2"} for log in logs)


async def test_a_cleaner_at_rest_hears_of_another_back_off(open_manager, clock):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    async with cleaning(open_manager, clock, **{"log.cleaner.backoff.ms": "86400000"}) as cleaner:
        looked = []
        choose = cleaner._choose
        cleaner._choose = lambda: looked.append(1) or choose()
        task = asyncio.create_task(cleaner.run())
        await until(lambda: looked)
        put(log, 60)
        cleaner.reconfigure({"log.cleaner.backoff.ms": "50"})
        await until(lambda: open_manager.cleaner_offset(log) is not None)
        task.cancel()


async def test_the_memory_for_keys_is_what_is_set_now(open_manager, clock, monkeypatch):
    log, _ = open_manager.obtain(REF, 0, COMPACTED)
    given = []
    compact_log = cleaner_module.compact
    monkeypatch.setattr(
        cleaner_module,
        "compact",
        lambda *args, map_bytes, **named: given.append(map_bytes) or compact_log(*args, map_bytes=map_bytes, **named),
    )
    async with cleaning(open_manager, clock, **{"log.cleaner.dedupe.buffer.size": "4000000"}) as cleaner:
        for config in ({"log.cleaner.dedupe.buffer.size": "6000000", "log.cleaner.threads": "2"}, {}):
            put(log, 60)
            assert await cleaner.clean_once()
            cleaner.reconfigure(config)
        put(log, 60)
        assert await cleaner.clean_once()
    assert given == [4_000_000, 3_000_000, 134_217_728]
