"""Keys of running brokers by Kafka's clients: set, shown, restored, and how far they go in one step."""

import pytest

from kafkalite_core.model.config_entries import ConfigSource
from kafkalite_core.protocol.errors import ErrorCode
from tests.unit.replication.rig import on_uvloop
from tests.unit.server.test_config_handlers import (
    BROKER,
    DELETE,
    SET,
    alter,
    by_name,
    codes,
    describe,
    incremental,
    rig_with_writer,
    with_topic,
)

LIVE = {
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.threads": "2",
    "max.connections": "100",
    "num.io.threads": "16",
    "producer.id.expiration.ms": "1000",
}


@on_uvloop
async def test_what_a_running_broker_follows_is_set_shown_and_restored(tmp_path):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        await with_topic(rig)
        before = by_name((await describe(client, (BROKER, "0")))[0])
        changes = [(key, SET, value) for key, value in LIVE.items()]
        assert codes(await incremental(client, (BROKER, "", changes))) == [0]
        assert rig.cluster.config == LIVE
        for name in ("0", ""):
            found = by_name((await describe(client, (BROKER, name)))[0])
            for key, value in LIVE.items():
                assert (found[key].value, found[key].config_source, found[key].read_only) == (
                    value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, False,
                )  # fmt: skip
        gone = [(key, DELETE, None) for key in LIVE]
        assert codes(await incremental(client, (BROKER, "", gone))) == [0]
        found = by_name((await describe(client, (BROKER, "0")))[0])
        assert {key: found[key].value for key in LIVE} == {key: before[key].value for key in LIVE}
        assert {found[key].config_source for key in LIVE} == {ConfigSource.DEFAULT_CONFIG}
        assert codes(await alter(client, (BROKER, "", list(LIVE.items())))) == [0]
        assert rig.cluster.config == LIVE


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        ({}, {"num.io.threads": "17"}, "num.io.threads: 17 is too far from 8"),
        ({}, {"num.io.threads": "3"}, "num.io.threads: 3 is too far from 8"),
        ({"num.io.threads": "5"}, {"num.io.threads": "1"}, "num.io.threads: 1 is too far from 5"),
        ({"num.io.threads": "32"}, {"num.io.threads": None}, "num.io.threads: 8 is too far from 32"),
        ({}, {"log.cleaner.threads": "3"}, "log.cleaner.threads: 3 is too far from 1"),
        ({"log.cleaner.threads": "4"}, {"log.cleaner.dedupe.buffer.size": "4194303"}, "4194303 is too little for 4"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, {"log.cleaner.threads": "2"}, "1048576 is too little for 2"),
    ],
)
def test_a_step_that_is_too_large_is_refused(tmp_path, config, changes, words):
    @on_uvloop
    async def run():
        async with rig_with_writer(tmp_path) as rig, rig.client() as client:
            await with_topic(rig, config)
            wanted = [(key, DELETE if value is None else SET, value) for key, value in changes.items()]
            (response,) = await incremental(client, (BROKER, "", wanted))
            assert response.error_code == ErrorCode.INVALID_CONFIG
            assert words in response.error_message
            assert rig.topic_writer.written == []

    run()


@on_uvloop
async def test_steps_that_clients_may_take_and_what_they_need_not_answer_for(tmp_path):
    async with rig_with_writer(tmp_path) as rig, rig.client() as client:
        # 16 threads with 64 KiB each, and a number that is none, as somebody wrote it into the cluster.
        config = {"log.cleaner.threads": "16", "log.cleaner.dedupe.buffer.size": "1048576", "num.io.threads": "many"}
        await with_topic(rig, config)
        for key, value in (
            ("num.io.threads", "16"), ("num.io.threads", "32"), ("num.io.threads", "17"), ("num.io.threads", "8"),
            ("max.connections", "1"), ("max.connections", "2147483647"), ("log.cleaner.dedupe.buffer.size", "16777216"),
            ("log.cleaner.threads", "8"),
        ):  # fmt: skip
            assert codes(await incremental(client, (BROKER, "", [(key, SET, value)]))) == [0], (key, value)
