"""What a controller remembers of brokers that have no replica any more, before it deletes their volumes (S10)."""

from dataclasses import replace

from kafkalite_core.controller.actions import RemoveBroker
from kafkalite_core.controller.emptied import PATIENCE_S, Emptied
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.controller.strays import lost_topics, why_kept
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.limits import STRAYS_LISTED_MAX
from kafkalite_core.model.topic import Stray
from tests.unit.controller.builders import NOW, brokers, entry, make_broker, snapshot, topic_view

KEPT = topic_view("kept", partitions={0: entry(leader=3, isr=((3, 13),), replicas=(3,))}, topic_id="k")
KEPT = replace(KEPT, spec=replace(KEPT.spec, deletion_policy="Retain"))
GIVEN_UP = replace(KEPT, spec=replace(KEPT.spec, deletion_policy="Delete"))


def stray(topic_id="k", partition=0, **more):
    known = {"topic": "kept", "leader_epoch": 1, "partition_epoch": 1, "end_offset": 9}
    return Stray(**known, topic_id=topic_id, partition=partition, **more)


def state(*views, at=NOW, **of_three):
    """Four brokers of which the last one leaves; all are heard at that time."""
    known = brokers(*(make_broker(i) for i in range(3)), make_broker(3, **of_three))
    leases = {i: LeaseView(holder=b.registration.incarnation, changed_at=at) for i, b in known.items()}
    return snapshot(*views, brokers=known, cluster={"replicas": 3}, leases=leases)


def test_a_broker_has_noticed_when_it_was_heard_a_while_after_its_last_replica_went():
    emptied, last = Emptied(), make_broker(3)
    emptied.look(state(KEPT), NOW)
    emptied.look(state(at=NOW + 1), NOW + 1)
    emptied.look(state(at=NOW + ADOPTION_GRACE_S - 0.5), NOW + ADOPTION_GRACE_S - 0.5)
    assert not emptied.noticed(last)
    assert emptied.waits_for(last, NOW + ADOPTION_GRACE_S)
    emptied.look(state(at=NOW + ADOPTION_GRACE_S), NOW + ADOPTION_GRACE_S)
    assert emptied.noticed(last)
    assert not emptied.waits_for(last, NOW + ADOPTION_GRACE_S)
    emptied.look(state(GIVEN_UP, at=NOW + 20), NOW + 20)
    assert not emptied.noticed(last), "it has a replica again"


def test_who_is_silent_or_does_not_run_has_noticed_nothing():
    later = NOW + ADOPTION_GRACE_S
    for found in (
        state(at=NOW),  # heard long ago
        state(at=later, fenced=13),
        state(at=later, state=BrokerState.CATCHING_UP),
        replace(state(at=later), observing_since=None),
    ):
        emptied = Emptied()
        emptied.look(state(KEPT), NOW)
        emptied.look(found, later)
        assert not emptied.noticed(make_broker(3))


def test_nobody_waits_for_who_is_fenced_nor_for_ever():
    emptied = Emptied()
    emptied.look(state(), NOW)
    assert emptied.waits_for(make_broker(3), NOW + PATIENCE_S - 1)
    assert not emptied.waits_for(make_broker(3, fenced=13), NOW)
    assert not emptied.waits_for(make_broker(3), NOW + PATIENCE_S)


def unlisted(before, after):
    emptied = Emptied()
    emptied.look(before, NOW)
    emptied.look(after, NOW + 1)
    return replace(after, unlisted=emptied.unlisted(after))


def test_a_topic_that_went_is_on_the_volume_until_the_broker_has_listed_it():
    assert unlisted(state(KEPT), state()).unlisted == {3: ("kept",)}
    assert not unlisted(state(KEPT), state(strays=(stray(),))).unlisted, "from now on its list tells"
    assert unlisted(state(KEPT), state(strays=(stray(partition=1),))).unlisted
    assert not unlisted(state(KEPT), state(KEPT)).unlisted
    assert not unlisted(state(GIVEN_UP), state()).unlisted
    again = replace(KEPT, topic=replace(KEPT.topic, ref=replace(KEPT.topic.ref, topic_id="other")))
    assert unlisted(state(KEPT), state(again)).unlisted, "a restored store has placed it anew"


def test_one_that_is_there_again_is_not_lost():
    emptied = Emptied()
    for found in (state(KEPT), state(), state(KEPT)):
        emptied.look(found, NOW)
    assert not emptied.unlisted(state(KEPT))


def test_the_volume_of_a_broker_that_has_not_listed_a_lost_topic_is_kept():
    found = unlisted(state(KEPT), state())
    (action,) = [each for each in plan(found, NOW) if isinstance(each, RemoveBroker)]
    assert action.unclaimed == "it has data of topics that were lost (kept)"
    assert lost_topics(replace(found, unlisted={}), found.brokers[3]) == []


def test_a_list_that_is_full_says_nothing_of_the_rest():
    moved = tuple(stray(topic_id="id", partition=number) for number in range(STRAYS_LISTED_MAX))
    view = topic_view("orders", partitions=dict.fromkeys(range(STRAYS_LISTED_MAX), entry()))
    full, almost = state(view, strays=moved), state(view, strays=moved[1:])
    assert "lists only 1024 of them" in why_kept(full, full.brokers[3])
    assert not why_kept(almost, almost.brokers[3])


def test_a_full_list_keeps_the_volume_only_where_what_it_has_no_room_for_may_be_needed():
    moved = tuple(stray(topic_id="id", partition=number) for number in range(STRAYS_LISTED_MAX))
    view = topic_view("orders", partitions=dict.fromkeys(range(STRAYS_LISTED_MAX), entry()))
    expendable = state(view, strays=moved, strays_unlisted=0)
    assert not why_kept(expendable, expendable.brokers[3])
    needed = state(view, strays=moved, strays_unlisted=1)
    assert "lists only 1024 of them" in why_kept(needed, needed.brokers[3])
    lost = state(strays=moved, strays_unlisted=0)
    assert "topics that were lost (kept)" in why_kept(lost, lost.brokers[3])


def test_brokers_that_are_gone_are_forgotten():
    emptied = Emptied()
    emptied.look(state(KEPT), NOW)
    three = snapshot(brokers=brokers(*(make_broker(i) for i in range(3))))
    emptied.look(three, NOW)
    assert not emptied.unlisted(state())
