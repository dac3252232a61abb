"""An operator whose Lease ran out while the API server was away leaves its loop to the elector."""

import asyncio
import contextlib
from types import SimpleNamespace

from kafkalite_operator.controller import Controller


async def test_the_loop_goes_on_while_the_lease_is_expired_and_unnoticed():
    controller = object.__new__(Controller)
    controller._elector = SimpleNamespace(acquired=asyncio.Event(), held=lambda: False, terms=1)
    controller._elector.acquired.set()
    task = asyncio.create_task(controller.run())
    turns = 0
    # Without the pause this loop never gets a turn, and not even the time-out comes.
    async with asyncio.timeout(60):
        while turns < 6:
            await asyncio.sleep(0.01)
            turns += 1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
