"""`kafkalite-broker`: reads its settings from the pod's environment and runs one broker until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

import uvloop

from kafkalite_broker.broker import FATAL_EXIT_CODE, Broker
from kafkalite_broker.cluster.settings import BrokerSettings
from kafkalite_broker.descriptors import raise_limit
from kafkalite_broker.server.listener import ListenerError
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_runtime.logging import configure_logging, get_logger, level_of

USAGE_EXIT_CODE = 64

log = get_logger(__name__)


def main() -> None:
    """Entry point."""
    try:
        configure_logging("broker", level_of(os.environ))
        settings = BrokerSettings.from_environment(os.environ)
    except KafkaLiteError as error:
        sys.stderr.write(f"kafkalite-broker: {error}\n")
        sys.exit(USAGE_EXIT_CODE)
    raise_limit()
    sys.exit(uvloop.run(_run(settings)))


async def _run(settings: BrokerSettings) -> int:
    broker = Broker(settings, os.environ)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.stop)
    # What exists now lives for ever: the collector need not look at it again with every pass.
    gc.collect()
    gc.freeze()
    try:
        return await broker.run()
    except (KafkaLiteError, ListenerError, OSError) as error:
        log.critical("broker cannot run", error=str(error))
        return FATAL_EXIT_CODE
