from kafkalite_core.membership.producer_ids import CLOCK_MAX_MS, IDS_PER_MS, PREFETCH_BELOW, ProducerIds


def test_ids_come_in_order_and_run_out():
    ids = ProducerIds()
    assert ids.take() is None
    ids.add_block(5000, 3)
    assert [ids.take() for _ in range(4)] == [5000, 5001, 5002, None]


def test_a_second_block_follows_the_first():
    ids = ProducerIds()
    ids.add_block(0, 2)
    ids.add_block(1000, 2)
    assert [ids.take() for _ in range(5)] == [0, 1, 1000, 1001, None]


def test_the_next_block_is_wanted_before_the_last_id():
    ids = ProducerIds()
    assert ids.wants_block
    ids.add_block(0)
    while not ids.wants_block:
        assert ids.take() is not None
    assert ids.remaining == PREFETCH_BELOW - 1


def test_a_block_given_twice_is_used_once():
    ids = ProducerIds()
    ids.add_block(0, 3)
    ids.add_block(0, 3)
    assert [ids.take() for _ in range(4)] == [0, 1, 2, None]


def test_an_id_met_in_a_log_is_never_handed_out():
    ids = ProducerIds()
    ids.add_block(0, 10)
    ids.raise_floor(6)
    assert ids.take() == 7
    ids.raise_floor(3)
    assert ids.take() == 8
    ids.raise_floor(2000)
    ids.add_block(1000, 1000)
    assert ids.take() is None
    ids.add_block(2000, 3)
    assert ids.take() == 2001


def test_a_block_begins_above_the_counter_the_logs_and_the_time():
    ids = ProducerIds()
    assert ids.beginning(5000, wall_ms=0) == 5000
    assert ids.beginning(5000, wall_ms=7) == 7 * IDS_PER_MS
    ids.raise_floor(8000)
    assert ids.beginning(5000, wall_ms=7) == 8001
    assert ids.beginning(9000, wall_ms=7) == 9000


def test_a_clock_that_is_out_of_order_uses_up_no_ids():
    ids = ProducerIds()
    for wall_ms in (-1, CLOCK_MAX_MS, 1 << 62):
        assert ids.beginning(3, wall_ms=wall_ms) == 3
    assert ids.beginning(3, wall_ms=CLOCK_MAX_MS - 1) < 1 << 62
