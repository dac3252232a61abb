"""Of a lost topic nobody who was in sync has kept its data: what is left is taken over when somebody accepts it (S10)."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import CreateTopicStatus, UpdateTopicStatus
from kafkalite_core.controller.adoption import LISTED_MAX
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.newest_isr import in_sync_lost
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Holding, Stray
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
        pytest.param([stray((1, -1)), stray((1, -1))], {}, [], id="whose disk was meant is not known"),
        pytest.param([stray((1, -1)), None], {}, [1], id="whatever disk was meant, it lists nothing"),
        pytest.param([stray((1, 20), (2, -1)), stray((1, 20))], {1: {"trusted": 21, "epoch": 21}}, [1, 2],
                     id="of another member the disk is not known, and it lists nothing"),
        pytest.param([stray((1, 20), (8, 20)), None, None], {}, [1, 8], id="all of them"),
        pytest.param([replace(ALONE, isr=(), isr_epoch=12), ALONE], {1: {"trusted": 21, "epoch": 21}}, [1],
                     id="who notes no ISR says nothing of it"),
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
    assert "(partition 0: brokers [1])" in ready.message
    assert 'kafkalite.io/recover-store: "true"' in ready.message
    assert "topic id old," in ready.message
    assert "also" not in ready.message
    assert 'kafkalite.io/adopt-strays: "false"' in ready.message


def test_who_waits_is_told_of_other_data_of_that_name():
    older = replace(stray((0, 20)), topic_id="older", leader_epoch=2)
    assert "also older for adopt-strays" in str(plan(emptied(strays=(ALONE, older)), NOW))


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
    for count, last in ((LISTED_MAX + 2, "brokers [1] and 2 more)"), (LISTED_MAX, "brokers [1])")):
        many = tuple(stray((1, 20), number=number) for number in range(count))
        assert last in str(plan(emptied(strays=many, spec={"partitions": len(many)}), NOW))


def test_it_begins_empty_where_that_is_wanted():
    (placed,) = [action for action in plan(emptied(adopt_strays=False), NOW) if isinstance(action, CreateTopicStatus)]
    assert placed.topic_id == ""


def test_it_is_looked_at_again_in_every_plan():
    """Whether brokers are heard depends on the time, which no object tells of."""
    rest = AtRest()
    state = emptied()
    plan(state, NOW, rest)
    assert rest.remembered == 0


def placed_of(state):
    return [action for action in plan(state, NOW) if isinstance(action, CreateTopicStatus)]


def test_what_a_broker_without_a_replica_remembers_counts():
    """The topic lost its whole status with the store: only broker 2 was told that 1 was in sync alone (S11)."""

    def held(isr, partition_epoch, leader_epoch, *, hosted=True, log_epoch=4):
        return Holding(
            topic="orders", topic_id="old", partition=0, leader_epoch=leader_epoch, partition_epoch=partition_epoch,
            log_epoch=log_epoch if hosted else -1, end_offset=100 if hosted else 0, hosted=hosted,
            isr=tuple(IsrEntry(i, 20) for i in isr), isr_leader_epoch=leader_epoch,
        )  # fmt: skip

    known = brokers(
        make_broker(0, 20, holdings=(held([0, 1], 10, 4),)),
        make_broker(1, 21, trusted=21),
        make_broker(2, 20, holdings=(held([1], 12, 5, hosted=False),)),
    )
    waits = snapshot(topic_view(spec={"replicas": 2}, first_seen=NOW - 60), brokers=known)
    assert not placed_of(waits)
    (placed,) = placed_of(snapshot(topic_view(recovery_request="true", first_seen=NOW - 60), brokers=known))
    assert (placed.partitions[0].leader_epoch, placed.partitions[0].partition_epoch) == (1005, 1012), (
        "above what it remembers"
    )
    deposed = {0: make_broker(0, 20, holdings=(held([0, 1], 10, 4, log_epoch=5),))}
    kept = known | deposed | {1: make_broker(1, 20, holdings=(held([0, 1], 10, 4),))}
    (placed,) = placed_of(snapshot(topic_view(first_seen=NOW - 60), brokers=kept))
    assert placed.partitions[0].isr_ids() == (1,), "it was in sync when 0, whose last record is newer, was not"
    other = known | {2: make_broker(2, 20, holdings=(replace(held([1], 12, 5, hosted=False), topic_id="else"),))}
    assert placed_of(snapshot(topic_view(first_seen=NOW - 60), brokers=other)), "of another topic"


def test_a_partition_that_nobody_lists_any_more_was_there_if_one_behind_it_was():
    listed = (stray((0, 20), number=0), stray((0, 20), number=2))
    spec = {"partitions": 4}
    waits = emptied(strays=listed, spec=spec)
    assert not placed_of(waits)
    assert "(partition 1: nobody lists it)" in str(plan(waits, NOW))
    (placed,) = placed_of(emptied(strays=listed, spec=spec, consent="true"))
    assert placed.unclean == {1}
    assert "partitions [1, 3], which nobody lists, begin empty" in placed.reason
    (grown,) = placed_of(emptied(strays=(stray((0, 20), number=0), stray((0, 20), number=1)), spec=spec))
    assert not grown.unclean, "there may never have been more"
    assert "partitions [2, 3], which nobody lists, begin empty" in grown.reason
    assert {entry.leader_epoch for entry in grown.partitions.values()} == {1004}, "no epoch is used twice"
    fewer = {"partitions": 1}
    (whole,) = placed_of(emptied(strays=listed, spec=fewer, consent="true"))
    assert sorted(whole.partitions) == [0, 1, 2], "no number is left out, which a later growth would begin anew"
