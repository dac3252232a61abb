"""Who gets memory for an answer to a consumer, and who waits for it."""

from kafkalite_broker.server.answer_budget import AnswerBudget, Room


async def test_who_finds_no_room_waits_in_turn():
    budget = AnswerBudget(400)
    rooms = [Room(budget, wanted) for wanted in (90, 100, 100, 90, 60, 10, 1)]
    assert [room.entered is None for room in rooms] == [True] * 4 + [False] * 3
    assert budget.used_bytes == 380
    rooms[0].holds(50)
    assert [room.entered.done() for room in rooms[4:]] == [True, False, False], "nobody overtakes"
    assert budget.used_bytes == 400
    rooms[1].give_back()
    assert [room.entered.done() for room in rooms[4:]] == [True] * 3
    for room in rooms:
        room.give_back()
        room.give_back()
    assert budget.used_bytes == 0


async def test_one_answer_gets_a_share():
    budget = AnswerBudget(400)
    assert [(room.size_bytes, room.is_cut) for room in (Room(budget, 100), Room(budget, 101))] == [
        (100, False),
        (100, True),
    ]


async def test_who_gives_up_waiting_does_not_hold_up_those_behind():
    budget = AnswerBudget(400)
    full = [Room(budget, 100) for _ in range(3)]
    small, gives_up, behind = Room(budget, 50), Room(budget, 100), Room(budget, 50)
    assert not behind.entered.done()
    gives_up.give_back()
    assert behind.entered.done()
    for room in (*full, small, behind):
        room.give_back()
    assert budget.used_bytes == 0
    assert not budget.somebody_waits()


async def test_what_is_hot_takes_half_and_what_is_cold_has_the_rest():
    budget = AnswerBudget(400)
    assert [budget.has_room(size) for size in (100, 101)] == [True, False]
    hot = [Room(budget, 100, hot=True) for _ in range(3)]
    assert [room.entered is None for room in hot] == [True, True, False]
    assert not budget.has_room(1)
    cold = [Room(budget, 100) for _ in range(3)]
    assert [room.entered is None for room in cold] == [True, True, False]
    assert (budget.used_bytes, budget.hot_bytes) == (400, 200)
    hot[0].give_back()
    assert (hot[2].entered.done(), cold[2].entered.done()) == (True, False)
    hot[1].give_back()
    assert cold[2].entered.done()
    for room in (*hot, *cold):
        room.give_back()
    assert (budget.used_bytes, budget.hot_bytes, budget.somebody_waits()) == (0, 0, False)


async def test_what_is_hot_goes_before_what_is_cold():
    budget = AnswerBudget(400)
    full = [Room(budget, 100) for _ in range(4)]
    cold, hot = Room(budget, 40), Room(budget, 60, hot=True)
    late = Room(budget, 10)
    full[0].holds(50)
    assert not cold.entered.done(), "what is hot waits for nothing but room"
    full[1].holds(90)
    assert [room.entered.done() for room in (hot, cold, late)] == [True, False, False]
    full[2].give_back()
    assert cold.entered.done()
    assert late.entered.done()
    for room in (*full, hot, cold, late):
        room.give_back()
    assert budget.used_bytes == 0


async def test_who_holds_what_others_wait_for():
    budget = AnswerBudget(400)
    hot, cold = [[Room(budget, 100, hot=kind) for _ in range(2)] for kind in (True, False)]
    assert not any(room.is_waited_for for room in (*hot, *cold))
    more_hot = Room(budget, 50, hot=True)
    assert [room.is_waited_for for room in (*hot, *cold)] == [True, True, False, False]
    hot[0].holds(50)
    assert more_hot.entered.done()
    more_hot.give_back()
    hot[0].holds(90)
    more_hot = Room(budget, 10, hot=True)
    cold.append(Room(budget, 20))
    assert more_hot.entered is None
    assert [room.is_waited_for for room in (*hot, *cold[:2])] == [True] * 4
    cold.pop().give_back()
    cold[1].holds(101)
    hot[1].holds(50)
    most_hot = Room(budget, 50, hot=True)
    assert [room.is_waited_for for room in (*hot, *cold)] == [True] * 4, "there is room for what is hot, but not in all"
    for room in (*hot, *cold, more_hot, most_hot):
        room.give_back()
    assert budget.used_bytes == 0
