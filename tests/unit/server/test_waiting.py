"""Deadlines of waiting fetches."""

import asyncio

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
        waiting.finished()
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
