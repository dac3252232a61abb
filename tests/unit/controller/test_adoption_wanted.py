"""A topic whose data are wanted back does not begin empty because nobody lists them at the moment (S10)."""

import pytest

from kafkalite_core.controller.actions import CreateTopicStatus, ReadBrokers
from kafkalite_core.controller.at_rest import AtRest
from kafkalite_core.controller.growth import PLACEMENT_GRACE_S
from kafkalite_core.controller.noticing import ADOPTION_GRACE_S
from kafkalite_core.controller.plan import plan
from tests.unit.controller.builders import NOW, brokers, make_broker, snapshot, three, topic_view

LONG_AGO = NOW - 100.0


def of(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def test_a_topic_is_placed_by_what_brokers_listed_since_it_was_seen():
    """They may list data of a lost topic of that name, and the watch may be silent about it."""
    new = topic_view(first_seen=NOW - 2.0)
    late = snapshot(new, topic_view("more", first_seen=NOW - 2.0), brokers_age_s=2.5)
    assert [each for each in plan(late, NOW) if isinstance(each, (ReadBrokers, CreateTopicStatus))] == [ReadBrokers()]
    (placed,) = of(plan(snapshot(new, brokers_age_s=2.0), NOW), CreateTopicStatus)
    assert placed.topic_id == ""


def test_who_wants_data_back_is_waited_with_for_brokers_that_are_away():
    """All who have the data may be; without the wish a new topic waits for nobody for long."""
    some = three() | {2: make_broker(2, fenced=12)}
    (placed,) = of(plan(snapshot(topic_view(first_seen=LONG_AGO), brokers=some), NOW), CreateTopicStatus)
    assert placed.topic_id == ""
    wanted = snapshot(topic_view(adopt_strays=True, first_seen=LONG_AGO), brokers=some)
    assert not of(plan(wanted, NOW), CreateTopicStatus)
    assert "to be taken over; waiting for brokers [2]" in str(plan(wanted, NOW))
    assert 'adopt-strays: "false"' in str(plan(wanted, NOW)), "it says how to go on without"
    assert ADOPTION_GRACE_S > PLACEMENT_GRACE_S


def test_who_wants_data_back_gives_live_brokers_time_to_list_them():
    new = topic_view(adopt_strays=True, first_seen=NOW - ADOPTION_GRACE_S + 0.1)
    assert not of(plan(snapshot(new), NOW), CreateTopicStatus)
    assert "brokers [0, 1, 2] list none" in str(plan(snapshot(new), NOW))
    late = topic_view(adopt_strays=True, first_seen=NOW - ADOPTION_GRACE_S)
    (placed,) = of(plan(snapshot(late), NOW), CreateTopicStatus)
    assert placed.topic_id == "", "there are none: it begins empty"
    alone = brokers(make_broker(0))
    declined = topic_view(adopt_strays=False, first_seen=NOW, spec={"replicas": 1})
    assert of(plan(snapshot(declined, brokers=alone, cluster={"replicas": 1}), NOW), CreateTopicStatus)


@pytest.mark.parametrize(
    ("fenced", "wish", "reason"),
    [
        (-1, {"first_seen": NOW}, "list none"),
        (12, {"first_seen": LONG_AGO}, "waiting for brokers [2]"),
        (-1, {"first_seen": LONG_AGO, "adopt_topic_id": "another"}, "NothingToAdopt"),
    ],
)
def test_a_topic_that_waits_for_its_data_is_looked_at_in_every_plan(fenced, wish, reason):
    """No object tells that time has passed, or that a broker is heard again."""
    rest = AtRest()
    state = snapshot(topic_view(adopt_strays=True, **wish), brokers=three() | {2: make_broker(2, fenced=fenced)})
    assert reason in str(plan(state, NOW, rest))
    assert rest.remembered == 0
