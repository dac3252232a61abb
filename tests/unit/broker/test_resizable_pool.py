"""A pool of threads that grows and shrinks while it works."""

import threading

import pytest

from kafkalite_broker.resizable_pool import ResizablePool

WAIT_S = 60


@pytest.fixture
def pool():
    one = ResizablePool(1, thread_name_prefix="test")
    yield one
    one.shutdown()


def test_it_grows_while_its_threads_are_busy(pool):
    meeting = threading.Barrier(3)
    met = [pool.submit(meeting.wait, WAIT_S)]
    pool.resize(2)
    met += [pool.submit(meeting.wait, timeout=WAIT_S) for _ in range(2)]
    assert sorted(each.result(WAIT_S) for each in met) == [0, 1, 2]


def test_it_shrinks_and_what_waits_is_done_all_the_same(pool):
    pool.resize(2)
    gate = threading.Event()
    before = [pool.submit(gate.wait, WAIT_S) for _ in range(3)]
    pool.resize(1)
    first, second = pool.submit(gate.wait, WAIT_S), pool.submit(threading.current_thread)
    assert not second.running()
    gate.set()
    assert all(each.result(WAIT_S) for each in (*before, first))
    assert second.result(WAIT_S).name.startswith("test")


def test_the_same_size_changes_nothing(pool):
    thread = pool.submit(threading.current_thread).result(WAIT_S)
    pool.resize(1)
    assert pool.submit(threading.current_thread).result(WAIT_S) is thread


def test_its_end_waits_for_what_was_asked_for_before_a_change(pool):
    gate, ended = threading.Event(), threading.Event()
    work = pool.submit(gate.wait, WAIT_S)
    pool.resize(4)
    ending = threading.Thread(target=lambda: (pool.shutdown(), ended.set()))
    ending.start()
    assert not ended.is_set()
    gate.set()
    ending.join(WAIT_S)
    assert ended.is_set()
    assert work.done()
    with pytest.raises(RuntimeError):
        pool.submit(gate.wait)
