"""What a cluster's status says of its partitions."""

from dataclasses import replace

import pytest

from kafkalite_core.controller.actions import ChangePartitions, UpdateClusterStatus
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.pacing import Urgency, urgency_of
from kafkalite_core.controller.partition_health import COUNTS_REST_S, OFFLINE_S, UNDER_REPLICATED_S, with_times
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition_counts import PartitionCounts, add_up, count_partitions
from kafkalite_core.model.pods import Rolling
from kafkalite_core.model.topic import Condition
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, three, topic_view

WELL = entry()
BEHIND = entry(isr=((0, 10), (1, 11)))
BELOW = entry(isr=((0, 10),), min_isr=2)
NOBODY = entry(leader=-1, isr=((3, 13),), replicas=(3, 1, 2))
"""Broker 3 was removed by hand, or is not there yet: nobody can be elected."""

TOO_FEW = entry(isr=((0, 10),), replicas=(0,), min_isr=2)
"""Nothing is missing, and yet it takes no writes with acks=all."""

TROUBLED = {0: WELL, 1: BEHIND, 2: BELOW, 3: replace(NOBODY, min_isr=2), 4: TOO_FEW}


def view(name="orders", *entries, **more):
    config = {"config": {"min.insync.replicas": str(max(each.min_isr for each in entries))}}
    return topic_view(name, partitions=dict(enumerate(entries)), spec=config, **more)


def told(state, now=NOW):
    """What is written of the cluster; None for nothing."""
    return next((each for each in plan(state, now) if isinstance(each, UpdateClusterStatus)), None)


def healthy(state, now=NOW):
    """Healthy as it stands after a plan that may write."""
    conditions = apply(state, plan(state, now)).conditions
    [found] = [each for each in conditions if each.type == "Healthy"]
    return found


def said(reason, status="False"):
    return (Condition(type="Healthy", status=status, reason=reason),)


def test_what_is_counted():
    counts = count_partitions(TROUBLED.values())
    assert counts == PartitionCounts(total=5, under_replicated=2, offline=1, under_min_isr=2)
    more = count_partitions([WELL, BEHIND, replace(BEHIND, adding=(2,))])
    assert more == PartitionCounts(total=3, under_replicated=1), "what a move adds is not missed"
    assert add_up([counts, more, PartitionCounts()]) == PartitionCounts(
        total=8, under_replicated=3, offline=1, under_min_isr=2
    )
    assert (counts.trouble, count_partitions([WELL]).trouble) == (True, False)


@pytest.mark.parametrize(("number", "trouble"), [(0, False), (1, True), (2, True), (3, True), (4, True)])
def test_each_trouble_alone_is_one(number, trouble):
    assert count_partitions([TROUBLED[number]]).trouble is trouble


def test_topics_that_are_placed_are_counted_and_others_are_not():
    deleted = view("gone", BEHIND)
    deleted = replace(deleted, topic=replace(deleted.topic, deleting=True))
    unplaced = topic_view("new", spec={"replicas": 9})
    action = told(snapshot(view("a", WELL, BEHIND), view("b", WELL), deleted, unplaced))
    assert action.partitions == PartitionCounts(total=3, under_replicated=1)
    assert urgency_of(action) is Urgency.TELLING


def test_counts_alone_are_written_and_then_nothing_is_left_to_do():
    state = snapshot(view("a", WELL))
    state = apply(state, plan(state, NOW))
    assert plan(state, NOW) == []
    state = replace(state, partitions=None)
    assert told(state).partitions == PartitionCounts(total=1)
    assert plan(apply(state, plan(state, NOW)), NOW) == []


def test_while_they_are_fresh_counts_get_no_worse_and_what_is_well_is_told_at_once():
    ill, iller, well = (snapshot(view("a", *entries)) for entries in ([BEHIND, WELL], [BEHIND, BEHIND], [WELL, WELL]))
    done = apply(ill, plan(ill, NOW))
    seen = {"partitions": done.partitions, "partitions_seen": NOW}
    status = {name: getattr(done, name) for name in ("conditions", "observed_generation", "brokers_ready")}
    status |= {"brokers_total": done.brokers_total, "bootstrap": done.bootstrap}
    fresh, late = NOW + COUNTS_REST_S - 0.1, NOW + COUNTS_REST_S
    leases = {i: replace(each, changed_at=late) for i, each in ill.leases.items()}
    iller = replace(iller, **status, **seen, leases=leases)
    assert told(iller, fresh) is None
    assert told(iller, late).partitions.under_replicated == 2
    well = replace(well, **status, **seen, leases=leases)
    assert told(well, NOW + 0.1).partitions == PartitionCounts(total=2)


def test_with_a_memory_topics_are_counted_anew_when_one_of_them_changed():
    rest, others = AtRest(), [view("b", WELL), view("c", WELL)]
    first = rest.counts([view("a", WELL), *others])
    assert first == PartitionCounts(total=3)
    assert rest.counts([view("a", WELL), *others]) is first
    assert rest.counts([view("a", NOBODY), *others]) == PartitionCounts(total=3, offline=1)
    assert rest.counts(others) == PartitionCounts(total=2)


# ---------------------------------------------------------------- Healthy


def test_without_trouble_healthy_says_what_it_said():
    assert (healthy(snapshot(view("a", WELL))).reason, healthy(snapshot(view("a", WELL))).message) == (
        "AllBrokersRun",
        "",
    )


def test_partitions_without_leader_come_before_those_that_are_under_replicated():
    found = healthy(snapshot(view("a", WELL, BEHIND, NOBODY), view("b", BELOW, NOBODY)))
    assert (found.status, found.reason) == ("False", "PartitionsOffline")
    assert found.message.startswith(
        "Of 5 partitions 2 have no leader, 2 are under-replicated, 1 is below min.insync.replicas. "
    )
    assert "`kafkalite doctor`" in found.message
    found = healthy(snapshot(view("a", WELL, BEHIND)))
    assert (found.status, found.reason) == ("False", "UnderReplicated")
    assert found.message.startswith("Of 2 partitions 1 is under-replicated. ")


@pytest.mark.parametrize(
    ("trouble", "field", "patience_s", "reason"),
    [
        (BEHIND, "behind_since", UNDER_REPLICATED_S, "UnderReplicated"),
        (NOBODY, "offline_since", OFFLINE_S, "PartitionsOffline"),
    ],
)
def test_a_trouble_is_told_when_it_has_lasted_and_until_then_counted(trouble, field, patience_s, reason):
    def after(waited_s):
        since = {"behind_since": NOW, "offline_since": NOW, field: NOW - waited_s}
        return snapshot(view("a", WELL, trouble, **since), view("b", WELL, offline_since=0.0, behind_since=0.0))

    early, late = healthy(after(patience_s - 0.1)), healthy(after(patience_s))
    assert (early.status, early.reason) == ("True", "AllBrokersRun")
    assert early.message.startswith("Of 3 partitions 1 ")
    assert (late.status, late.reason) == ("False", reason)
    # What is said stays while there is any: an operator that takes over has seen nothing of it for long.
    for before in ("UnderReplicated", "PartitionsOffline"):
        assert healthy(replace(after(0.0), conditions=said(before))).reason == reason
    for others in (said("BrokersMissing"), said("UnderReplicated", status="True")):
        assert healthy(replace(after(0.0), conditions=others)).reason == "AllBrokersRun"


def test_it_is_healthy_again_when_nothing_is_missing():
    state = replace(snapshot(view("a", WELL)), conditions=said("UnderReplicated"))
    assert (healthy(state).status, healthy(state).reason, healthy(state).message) == ("True", "AllBrokersRun", "")


def test_a_restart_that_is_under_way_leaves_replicas_behind_and_one_that_waits_does_not():
    state = snapshot(view("a", WELL, BEHIND))
    waits = Rolling(in_progress=True, pending=("kafkalite-broker-1",))
    assert healthy(replace(state, rolling=waits)).reason == "UnderReplicated"
    restarts = replace(waits, restarting=("kafkalite-broker-2",))
    found = healthy(replace(state, rolling=restarts))
    assert (found.status, found.reason) == ("True", "AllBrokersRun")
    assert found.message == "Of 2 partitions 1 is under-replicated"
    assert healthy(replace(state, rolling=restarts, conditions=said("UnderReplicated"))).reason == "UnderReplicated"
    lost = snapshot(view("a", WELL, NOBODY), rolling=restarts)
    assert healthy(lost).reason == "PartitionsOffline", "no restart takes a leader without giving another"


def test_brokers_and_configuration_come_first_and_their_message_counts():
    state = snapshot(view("a", BEHIND), brokers=three() | {2: make_broker(2, fenced=12)})
    assert (healthy(state).reason, healthy(state).message) == (
        "BrokersMissing",
        "broker 2 is fenced. Of 1 partitions 1 is under-replicated",
    )
    state = snapshot(view("a", BEHIND), cluster={"config": {"no.such.key": "1"}})
    assert healthy(state).reason == "InvalidConfig"


def test_ready_says_how_many_of_how_many_brokers_run():
    def ready(*running):
        known = brokers(*(make_broker(i, fenced=-1 if i in running else 10 + i) for i in range(3)))
        [found] = [each for each in told(snapshot(brokers=known)).conditions if each.type == "Ready"]
        return found.status, found.message.partition(":")[0]

    assert ready(1) == ("True", "1 of 3 brokers run")
    assert ready() == ("False", "0 of 3 brokers run")


def test_what_is_told_keeps_no_election_waiting():
    state = snapshot(view("a", entry(), BEHIND), brokers=three() | {0: make_broker(0, fenced=10)})
    actions = plan(state, NOW)
    assert isinstance(actions[0], ChangePartitions)
    assert isinstance(actions[-1], UpdateClusterStatus)


# ---------------------------------------------------------------- since when


def test_since_when_a_topic_has_such_partitions_is_remembered_over_its_versions():
    def seen(before, entries, now):
        return with_times(view("a", *entries), before, now)

    first = seen(None, [BEHIND], 10.0)
    assert (first.offline_since, first.behind_since) == (10.0, 10.0)
    second = seen(first, [WELL, BELOW], 20.0)
    assert second.behind_since == 10.0, "another partition, of the same topic"
    third = seen(second, [BEHIND, NOBODY], 30.0)
    assert (third.offline_since, third.behind_since) == (30.0, 10.0)
    fourth = seen(third, [WELL, NOBODY], 40.0)
    assert fourth.offline_since == 30.0
    fifth = seen(fourth, [BEHIND, WELL], 50.0)
    assert fifth.behind_since == 50.0, "it was well meanwhile"
