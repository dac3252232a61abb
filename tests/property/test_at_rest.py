"""With a memory of earlier plans a plan is the same as without, whatever happened in between."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafkalite_core.controller import plan as planning
from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.plan import plan
from kafkalite_core.controller.snapshot import LeaseView
from kafkalite_core.model.cluster import BrokerState
from kafkalite_core.model.topic import FLUSH_CONDITION, Condition, Holding, Stray, flushed_token
from tests.property.test_controller import IDS, broker, partition
from tests.unit.controller.builders import NOW, apply, brokers, entry, make_broker, snapshot, topic_view

TOPICS = ("a", "b", "c")
CONFIGS = [
    {},
    {"flush.messages": "100"},
    {"unclean.leader.election.enable": "true"},
    {"min.insync.replicas": "2"},
    {"no.such.key": "1"},
]


@st.composite
def views(draw, name):
    entries = {n: draw(partition()) for n in range(draw(st.integers(0, 3)))}
    spec = {
        "replicas": draw(st.integers(1, 5)),
        "partitions": draw(st.integers(1, 4)),
        "config": draw(st.sampled_from(CONFIGS)),
    }
    return topic_view(name, partitions=entries, spec=spec, first_seen=NOW - draw(st.sampled_from([0.0, 60.0])))


@st.composite
def states(draw):
    known = {i: draw(broker(i)) for i in IDS if draw(st.integers(0, 9))}
    leases = draw(heard_or_not(known))
    return snapshot(*(draw(views(name)) for name in TOPICS), brokers=known, cluster={"replicas": 4}, leases=leases)


@st.composite
def heard_or_not(draw, brokers):
    """Leases that nobody is fenced for; those of some are renewed by another incarnation than the registered one."""
    incarnations = {i: b.registration.incarnation for i, b in brokers.items() if b.registration is not None}
    return {
        i: LeaseView(holder=draw(st.sampled_from(["x", incarnations.get(i, "x")])), changed_at=NOW + 1e6) for i in IDS
    }


def with_topic(state, view):
    return replace(state, topics={**state.topics, view.topic.ref.uid: view})


def with_spec(state, view, **changes):
    view = replace(view, spec=replace(view.spec, **changes))
    return with_topic(state, replace(view, topic=replace(view.topic, generation=view.topic.generation + 1)))


def stray(name):
    return Stray(topic=name, topic_id="lost", partition=0, leader_epoch=3, partition_epoch=4, end_offset=7)


def holding(name):
    return Holding(
        topic=name, topic_id="id", partition=0, leader_epoch=99, partition_epoch=99, log_epoch=3, end_offset=7
    )


def one_broker(state, i, **changes):
    return (
        replace(state, brokers={**state.brokers, i: replace(state.brokers[i], **changes)})
        if i in state.brokers
        else state
    )


@st.composite
def changed(draw, state, now):
    """The state and the time after something happened."""
    some = draw(st.sampled_from(sorted(state.topics)))
    view = state.topics[some]
    i = draw(st.sampled_from(IDS))
    match draw(st.integers(0, 20)):
        case 0 | 1 | 2 | 3 | 4:
            actions = plan(state, now)
            event(f"actions: {bool(actions)}")
            kept = actions if draw(st.booleans()) else actions[: draw(st.integers(0, len(actions)))]
            return apply(state, kept), now
        case 5:
            return state, now + draw(st.sampled_from([0.5, 5.0, 11.0, 61.0]))
        case 6:
            known = {**state.brokers, i: draw(broker(i))}
            return replace(state, brokers=known, registered_at={**state.registered_at, i: now}), now
        case 7:
            return one_broker(state, i, cordoned=not state.brokers[i].cordoned if i in state.brokers else False), now
        case 8:
            held = draw(st.sampled_from([{"strays": (stray(view.spec.topic_name),)}, {"strays": (), "holdings": ()},
                                         {"holdings": (holding(view.spec.topic_name),)}]))  # fmt: skip
            return one_broker(state, i, **held), now
        case 9:
            return with_spec(state, view, replicas=draw(st.integers(1, 5))), now
        case 10:
            return with_spec(state, view, config=draw(st.sampled_from(CONFIGS))), now
        case 11:
            rows = {0: tuple(draw(st.lists(st.sampled_from([*IDS, 9]), max_size=3)))}
            return with_spec(state, view, replica_assignment=draw(st.sampled_from([{}, rows]))), now
        case 12:
            return with_spec(state, view, partitions=draw(st.integers(1, 5))), now
        case 13:
            return with_spec(state, view, topic_name=draw(st.sampled_from(TOPICS))), now
        case 14:
            asked = frozenset(view.topic.partitions)
            wish = draw(
                st.sampled_from([{"elect_preferred": asked}, {"elect_unclean": asked}, {"paused": not view.paused}])
            )
            asks = {"elections": {"x": "y"}} if "paused" not in wish else {}
            return with_topic(state, replace(view, **wish, **asks)), now
        case 15:
            config = draw(st.sampled_from([{}, {"min.insync.replicas": "2"}, {"flush.messages": "5"},
                                           {"kafkalite.reassignment.partitions.max": "1"}]))  # fmt: skip
            return replace(state, cluster=replace(state.cluster, config=config), generation_seen=now), now
        case 16:
            return replace(state, cluster=replace(state.cluster, replicas=draw(st.integers(2, 5)))), now
        case 17:
            rest = {uid: other for uid, other in state.topics.items() if uid != some}
            return (replace(state, topics=rest) if rest else state), now
        case 18:
            return with_topic(state, draw(views(draw(st.sampled_from(TOPICS))))), now
        case 19:
            return replace(state, leases=draw(heard_or_not(state.brokers))), now
        case _:
            epochs = dict.fromkeys(view.topic.partitions, (draw(st.integers(0, 9)), 9))
            return with_topic(state, replace(view, epochs_seen=epochs)), now


@settings(max_examples=300, deadline=None)
@given(states(), st.data())
def test_a_plan_with_memory_is_the_plan_without(state, data):
    rest, now = AtRest(), NOW
    for _ in range(data.draw(st.integers(2, 8), label="steps")):
        looked = replace(
            state,
            balance_due=data.draw(st.integers(0, 4)) == 0,
            brokers_age_s=data.draw(st.sampled_from([0.0, 0.0, 5.0])),
            clusters_age_s=data.draw(st.sampled_from([0.0, 0.0, 5.0])),
        )
        assert plan(looked, now, rest) == plan(looked, now)
        assert rest.remembered <= len(TOPICS)
        state, now = data.draw(changed(state, now), label="state")


def calm(names=TOPICS):
    """A cluster with nothing left to do."""
    state = snapshot(*(topic_view(name, spec={"partitions": 4}) for name in names))
    while actions := plan(state, NOW):
        state = apply(state, actions)
    return state


def tightened():
    """`flush.messages` was tightened: once all brokers tell that they have flushed it says so, or for those that tell
    nothing a while later.
    """
    told = (Condition(type=FLUSH_CONDITION, status="False", reason="Relaxed"),)
    state = calm()
    state = with_topic(state, replace(state.topics["uid-a"], conditions=told, generation_seen=NOW))
    state = apply(state, plan(state, NOW))
    flushed = frozenset({flushed_token("uid-a", 1, 0)})
    waiting = {i: replace(lease, flushed=frozenset()) for i, lease in state.leases.items()}
    told = {i: replace(lease, flushed=flushed) for i, lease in state.leases.items()}
    later = {i: replace(lease, changed_at=NOW + 61.0) for i, lease in state.leases.items()}
    return [
        (replace(state, leases=waiting), NOW),
        (replace(state, leases=told), NOW),
        (state, NOW),
        (replace(state, leases=later), NOW + 61.0),
    ]


def patience():
    """A new topic waits a while for a broker that starts."""
    starting = brokers(make_broker(0), make_broker(1), make_broker(2, state=BrokerState.CATCHING_UP))
    state = snapshot(topic_view("a", spec={"replicas": 2}, first_seen=NOW), brokers=starting)
    return [(state, NOW), (state, NOW + 11.0)]


def balanced():
    """Preferred leaders are looked at once, and not again because they were."""
    state = snapshot(topic_view("a", partitions={0: entry(leader=1)}))
    state = apply(state, plan(state, NOW))
    return [(replace(state, balance_due=True), NOW), (state, NOW)]


def inherited():
    """The owner of a contested name is deleted."""
    young = topic_view("b", created="2026-02-01")
    young = replace(young, spec=replace(young.spec, topic_name="a"))
    state = snapshot(topic_view("a", partitions={0: entry()}), young)
    state = apply(state, plan(state, NOW))
    return [(state, NOW), (replace(state, topics={"uid-b": state.topics["uid-b"]}), NOW)]


def crowded():
    """The broker that a replica was to go to gets other replicas meanwhile."""
    alone = {0: entry(isr=((0, 10),), replicas=(0,))}
    state = snapshot(topic_view("a", partitions=alone, spec={"replicas": 2}))
    target = plan(state, NOW)[0].changes[0].proposed.adding[0]
    more = {n: entry(leader=target, isr=((target, 10 + target),), replicas=(target,)) for n in range(9)}
    return [(state, NOW), (with_topic(state, topic_view("b", partitions=more, spec={"replicas": 1})), NOW)]


def in_turn():
    """A topic with a wish that cannot be and one that waits for its turn, which comes."""
    ready = {n: entry() for n in range(2)}
    spec = {"partitions": 2, "replica_assignment": {0: (0, 9), 1: (0, 1, 3)}}
    copied = replace(entry(replicas=(0, 1, 2, 3)), adding=(3,))
    four = brokers(*(make_broker(i) for i in range(4)))
    state = snapshot(
        topic_view("a", partitions=ready, spec=spec),
        topic_view("b", partitions={0: copied}, spec={"replicas": 4}),
        brokers=four,
        cluster={"config": {"kafkalite.reassignment.partitions.max": "1"}, "replicas": 4},
    )
    state = apply(state, [a for a in plan(state, NOW) if not isinstance(a, ChangePartitions)])
    moved = {0: entry(isr=((0, 10), (1, 11), (2, 12), (3, 13)), replicas=(0, 1, 2, 3))}
    return [(state, NOW), (with_topic(state, topic_view("b", partitions=moved, spec={"replicas": 4})), NOW)]


def blocked():
    """A broker may leave when another topic has become narrow enough."""
    wide = topic_view("b", partitions={0: entry()}, spec={"replicas": 3})
    narrow = topic_view(
        "a", partitions={0: entry(isr=((2, 12), (0, 10)), replicas=(2, 0), leader=2)}, spec={"replicas": 2}
    )
    state = snapshot(narrow, wide, cluster={"replicas": 2})
    return [(state, NOW), (with_spec(state, wide, replicas=2), NOW)]


def returned():
    """A broker comes back."""
    state = calm()
    dead = replace(state, brokers={**state.brokers, 0: make_broker(0, fenced=10)})
    return [(state, NOW), (dead, NOW), (state, NOW)]


@pytest.mark.parametrize("scene", [tightened, patience, balanced, inherited, crowded, in_turn, blocked, returned])
def test_what_more_than_the_topic_decides_is_decided_anew(scene):
    rest = AtRest()
    plans = []
    for state, now in scene():
        plans.append(plan(state, now, rest))
        assert plans[-1] == plan(state, now)
        assert plan(state, now, rest) == plans[-1]
    assert all(one != other for one, other in pairwise(plans)), "each step matters"


def count_decisions(monkeypatch):
    decided = []
    real = planning.decide

    def counted(entry, *arguments, **more):
        decided.append(entry)
        return real(entry, *arguments, **more)

    monkeypatch.setattr(planning, "decide", counted)
    return decided


def test_at_rest_nothing_is_decided_and_a_change_costs_what_changed(monkeypatch):
    state, rest = calm(), AtRest()
    decided = count_decisions(monkeypatch)
    assert plan(state, NOW, rest) == []
    assert (len(decided), rest.remembered) == (12, 3)
    decided.clear()
    for later in range(3):
        restless = {
            "leases": {},
            "brokers_age_s": 9.0,
            "clusters_age_s": 9.0,
            "observing_since": None,
            "partitions_seen": NOW + later,
        }
        assert plan(replace(state, **restless), NOW + later, rest) == []
    counted = replace(state.partitions, total=state.partitions.total + 1)
    assert plan(replace(state, partitions=counted), NOW, rest), "of the cluster alone"
    assert not decided, "nothing is looked at twice"
    state = with_spec(state, state.topics["uid-b"], config={"min.insync.replicas": "2"})
    assert plan(state, NOW, rest)
    assert len(decided) == 4, "the one topic that changed"


def test_elections_that_wait_to_be_carried_out_are_not_decided_again(monkeypatch):
    state, rest = calm(), AtRest()
    state = replace(state, brokers={**state.brokers, 0: make_broker(0, fenced=10)})
    first = plan(state, NOW, rest)
    assert sum(isinstance(action, ChangePartitions) for action in first) == 3
    decided = count_decisions(monkeypatch)
    assert plan(state, NOW, rest) == first
    assert not decided
    done = apply(state, first[:1])
    plan(done, NOW, rest)
    assert len(decided) == 4, "the one that was carried out"


def test_what_is_only_counted_in_the_cluster_disturbs_nothing(monkeypatch):
    state, rest = calm(), AtRest()
    plan(state, NOW, rest)
    decided = count_decisions(monkeypatch)
    plan(replace(state, cluster=replace(state.cluster, next_producer_id=5000, next_broker_epoch=7)), NOW, rest)
    assert not decided
    plan(replace(state, cluster=replace(state.cluster, replicas=4)), NOW, rest)
    assert len(decided) == 12


def test_topics_that_are_gone_are_forgotten():
    state, rest = calm(), AtRest()
    plan(state, NOW, rest)
    state = replace(state, topics={uid: view for uid, view in state.topics.items() if uid == "uid-a"})
    plan(state, NOW, rest)
    assert rest.remembered == 1
    starting = brokers(make_broker(0), make_broker(1), make_broker(2, state=BrokerState.CATCHING_UP))
    plan(replace(state, brokers=starting), NOW, rest)
    assert rest.remembered <= 1
