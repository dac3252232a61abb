"""What an unclean election may cost, or a restore that nobody noticed (S11), and what it may not (R14)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.actions import ChangePartitions
from kafkalite_core.controller.plan import plan
from tests.simulation.cluster import object_name
from tests.simulation.oracles import last_resort
from tests.simulation.oracles.groups import GroupPromises
from tests.simulation.swarm import GROUP_TOPIC
from tests.simulation.world import Violation
from tests.unit.controller.builders import NOW, entry, make_broker, snapshot, three, topic_view


def fires(name: str):
    return pytest.raises(Violation, match=name)


@pytest.mark.parametrize("lossy", [True, False])
def test_a_leader_that_was_elected_uncleanly_does_not_show_what_its_election_lost(ledger, leader, lossy) -> None:
    """Also when a later one has brought it back. Without such an election a leader has to show all that was committed."""
    epoch, whole = leader.replica.leader_epoch, ledger.committed_end
    before = epoch - 1
    ledger.elected_at = {before: whole, epoch: whole + 5}
    ledger.committed.append(ledger.committed[-1]._replace(base=whole, next=whole + 5))
    ledger.committed_end = whole + 5
    if lossy:
        ledger.may_lose(epoch)
        ledger.oracles.completeness.leader(ledger, leader)  # an entry that comes after the election may name it
        assert (ledger.committed_end, ledger.lossy) == (whole, False)
    ledger.committed_end = whole + 5  # a later unclean election goes on with a log that has them
    if lossy:
        ledger.oracles.watermark.latest(leader)
        assert ledger.elected_at == {before: whole, epoch: whole}
        return
    with fires("high watermark"):
        ledger.oracles.watermark.latest(leader)


def test_an_unclean_election_that_lost_nothing_excuses_nothing_later(ledger, leader) -> None:
    epoch = leader.replica.leader_epoch
    ledger.may_lose(epoch + 1)
    ledger.oracles.completeness.leader(ledger, leader)
    assert ledger.lossy, "the leader of that election has not begun"
    ledger.lossy = False
    ledger.may_lose(epoch)
    ledger.oracles.completeness.leader(ledger, leader)
    assert not ledger.lossy
    ledger.committed_end += 1
    with fires("leader-candidate completeness"):
        ledger.oracles.completeness.candidates(ledger, "a test")


def test_an_unclean_election_loses_nothing_that_its_leader_was_told_to_delete(ledger, leader, monkeypatch) -> None:
    """Another log may show it again, in front of what that leader has (seed 10338)."""
    committed, own = list(ledger.committed), ledger.directory(leader.partitions.broker.host)
    marks = own.segments()[0][1].marks
    whole = list(marks)
    marks[:] = whole[2:-1]
    ledger.deletable = whole[2].base
    monkeypatch.setattr(leader.log, "start_offset", ledger.deletable)
    ledger.elected_at = {leader.replica.leader_epoch: ledger.committed_end}
    ledger.may_lose(leader.replica.leader_epoch)
    ledger.oracles.completeness.leader(ledger, leader)
    marks[:] = whole
    end = whole[-1].base
    assert ledger.committed == [mark for mark in committed if mark.base < end]
    assert ledger.committed_end == end
    assert ledger.given_up == {mark[1:] for mark in committed if mark.base >= end}


def test_what_an_unclean_election_lost_may_still_be_shown_by_who_has_not_heard_of_it(ledger, leader) -> None:
    lost = ledger.committed[-1]
    other = lost._replace(crc=lost.crc ^ 1)
    have = {mark[1:] for mark in ledger.committed[:-1]}
    ledger.oracles.completeness._lose(ledger, have, list(ledger.committed))
    assert ledger.committed_end == lost.base
    ledger.oracles.watermark.read(ledger, "c", lost)
    with fires("consumer reads committed"):
        ledger.oracles.watermark.read(ledger, "c", other)


def test_what_a_deposed_leader_commits_after_an_unclean_election_is_not_promised(ledger, leader) -> None:
    """It was alone in its ISR, and has not heard of the election: nobody else has what it commits then."""
    batch, epoch = ledger.committed.pop(), leader.replica.leader_epoch
    ledger.lines = ledger.oracles.order.lines(ledger.committed)
    ledger.committed_end, ledger.marks = batch.base, {epoch: (batch.base, leader.partitions.broker.incarnation)}
    ledger.elected_unclean(epoch + 1)
    assert not ledger.is_deposed(epoch), "the new leader has not begun: what it lacks is found out when it does"
    ledger.lossy = False
    with fires("acknowledged is durable"):
        ledger.acknowledged(leader, batch.base, batch.next, -1)
    with fires("consumer reads committed"):
        ledger.oracles.watermark.read(ledger, "c", batch)
    ledger.high_watermark_advanced(leader)
    assert (ledger.committed_end, ledger.losses) == (batch.base, 1)
    ledger.acknowledged(leader, batch.base, batch.next, -1)
    ledger.oracles.watermark.read(ledger, "c", batch)
    assert not ledger.is_deposed(epoch + 1)
    ledger.stored(replace(ledger.entry, leader_epoch=epoch))  # made again, with epochs that are below
    ledger.high_watermark_advanced(leader)
    assert (ledger.committed[-1], ledger.committed_end) == (batch, batch.next)


def test_a_deposed_leader_that_begins_late_lacks_what_others_have_committed_since(ledger, leader) -> None:
    """At the offsets of what the unclean election lost, which it had at its own election (seed 70042)."""
    epoch, last = leader.replica.leader_epoch, ledger.committed[-1]
    ledger.committed[-1] = last._replace(epoch=epoch + 1, crc=last.crc ^ 1)
    ledger.elected_at[epoch] = ledger.committed_end
    with fires("leader completeness"):
        ledger.oracles.completeness.leader(ledger, leader)
    ledger.elected_unclean(epoch + 1)
    ledger.lossy = False  # its leader has begun
    ledger.oracles.completeness.leader(ledger, leader)
    ledger.committed[-2] = ledger.committed[-2]._replace(crc=ledger.committed[-2].crc ^ 1)
    with fires("leader completeness"):
        ledger.oracles.completeness.leader(ledger, leader)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("unclean", [True, False])
def test_the_leader_of_an_unclean_election_that_another_one_followed_begins_late(
    ledger, leader, monkeypatch, whole, unclean
) -> None:
    """It lacks what the next one has brought back, and was allowed to (seed 3409); not if its own election was clean."""
    epoch, last = leader.replica.leader_epoch, ledger.committed[-1]
    segment = ledger.directory(leader.partitions.broker.host).segments()[0][1]
    ledger.elected_at = {epoch: ledger.committed_end, epoch + 1: ledger.committed_end}
    if unclean:
        ledger.elected_unclean(epoch)
    ledger.elected_unclean(epoch + 1)
    monkeypatch.setattr(type(leader.replica), "leader_epoch", epoch + 1)
    monkeypatch.setattr(segment, "marks", segment.marks[: None if whole else -1])
    ledger.oracles.completeness.leader(ledger, leader)
    assert not ledger.lossy
    assert (last in ledger.committed) is whole
    monkeypatch.setattr(type(leader.replica), "leader_epoch", epoch)
    monkeypatch.setattr(segment, "marks", [])
    if unclean:
        ledger.oracles.completeness.leader(ledger, leader)
        return
    with fires("leader completeness"):
        ledger.oracles.completeness.leader(ledger, leader)


def test_an_isr_of_a_past_that_nobody_noticed_is_trusted_once_the_leader_has_all_of_it_again(
    ledger, leader, follower, monkeypatch
) -> None:
    """S11: a member that had left the ISR before the store went back lacks what was committed without it."""
    replica, before = leader.replica, leader.replica.high_watermark
    ledger.may_lose(replica.leader_epoch)
    ledger.unnoticed = True
    ledger.marks.clear()
    replica._state.high_watermark = before - 1
    ledger.oracles.completeness.leader(ledger, leader)
    ledger.oracles.watermark.advanced(ledger, leader)
    assert ledger.lossy, "the leader, who has it all, does not know yet that the others do"
    ledger.oracles.completeness.candidates(ledger, "a test")
    replica._state.high_watermark = before
    with monkeypatch.context() as patch:
        whole = ledger.durable_end
        patch.setattr(
            type(ledger),
            "durable_end",
            lambda self, host: 0 if host is follower.partitions.broker.host else whole(host),
        )
        ledger.oracles.completeness.leader(ledger, leader)
        ledger.oracles.watermark.advanced(ledger, leader)
        assert ledger.lossy, "its high watermark is of a time when it waited for fewer (seed 68379)"
    ledger.oracles.watermark.advanced(ledger, leader)
    assert not ledger.lossy
    assert not ledger.unnoticed
    ledger.committed_end += 1
    with fires("leader-candidate completeness"):
        ledger.oracles.completeness.candidates(ledger, "a test")


def test_an_unclean_election_though_a_clean_candidate_lives() -> None:
    """Broker 0 led and is fenced; 1 is in sync, and 2 is not."""
    topic = topic_view(
        partitions={0: entry(isr=((0, 10), (1, 11)))}, spec={"config": {"unclean.leader.election.enable": "true"}}
    )
    fenced = three() | {0: make_broker(0, fenced=10)}
    last_resort_of_all = snapshot(topic, brokers=fenced | {1: make_broker(1, fenced=11)})
    actions = plan(last_resort_of_all, NOW)
    assert next(one for one in actions if isinstance(one, ChangePartitions)).changes[0].proposed.leader == 2
    oracles = SimpleNamespace()
    last_resort.decided(oracles, last_resort_of_all, actions)
    assert oracles.decided_on is last_resort_of_all.brokers
    another_lives = snapshot(topic, brokers=fenced)
    last_resort.decided(oracles, another_lives, plan(another_lives, NOW))
    with fires("last resort"):
        last_resort.decided(oracles, another_lives, actions)


def test_consent_and_deletion_forgive_only_the_offsets_of_what_they_are_about(healthy, monkeypatch) -> None:
    forgiven: list[bool] = []
    monkeypatch.setattr(GroupPromises, "forgive", lambda _self, *, generations=False: forgiven.append(generations))
    monkeypatch.setattr(healthy, "annotate", lambda *_: None)
    monkeypatch.setattr(healthy.world, "trace", lambda *_: None)
    monkeypatch.setattr(healthy, "consents", 0)
    assert GROUP_TOPIC == "t0"
    names = ("t0", "__consumer_offsets", "t1")
    obj = healthy.api.objects["topics"]["t0"]
    monkeypatch.setitem(healthy.api.objects, "topics", {object_name(name): obj for name in names})
    for name in names:
        healthy.consent(name)
    assert forgiven == [False, True]
