from kafkalite_core.membership.producer_ids import PREFETCH_BELOW, ProducerIds


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
