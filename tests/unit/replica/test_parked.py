from kafkalite_core.replica.parked import Parked, ParkedProduces


def parked(end: int, token: str, deadline_ms: float = 100.0) -> Parked:
    return Parked(end, token, end - 1, -1, deadline_ms)


def test_answered_in_order_of_offset_even_when_a_duplicate_came_late() -> None:
    waiting, effects = ParkedProduces(), []
    waiting.park(parked(5, "a"))
    waiting.park(parked(7, "b"))
    waiting.park(parked(5, "duplicate"))
    waiting.complete(5, 0, effects)
    assert [(effect.token, effect.base_offset) for effect in effects] == [("a", 4), ("duplicate", 4)]
    assert len(waiting) == 1
    waiting.complete(6, 0, effects)
    assert len(effects) == 2


def test_only_those_whose_time_is_over_expire() -> None:
    waiting, effects = ParkedProduces(), []
    waiting.park(parked(5, "late", 300.0))
    waiting.park(parked(6, "soon", 200.0))
    waiting.expire(199.0, 7, "", effects)
    assert not effects
    waiting.expire(200.0, 7, "", effects)
    assert [(effect.token, effect.error_code) for effect in effects] == [("soon", 7)]
    waiting.expire(299.0, 7, "", effects)
    assert len(waiting) == 1
    waiting.expire(300.0, 7, "", effects)
    assert len(waiting) == 0


def test_all_fail_together() -> None:
    waiting, effects = ParkedProduces(), []
    waiting.park(parked(5, "a"))
    waiting.fail(6, "lost", effects)
    assert [(effect.token, effect.error_code) for effect in effects] == [("a", 6)]
    assert not waiting
