"""Of a lost topic nobody who was in sync has kept its data: what is left is taken over when somebody accepts it (S10)."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import CreateTopicStatus, UpdateTopicStatus
from kafkalite_core.controller.adoption import LISTED_MAX
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.newest_isr import in_sync_lost
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Stray
from tests.unit.controller.builders import NOW, brokers, make_broker, snapshot, topic_view


def stray(*isr, epoch=10, end=100, number=0):
    """What a broker lists; `isr` as (broker id, broker epoch), in sync at that partition epoch."""
    return Stray(
        topic="orders", topic_id="old", partition=number, leader_epoch=4, partition_epoch=epoch, end_offset=end,
        log_epoch=4, isr_epoch=epoch, isr_leader_epoch=4, isr=tuple(IsrEntry(*pair) for pair in isr),
    )  # fmt: skip


ALONE = stray((1, 20), epoch=11)
"""Broker 1 was in sync alone; this is what another one has heard of it."""


@pytest.mark.parametrize(
    ("held", "registered", "who"),
    [
        pytest.param([ALONE, ALONE], {}, [], id="it has what it had"),
        pytest.param([ALONE, ALONE], {1: {"trusted": 21, "epoch": 21}}, [1], id="it has a new disk"),
        pytest.param([ALONE, None], {}, [1], id="it lists nothing"),
        pytest.param([stray((5, 20)), None], {}, [5], id="it was removed"),
        pytest.param([ALONE, replace(ALONE, relaxed_flush=True)], {1: {"clean": 21, "epoch": 21}}, [],
                     id="it died with relaxed flush"),
        pytest.param([stray((0, 20), (1, 20)), None], {}, [], id="one of two has it"),
        pytest.param([stray((0, 20), (1, 20)), ALONE], {1: {"trusted": 21, "epoch": 21}}, [1],
                     id="of the newest alone"),
        pytest.param([stray(epoch=11), stray(epoch=11)], {}, [], id="no ISR is noted"),
        pytest.param([stray((1, -1)), None], {}, [], id="whose disk was meant is not known"),
        pytest.param([stray((1, 20), (2, 20)), None, None], {}, [1, 2], id="all of them"),
    ],
)  # fmt: skip
def test_who_was_in_sync_and_has_it_no_more(held, registered, who):
    known = brokers(*(make_broker(i, **({"epoch": 20} | registered.get(i, {}))) for i in range(len(held))))
    assert in_sync_lost({i: one for i, one in enumerate(held) if one is not None}, known) == who


def emptied(*, consent="", strays=(ALONE,), **view):
    """Broker 1 came back without its disk; 0 has some of the records."""
    known = brokers(make_broker(0, 20, strays=strays), make_broker(1, 21, trusted=21), make_broker(2, 20))
    return snapshot(topic_view(recovery_request=consent, first_seen=NOW - 60, **view), brokers=known)


def test_a_topic_waits_and_says_how_to_go_on():
    actions = plan(emptied(), NOW)
    assert not [action for action in actions if isinstance(action, CreateTopicStatus)]
    (told,) = [action for action in actions if isinstance(action, UpdateTopicStatus)]
    ready = next(condition for condition in told.conditions if condition.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "InSyncLost")
    assert "partition 0: brokers [1]" in ready.message
    assert 'kafkalite.io/recover-store: "true"' in ready.message
    assert 'kafkalite.io/adopt-strays: "false"' in ready.message


def test_to_ask_for_the_data_is_not_to_accept_that_some_are_missing():
    for wish in ({"adopt_strays": True}, {"adopt_strays": True, "adopt_topic_id": "old"}):
        assert not [action for action in plan(emptied(**wish), NOW) if isinstance(action, CreateTopicStatus)]


def test_who_accepts_the_loss_gets_what_is_left():
    (placed,) = [action for action in plan(emptied(consent="true"), NOW) if isinstance(action, CreateTopicStatus)]
    assert (placed.topic_id, placed.unclean, placed.partitions[0].isr_ids()) == ("old", {0}, (0,))
    assert "recover-store" in placed.reason
    kept = stray((0, 20), epoch=12)
    (placed,) = [
        action for action in plan(emptied(consent="true", strays=(kept,)), NOW) if isinstance(action, CreateTopicStatus)
    ]
    assert not placed.unclean, "nothing is lost, whatever is accepted"
    assert "recover-store" not in placed.reason


def test_one_partition_is_enough_to_ask_and_many_are_not_all_named():
    kept = stray((0, 20), number=1)
    actions = plan(emptied(strays=(kept, ALONE), spec={"partitions": 2}), NOW)
    assert not [action for action in actions if isinstance(action, CreateTopicStatus)]
    assert "partition 1:" not in str(actions)
    many = tuple(stray((1, 20), number=number) for number in range(LISTED_MAX + 2))
    assert " and 2 more" in str(plan(emptied(strays=many, spec={"partitions": len(many)}), NOW))


def test_it_begins_empty_where_that_is_wanted():
    (placed,) = [action for action in plan(emptied(adopt_strays=False), NOW) if isinstance(action, CreateTopicStatus)]
    assert placed.topic_id == ""


def test_it_is_looked_at_again_in_every_plan():
    """Whether brokers are heard depends on the time, which no object tells of."""
    rest = AtRest()
    state = emptied()
    plan(state, NOW, rest)
    assert rest.remembered == 0
