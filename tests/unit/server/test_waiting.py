"""Deadlines of waiting fetches."""

import asyncio

import uvloop

from kafkalite_broker.server.waiting import WaitingFetches


class Waiter:
    def __init__(self):
        self.done = False
        self.expired = asyncio.Event()

    def expire(self):
        self.done = True
        self.expired.set()


async def test_waiters_expire_in_the_order_of_their_deadlines():
    waiting, loop = WaitingFetches(), asyncio.get_running_loop()
    now = loop.time()
    waiters = [Waiter() for _ in range(3)]
    for waiter, delay in zip(waiters, (0.03, 0.01, 0.02), strict=True):
        waiting.add(waiter, now + delay)
    await waiters[1].expired.wait()
    assert not waiters[0].done
    await waiters[0].expired.wait()
    assert waiters[2].done
    assert len(waiting) == 0


async def test_who_is_done_is_not_expired_and_does_not_pile_up():
    waiting, loop = WaitingFetches(), asyncio.get_running_loop()
    answered, last = Waiter(), Waiter()
    answered.done = True
    waiting.add(answered, loop.time() + 0.005)
    waiting.add(last, loop.time() + 0.01)
    await last.expired.wait()
    assert not answered.expired.is_set()
    assert len(waiting) == 0


async def test_fetches_answered_long_before_their_deadline_are_forgotten():
    waiting, loop = WaitingFetches(), asyncio.get_running_loop()
    stays = Waiter()
    waiting.add(stays, loop.time() + 3600)
    for _ in range(1000):
        waiter = Waiter()
        waiting.add(waiter, loop.time() + 3000)
        waiter.done = True
        waiting.finished(waiter)
    assert len(waiting) < 200
    assert any(entry[2] is stays for entry in waiting._heap)


async def test_a_waiter_that_fails_does_not_stop_the_timer_of_the_others():
    waiting, loop = WaitingFetches(), asyncio.get_running_loop()
    errors = []
    loop.set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
    bad, good = Waiter(), Waiter()
    bad.expire = lambda: 1 / 0
    waiting.add(bad, loop.time())
    waiting.add(good, loop.time() + 0.005)
    await good.expired.wait()
    assert [type(error) for error in errors] == [ZeroDivisionError]


async def test_the_oldest_ones_make_room_and_who_is_alone_may_hold_more():
    waiting, later_s = WaitingFetches(bytes_max=10), asyncio.get_running_loop().time() + 3600
    first, second, free, third, large = (Waiter() for _ in range(5))
    for waiter, held_bytes in ((first, 4), (second, 6), (free, 0)):
        waiting.add(waiter, later_s, held_bytes)
    assert not first.done
    waiting.add(third, later_s, 1)
    assert [waiter.done for waiter in (first, second, free, third)] == [True, False, False, False]
    assert waiting.held_bytes == 7
    second.done = True
    waiting.finished(second)
    assert waiting.held_bytes == 1
    waiting.add(large, later_s, 20)
    assert third.done
    assert not large.done
    assert not free.done
    assert waiting.held_bytes == 20


def test_what_is_due_at_once_has_a_timer_as_well():
    """uvloop's handle of such a one does not say when it is due."""

    async def run():
        waiting, loop = WaitingFetches(), asyncio.get_running_loop()
        first, second = Waiter(), Waiter()
        waiting.add(first, loop.time() - 1)
        waiting.add(second, loop.time() - 2)
        async with asyncio.timeout(60):
            await first.expired.wait()
            await second.expired.wait()

    uvloop.run(run())
