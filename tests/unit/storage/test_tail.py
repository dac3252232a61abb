"""The bounded tail of recent batches."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.storage import tail as tail_module
from kafkalite_core.storage.tail import Tail, TailBudget

OVERHEAD = tail_module._ENTRY_OVERHEAD_BYTES


def naive(batches, offset, max_bytes, end, minimum_one):
    chosen, size = [], 0
    for base, following, content in batches:
        if following <= offset:
            continue
        if base >= end or (size + len(content) > max_bytes and not (minimum_one and not chosen)):
            break
        chosen.append(content)
        size += len(content)
    return chosen, size


@given(
    shapes=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 40)), min_size=1, max_size=30),
    budget=st.integers(0, 6000),
    data=st.data(),
)
def test_reads_as_the_naive_list_does(shapes, budget, data):
    shared = TailBudget(budget)
    tail = Tail(shared)
    batches, offset = [], 0
    for gap, count, size in shapes:
        base = offset + gap
        offset = base + count
        content = bytes(size)
        tail.add(base, offset, content)
        batches.append((base, offset, content))
        assert shared.used_bytes <= budget
    kept = batches[len(batches) - len(tail) :]
    assert shared.used_bytes == sum(len(content) + OVERHEAD for _, _, content in kept)
    asked = data.draw(st.integers(0, offset - 1))
    end = data.draw(st.integers(asked, offset + 1))
    max_bytes = data.draw(st.integers(0, 200))
    minimum_one = data.draw(st.booleans())
    found = tail.read(asked, max_bytes, end, minimum_one=minimum_one)
    if not kept or asked < kept[0][0]:
        assert found is None
    else:
        assert found == naive(kept, asked, max_bytes, end, minimum_one)


def test_the_oldest_batch_of_all_logs_goes_first():
    budget = TailBudget(3 * (OVERHEAD + 10))
    first, second = Tail(budget), Tail(budget)
    first.add(0, 1, bytes(10))
    second.add(0, 1, bytes(10))
    first.add(1, 2, bytes(10))
    second.add(1, 2, bytes(10))
    assert (first.first_offset, second.first_offset) == (1, 0)
    first.clear()
    assert budget.used_bytes == 2 * (OVERHEAD + 10)
    second.add(2, 3, bytes(10))
    second.add(3, 4, bytes(10))
    assert second.first_offset == 1


def test_a_batch_beyond_the_budget_leaves_no_hole():
    budget = TailBudget(OVERHEAD + 50)
    tail = Tail(budget)
    tail.add(0, 1, bytes(10))
    tail.add(1, 2, bytes(51))
    assert len(tail) == 0
    tail.add(2, 3, bytes(10))
    assert tail.read(1, 99, 3, minimum_one=True) is None
    assert tail.read(2, 99, 3, minimum_one=True) == ([bytes(10)], 10)


def test_long_tails_and_many_truncations_do_not_grow_without_bound():
    budget = TailBudget(100 * OVERHEAD)
    tail = Tail(budget)
    for n in range(10_000):
        tail.add(n, n + 1, b"")
    assert len(tail) == 100
    assert len(tail._bases) < 3 * tail_module._COMPACT_AFTER
    for _ in range(5000):
        tail.add(0, 1, b"")
        tail.clear()
    assert budget.used_bytes == 0
    assert len(budget._order) <= 2 * tail_module._COMPACT_AFTER
