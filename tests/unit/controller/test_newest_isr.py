"""Of a lost topic that is made again: whose log it goes on with (S10)."""

from dataclasses import replace

from kafkalite_core.controller.newest_isr import holders_of_the_most
from kafkalite_core.controller.plan import plan
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.model.topic import Holding, Stray
from tests.unit.controller.builders import NOW, apply, brokers, make_broker, snapshot, topic_view


def stray(leader_epoch, log_epoch, end, isr_epoch=-1, *isr, isr_leader_epoch=None):
    """What a broker lists; `isr` as (broker id, broker epoch)."""
    return Stray(
        topic="orders",
        topic_id="old",
        partition=0,
        leader_epoch=leader_epoch,
        partition_epoch=max(isr_epoch, 7),
        end_offset=end,
        log_epoch=log_epoch,
        isr_epoch=isr_epoch,
        isr_leader_epoch=leader_epoch if isr_leader_epoch is None else isr_leader_epoch,
        isr=tuple(IsrEntry(*pair) for pair in isr),
    )


def most(*held, **registered):
    """The chosen of brokers 0, 1, ... with their strays; all were registered with epoch 20, and have kept their disks."""
    known = brokers(*(make_broker(i, 20, **registered.get(f"b{i}", {})) for i in range(len(held))))
    return holders_of_the_most({i: one for i, one in enumerate(held) if one is not None}, known)


def deposed():
    """Broker 0 led in epoch 8 and was deposed with a record that nobody copied; 1 and 2 led later, and wrote nothing."""
    return [
        stray(8, 8, 28, 30, (0, 20), (1, 20), (2, 20)),
        stray(10, 7, 28, 33, (1, 20), (2, 20)),
        stray(9, 7, 27, 32, (2, 20)),
    ]


def test_who_was_in_sync_last_comes_before_whose_last_record_has_the_highest_epoch():
    assert most(*deposed()) == {1}, "of those in sync the one that reaches furthest"
    older = deposed()
    older[1] = stray(10, 6, 28, 29, (1, 20), (2, 20))
    assert most(*older) == {2}, "the newest is the one with the highest partition epoch"


def test_the_topic_goes_on_with_it_above_all_epochs():
    listed = brokers(*(make_broker(i, 20, strays=(one,)) for i, one in enumerate(deposed())))
    state = snapshot(topic_view(), brokers=listed)
    adopted = apply(state, plan(state, NOW)).topics["uid-orders"].topic.partitions[0]
    assert (adopted.isr, adopted.leader, adopted.leader_epoch) == ((IsrEntry(1, 20),), 1, 1010)
    assert (adopted.partition_epoch, set(adopted.replicas)) == (1033, {0, 1, 2})
    refused = replace(deposed()[0], leader_epoch=12, isr_leader_epoch=8)
    state = replace(state, brokers={**listed, 0: make_broker(0, 20, strays=(refused,))})
    adopted = apply(state, plan(state, NOW)).topics["uid-orders"].topic.partitions[0]
    assert (adopted.isr_ids(), adopted.leader_epoch) == ((1,), 1012), "also above what no log has"


def test_in_sync_is_who_has_kept_what_it_had():
    assert most(*deposed(), b1={"trusted": 20}) == {1}, "a new disk, and in sync with it"
    late = deposed()
    late[1] = stray(10, 6, 3, 33, (1, 19), (2, 20))
    assert most(*late, b1={"trusted": 20}) == {2}, "a new disk since"
    late[1] = stray(10, 6, 3, 33, (1, 19))
    assert most(*late, b1={"trusted": 20}) == {0}, "nobody is left: who reaches furthest"
    nameless = deposed()
    nameless[1] = stray(10, 7, 28, 33, (1, -1), (2, -1))
    assert most(*nameless) == {0}, "whose disk was meant is not known"
    gone = deposed()
    gone[1] = stray(10, 7, 28, 33, (3, 20))
    assert most(*gone) == {0}, "who is in sync lists nothing"


def test_records_of_a_later_epoch_than_the_newest_isr_prove_that_there_was_a_newer_one():
    """Nobody noted it: broker 2 joined, led in epoch 11, and died before its checkpoint."""
    held = deposed()
    held[2] = stray(11, 11, 40)
    assert most(*held) == {2}
    told = stray(11, 11, 40, 33, (1, 20), isr_leader_epoch=10)
    assert most(held[0], held[1], told) == {2}, "what it has noted itself is of an earlier epoch"
    alone = stray(10, 7, 28, 33, (1, 20))
    assert most(held[0], alone, told) == {2}, "nor was it in sync by then"


def test_a_log_that_goes_on_where_that_of_the_newest_isr_ends_has_all_of_it():
    """Broker 2 joined 0 and 1 and 1 left, within 5 s before all died; the disk of 0 is lost."""
    in_sync = stray(4, 4, 100, 10, (0, 20), (1, 20))
    assert most(None, in_sync, replace(in_sync, end_offset=120)) == {2}
    assert most(None, in_sync, replace(in_sync, end_offset=120, log_epoch=3)) == {1}, "of another epoch it is no more"
    assert most(None, in_sync, in_sync) == {1, 2}, "as much is as good"
    unknown = replace(in_sync, end_offset=120, log_epoch=None)
    assert most(None, in_sync, unknown) == {1}, "what its last record is of is not known"


def test_with_relaxed_flush_who_died_since_may_lack_what_it_had():
    """Broker 1 was in sync alone, and lost power: its log ends in an earlier epoch now."""
    rest, alone = stray(4, 4, 100, 10, (0, 20), (1, 19)), stray(4, 3, 20, 11, (1, 19))
    died = {"b1": {"clean": 20}}
    assert most(rest, alone, **died) == {1}, "with strict flush it has everything that it had"
    assert most(rest, replace(alone, relaxed_flush=True), **died) == {0}
    assert most(rest, replace(alone, relaxed_flush=True)) == {1}, "it has not died since"
    listed = brokers(make_broker(0, 20, strays=(rest,)), make_broker(1, 20, clean=20, strays=(alone,)))
    for config, leads in (({}, 1), ({"flush.messages": "1000"}, 0)):
        state = snapshot(topic_view(spec={"config": config, "replicas": 2}), brokers=listed, cluster={"replicas": 2})
        assert apply(state, plan(state, NOW)).topics["uid-orders"].topic.partitions[0].leader == leads


def test_a_topic_that_lost_its_whole_status_is_judged_by_reports_in_the_same_way():
    def held(one, **more):
        return Holding(
            topic="orders", topic_id="old", partition=0, leader_epoch=one.leader_epoch, isr=one.isr,
            partition_epoch=one.partition_epoch, log_epoch=one.log_epoch, end_offset=one.end_offset, **more,
        )  # fmt: skip

    listed = brokers(*(make_broker(i, 20, holdings=(held(one),)) for i, one in enumerate(deposed())))
    state = snapshot(topic_view(), brokers=listed)
    adopted = apply(state, plan(state, NOW)).topics["uid-orders"].topic.partitions[0]
    assert (adopted.isr_ids(), adopted.leader_epoch, adopted.partition_epoch) == ((1,), 1010, 1033)
    refused = held(deposed()[0], isr_epoch=40, isr_leader_epoch=9)
    listed[0] = make_broker(0, 20, holdings=(refused,))
    state = snapshot(topic_view(), brokers=listed)
    adopted = apply(state, plan(state, NOW)).topics["uid-orders"].topic.partitions[0]
    assert adopted.isr_ids() == (0,), "the entry that its isr is of is the newest"
    remembered = {i: make_broker(i, 20, holdings=(held(one, hosted=False),)) for i, one in enumerate(deposed())}
    state = snapshot(topic_view(first_seen=NOW - 60), brokers=remembered)
    assert apply(state, plan(state, NOW)).topics["uid-orders"].topic.ref.topic_id == "fresh", "to remember is no data"


def test_of_two_histories_with_the_same_partition_epoch_both_were_in_sync_until_the_later_leader():
    """Broker 2 was in neither, and has a record of the epoch that one of the two had come to."""
    held = [stray(4, 4, 50, 30, (0, 20), isr_leader_epoch=4), stray(6, 4, 40, 30, (1, 20)), stray(6, 6, 5, 29, (2, 20))]
    assert most(*held) == {0}
    held[2] = replace(held[2], leader_epoch=7, log_epoch=7)
    assert most(*held) == {2}, "of a later one: there was a newer ISR"


def test_a_log_that_goes_on_where_the_furthest_of_the_newest_isr_ends_is_chosen():
    in_sync = stray(4, 4, 100, 10, (0, 20), (1, 20))
    behind = replace(in_sync, log_epoch=3, end_offset=50)
    assert most(behind, in_sync, replace(in_sync, end_offset=120)) == {2}


def test_a_report_counts_as_of_the_leader_epoch_of_the_entry_that_its_isr_is_of():
    """Broker 1 was in sync in leader epoch 10. Broker 0 led later, and its disk has noted no later entry."""

    def held(leader_epoch, log_epoch, end):
        return Holding(
            topic="orders", topic_id="old", partition=0, leader_epoch=leader_epoch, partition_epoch=33,
            log_epoch=log_epoch, end_offset=end, isr=(IsrEntry(1, 20),), isr_leader_epoch=10,
        )  # fmt: skip

    reports = (held(11, 11, 40), held(11, 7, 28), held(11, 7, 28))
    listed = brokers(*(make_broker(i, 20, holdings=(one,)) for i, one in enumerate(reports)))
    state = snapshot(topic_view(), brokers=listed)
    assert apply(state, plan(state, NOW)).topics["uid-orders"].topic.partitions[0].isr_ids() == (0,)
