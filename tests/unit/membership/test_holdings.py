from dataclasses import dataclass, replace

import pytest

from kafkalite_core.membership.holdings import Reports, is_held, wanted_holdings
from kafkalite_core.model.cluster import Broker
from kafkalite_core.model.limits import HOLDINGS_LISTED_MAX
from kafkalite_core.model.partition import IsrEntry, Partition, Seen
from kafkalite_core.model.topic import Holding

MINE = Holding(topic="t", topic_id="id", partition=0, leader_epoch=4, partition_epoch=15, log_epoch=4, end_offset=80)


@dataclass(frozen=True)
class Held:
    """A replica, as far as reports go."""

    held: Holding = MINE
    store_went_back: bool = False
    shown: tuple[int, int] = (4, 15)

    def holding(self) -> Holding:
        return self.held


HELD = Held()


def others(*holdings):
    return {1: Broker(id=1, holdings=(MINE,)), 2: Broker(id=2, holdings=holdings)}


def test_nothing_is_reported_as_a_rule():
    assert wanted_holdings(1, [HELD], {2: Broker(id=2)}) == ()


def test_who_knows_more_than_the_store_reports():
    assert wanted_holdings(1, [replace(HELD, store_went_back=True)], {}) == (MINE,)


def test_so_does_everybody_once_another_broker_says_that_it_knows_more():
    assert wanted_holdings(1, [HELD], others(replace(MINE, leader_epoch=6, partition_epoch=20))) == (MINE,)
    assert wanted_holdings(1, [HELD], others(replace(MINE, leader_epoch=3, partition_epoch=15))) == (MINE,)


def test_the_operator_may_know_more_than_every_broker():
    assert wanted_holdings(1, [HELD], {}, {"id"}) == (MINE,)
    assert wanted_holdings(1, [HELD], {}, {"other"}) == ()


def test_not_for_another_partition_or_topic_and_not_for_what_it_says_itself():
    for other in (replace(MINE, partition=1, leader_epoch=6), replace(MINE, topic_id="other", leader_epoch=6)):
        assert wanted_holdings(1, [HELD], others(other)) == ()


def test_it_ends_when_the_entry_is_above_all_reports():
    report = replace(MINE, leader_epoch=6, partition_epoch=20)
    assert wanted_holdings(1, [replace(HELD, shown=(7, 20))], others(report)) == (MINE,)
    assert wanted_holdings(1, [replace(HELD, shown=(7, 21))], others(report)) == ()


def test_two_brokers_that_were_asked_do_not_keep_each_other_going():
    """Both go by what the operator wrote; the report of either is no reason for the other's."""
    agreed = replace(MINE, agrees=True)
    assert wanted_holdings(1, [HELD], others(agreed)) == ()
    assert wanted_holdings(1, [replace(HELD, shown=(4, 16))], others(agreed)) == ()
    assert wanted_holdings(1, [replace(HELD, shown=(4, 14))], others(agreed)) == (MINE,), "it has seen more"
    assert wanted_holdings(1, [HELD], others(MINE)) == (MINE,), "another history with the same epochs"


def test_who_has_no_replica_tells_what_only_it_remembers():
    remembered = replace(MINE, leader_epoch=6, partition_epoch=20, log_epoch=-1, end_offset=0, hosted=False)
    assert wanted_holdings(3, [], {}, remembered=[remembered]) == (remembered,)
    assert wanted_holdings(3, [], others(replace(remembered, isr=(IsrEntry(1, 4),))), remembered=[remembered]) == (
        remembered,
    )
    own = replace(HELD, store_went_back=True)
    assert wanted_holdings(1, [own], {}, remembered=[remembered]) == (MINE,), "with its replica it says it all"
    assert wanted_holdings(1, [HELD], others(remembered)) == (MINE,), "those who have replicas are asked by it"


def test_who_has_no_replica_is_silent_when_one_who_has_knows_as_much():
    remembered = replace(MINE, log_epoch=-1, end_offset=0, hosted=False)
    assert wanted_holdings(3, [], others(MINE), remembered=[remembered]) == ()
    for less in (
        replace(MINE, leader_epoch=3),
        replace(MINE, partition_epoch=14),
        replace(MINE, partition=1),
        replace(MINE, agrees=True),
    ):
        known = {2: Broker(id=2, holdings=(less,))}
        assert wanted_holdings(3, [], known, remembered=[remembered]) == (remembered,)


def test_what_it_remembers_is_told_in_the_order_of_its_place():
    other, one = (replace(MINE, partition=number, hosted=False) for number in (1, 0))
    assert wanted_holdings(3, [], {}, remembered=[other, one]) == (one, other)


def test_too_many_are_cut_in_an_order_that_is_the_same_on_every_broker():
    held = [
        Held(
            held=replace(MINE, partition=number % 200, topic_id=f"{number // 200:03}"),
            store_went_back=True,
            shown=(0, 0),
        )
        for number in range(HOLDINGS_LISTED_MAX + 5)
    ]
    reported = wanted_holdings(1, held[::-1], {})
    assert len(reported) == HOLDINGS_LISTED_MAX
    assert reported[0].topic_id == "000"
    assert wanted_holdings(1, held, {}) == reported


@pytest.mark.parametrize(
    ("known", "held"),
    [
        pytest.param({"is_replica": True}, True, id="the entry names it"),
        pytest.param({}, False, id="there is nothing"),
        pytest.param({"went_back": True, "in_use": (4, 15)}, True, id="the store shows less, and the log is in use"),
        pytest.param({"went_back": True}, False, id="the store shows less, and there is no log"),
        pytest.param({"in_use": (4, 15)}, False, id="moved away"),
        pytest.param({"in_use": (5, 15)}, True, id="in use, and of a later leader epoch"),
        pytest.param({"in_use": (4, 16)}, True, id="in use, and of a later partition epoch"),
        pytest.param({"in_use": (4, 15), "set_aside": (5, 16)}, False, id="what is in use comes first"),
        pytest.param({"set_aside": (4, 15)}, False, id="set aside"),
        pytest.param({"set_aside": (5, 15)}, True, id="set aside, and of a later leader epoch"),
        pytest.param({"set_aside": (4, 16)}, True, id="set aside, and of a later partition epoch"),
        pytest.param(
            {"set_aside": (4, 15, (IsrEntry(1, 1),), 15, 4)}, True, id="set aside, and another ISR had its epoch"
        ),
        pytest.param({"set_aside": (4, 15, (IsrEntry(2, 9),), 15, 4)}, True, id="set aside, and another incarnation"),
        pytest.param({"set_aside": (4, 15, (IsrEntry(2, 1),), 15, 4)}, False, id="set aside, with that very ISR"),
        pytest.param({"set_aside": (4, 15, (IsrEntry(2, -1),), 15, 4)}, False, id="set aside, of an earlier version"),
        pytest.param({"set_aside": (4, 15, (IsrEntry(1, 1),), 14, 4)}, False, id="set aside, with an earlier ISR"),
    ],
)
def test_who_is_to_have_a_replica(known, held):
    entry = Partition(leader=2, leader_epoch=4, partition_epoch=15, min_isr=1, replicas=(2,), isr=(IsrEntry(2, 1),))
    in_use, set_aside = (Seen(*known[name]) if name in known else None for name in ("in_use", "set_aside"))
    is_replica, went_back = known.get("is_replica", False), known.get("went_back", False)
    found = is_held(entry, is_replica=is_replica, went_back=went_back, in_use=in_use, set_aside=set_aside)
    assert found == held


def test_who_is_named_stays_so_while_anybody_reports_it_and_the_entry_does_not_settle_that():
    entry = Partition(leader=2, leader_epoch=4, partition_epoch=16, min_isr=1, replicas=(2,), isr=(IsrEntry(2, 1),))
    reports = Reports()
    for broker_id, named in ((0, 7), (1, 8)):
        reports.take(broker_id, (replace(MINE, isr=(IsrEntry(named, 1),)),))
    assert reports.named("id", 0, entry) == {7, 8}, "the leader epoch is no higher than what is reported"
    assert reports.take(0, ()) == {("id", 0)}
    assert reports.named("id", 0, entry) == {8}
    assert reports.named("id", 0, replace(entry, leader_epoch=5)) == set()
