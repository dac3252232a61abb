"""What may follow a restore of the store: recoveries that name who has reported the most, and nobody else (S11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalite_core.model.topic import Holding
from tests.simulation.world import Violation


def fires(name: str):
    return pytest.raises(Violation, match=name)


def above(entry, leader_epoch, partition_epoch):
    return replace(entry, leader_epoch=leader_epoch, partition_epoch=partition_epoch)


def report(healthy, ledger, monkeypatch, epochs) -> None:
    """Every broker reports what it holds: by its id the leader epoch of its log."""
    holding = Holding(
        topic="t0", topic_id=ledger.tag[0], partition=0, leader_epoch=3, partition_epoch=3, log_epoch=3, end_offset=9
    )
    brokers = {
        i: replace(broker, holdings=(replace(holding, log_epoch=epochs[i]),))
        for i, broker in healthy.oracles.brokers.items()
    }
    monkeypatch.setattr(healthy.oracles, "brokers", brokers)


def test_after_a_restore_only_what_is_above_all_that_is_known_counts(
    healthy, ledger, leader, monkeypatch
) -> None:  # S11
    oracles, past = healthy.oracles, ledger.entry
    le, pe = past.leader_epoch, past.partition_epoch
    ledger.behind = (le + 5, pe + 5)
    assert ledger.is_behind(past)
    ledger.committed_end += 1000
    oracles.completeness.candidates(ledger, "now")  # says nothing: who knows more does not go by it
    monkeypatch.setattr(type(ledger), "on_disks", lambda _self: (le + 2, pe + 3))
    for epochs in ((le + 2, pe + 4), (le + 3, pe + 3)):
        assert not oracles._goes_on(ledger, leader.ref.uid, past, above(past, *epochs))
    assert ledger.is_behind(past)
    ledger.leaders = {le + 2: (0, "a"), le + 3: (1, "b")}
    assert not oracles._goes_on(ledger, leader.ref.uid, past, above(past, le + 2, pe + 3))
    assert len(ledger.leaders) == 2
    assert not oracles._goes_on(ledger, leader.ref.uid, past, above(past, le + 3, pe + 3))
    assert list(ledger.leaders) == [le + 2], "nobody knows of that epoch, so it may come again before the recovery"
    report(healthy, ledger, monkeypatch, dict.fromkeys(healthy.hosts, 0))
    assert oracles._goes_on(ledger, leader.ref.uid, past, above(past, le + 3, pe + 4))
    assert not ledger.lossy, "somebody knew more, so nothing is lost"
    assert not ledger.is_behind(past)
    with fires("leader-candidate completeness"):
        oracles.completeness.candidates(ledger, "now")


def test_what_nobody_knows_may_be_lost_with_the_store(healthy, ledger, leader) -> None:  # S11
    past = ledger.entry
    ledger.behind = (past.leader_epoch + 5, past.partition_epoch + 5)
    ledger.leaders = {past.leader_epoch: (0, "a"), past.leader_epoch + 3: (1, "b")}
    nxt = above(past, past.leader_epoch + 1, past.partition_epoch + 1)
    assert healthy.oracles._goes_on(ledger, leader.ref.uid, past, nxt)
    assert ledger.lossy
    assert list(ledger.leaders) == [past.leader_epoch], "an epoch that nobody knows may come again"


def test_an_object_of_which_the_store_had_more_may_be_recovered_beyond_that(
    healthy, ledger, leader, monkeypatch
) -> None:
    metadata, entry, ref = healthy.oracles.metadata, ledger.entry, leader.ref
    more = above(entry, entry.leader_epoch + 2, entry.partition_epoch + 2)
    beyond = above(entry, entry.leader_epoch + 3, entry.partition_epoch + 3)
    short = above(entry, entry.leader_epoch + 1, entry.partition_epoch + 1)
    placed = [(ref.topic_id, entry), (ref.topic_id, more)]
    monkeypatch.setattr(metadata, "_placed", {(ref.uid, 0): placed})
    assert not metadata.forgotten(ref, 0, entry, beyond), "the store never went back"
    monkeypatch.setattr(metadata, "restored", True)
    assert metadata.forgotten(ref, 0, entry, beyond)
    assert not metadata.forgotten(ref, 0, entry, short)
    assert not metadata.forgotten(ref, 0, more, beyond)
    placed.append(("another", above(entry, entry.leader_epoch + 9, entry.partition_epoch + 9)))
    assert metadata.forgotten(ref, 0, entry, beyond), "an operator has not been shown all that another topic id had"
    assert not metadata.forgotten(ref, 0, more, beyond)
    placed[1] = ("another", more)
    assert metadata.forgotten(ref, 0, entry, beyond)
    assert not metadata.forgotten(ref, 0, entry, short), "nothing that was ever stored is below it"


def test_a_recovery_with_an_older_log(healthy, ledger, leader, monkeypatch) -> None:  # S11
    past = ledger.entry
    ledger.behind = (past.leader_epoch + 5, past.partition_epoch + 5)
    monkeypatch.setattr(type(ledger), "on_disks", lambda _self: ledger.behind)
    newer = past.isr[-1].id
    report(healthy, ledger, monkeypatch, {i: 3 + (i == newer) for i in healthy.hosts})
    recovered = above(past, past.leader_epoch + 6, past.partition_epoch + 6)
    with fires("permitted elections"):
        healthy.oracles._goes_on(ledger, leader.ref.uid, past, recovered)
    best = past.isr[-1]
    assert healthy.oracles._goes_on(ledger, leader.ref.uid, past, replace(recovered, leader=best.id, isr=(best,)))


def test_a_recovery_is_judged_by_what_those_whom_it_names_have_reported(healthy, ledger, monkeypatch) -> None:  # S11
    elections, entry = healthy.oracles.elections, ledger.entry
    report(healthy, ledger, monkeypatch, dict.fromkeys(healthy.hosts, 3))
    for broker in healthy.oracles.brokers.values():
        elections.reported(broker)
    late = entry.isr[-1]
    now = healthy.oracles.brokers[late.id]
    again = replace(now, registration=replace(now.registration, broker_epoch=late.epoch + 5), holdings=())
    monkeypatch.setattr(healthy.oracles, "brokers", {**healthy.oracles.brokers, late.id: again})
    elections.reported(again)
    assert elections.recovered(ledger, entry) == 3, "the patch came late, and names an incarnation that is gone"
    with fires("permitted elections"):
        named = replace(entry, isr=(*entry.isr[:-1], replace(late, epoch=again.epoch)))
        elections.recovered(ledger, named)  # that one has reported nothing
    elections.reported(replace(now, holdings=()))
    with fires("permitted elections"):
        elections.recovered(ledger, entry)  # it had taken its report back, and has lived on since


def test_an_entry_made_again_as_it_was_may_be_recovered_when_somebody_contradicts_it(
    healthy, ledger, monkeypatch
) -> None:  # S11
    elections = healthy.oracles.elections
    stranger = ledger.entry.isr[-1]
    old = above(replace(ledger.entry, isr=ledger.entry.isr[:1]), 3, 4)
    new = above(replace(old, leader=stranger.id, isr=(*old.isr, stranger)), 4, 5)
    report(healthy, ledger, monkeypatch, dict.fromkeys(healthy.hosts, 3))
    with fires("permitted elections"):
        elections.check(ledger, old, new, unclean_allowed=False)  # the store never went back
    monkeypatch.setattr(healthy.oracles.metadata, "restored", True)
    elections.check(ledger, old, new, unclean_allowed=False)
    assert not ledger.lossy, "nothing may be lost by it"
    report(healthy, ledger, monkeypatch, {i: 3 - (i == stranger.id) for i in healthy.hosts})
    with fires("permitted elections"):
        elections.check(ledger, old, new, unclean_allowed=False)  # its log is older
    report(healthy, ledger, monkeypatch, dict.fromkeys(healthy.hosts, 3))
    with fires("permitted elections"):
        elections.check(ledger, above(old, 4, 4), above(new, 5, 5), unclean_allowed=False)  # all have been surpassed
    with fires("permitted elections"):
        elections.check(ledger, above(old, 2, 2), above(new, 3, 5), unclean_allowed=False)  # not above what is known


def test_a_late_election_of_an_incarnation_whose_object_was_made_again(ledger, monkeypatch) -> None:
    """The cluster was made again in between: the member that the patch names leads by it, or nobody does (S1)."""
    entry, oracles = ledger.entry, ledger.oracles
    member = entry.isr[-1]
    new = replace(entry, leader=member.id, leader_epoch=entry.leader_epoch + 1, isr=(member,))
    unregistered = replace(oracles.brokers[member.id], registration=None)
    monkeypatch.setattr(oracles, "brokers", {**oracles.brokers, member.id: unregistered})
    oracles.elections.check(ledger, entry, new, unclean_allowed=False)
    assert not ledger.lossy
    with fires("permitted elections"):
        oracles.elections.check(ledger, replace(entry, isr=entry.isr[:-1]), new, unclean_allowed=False)


def test_an_election_by_a_registration_that_a_restored_store_has_lost(healthy, ledger, monkeypatch) -> None:  # S11
    member = replace(ledger.entry.isr[-1], epoch=ledger.entry.isr[-1].epoch + 9)
    old = replace(ledger.entry, isr=(member,))
    new = replace(old, leader=member.id, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1)
    with fires("permitted elections"):
        ledger.oracles.elections.check(ledger, old, new, unclean_allowed=False)
    monkeypatch.setattr(healthy.oracles.metadata, "restored", True)
    ledger.oracles.elections.check(ledger, old, new, unclean_allowed=False)
    with fires("permitted elections"):
        ledger.oracles.elections.check(ledger, replace(old, isr=()), new, unclean_allowed=False)


@pytest.mark.parametrize(("relaxed", "losses"), [(False, 0), (True, 0), (False, 3)])
def test_a_topic_that_is_made_again_may_lack_what_was_relaxed_or_given_up(
    healthy, ledger, monkeypatch, relaxed, losses
) -> None:
    """What was acknowledged before was promised by the configuration of its time (S4); an unclean election was allowed."""
    obj = healthy.api.objects["topics"]["t0"]
    monkeypatch.setattr(type(ledger), "made_again", lambda _self: None)
    monkeypatch.setattr(ledger, "relaxed", relaxed)
    monkeypatch.setattr(ledger, "losses", losses)
    monkeypatch.setattr(ledger, "lossy", False)
    monkeypatch.setattr(ledger, "lossy_since", -1)
    monkeypatch.setattr(ledger, "committed_end", ledger.committed_end + 1)
    bare = {name: value for name, value in obj.items() if name != "status"}
    if relaxed or losses:
        healthy.oracles.store_changed("topics", bare, obj)
        assert ledger.lossy
        assert not ledger.relaxed
    else:
        with fires("leader-candidate completeness"):
            healthy.oracles.store_changed("topics", bare, obj)


def test_a_partition_that_is_added_again_after_a_restore_is_of_a_past_while_somebody_knows_it(
    healthy, ledger, monkeypatch
) -> None:
    """The store went back to before it was added; those who know it stand still until a recovery is above that (S11)."""
    obj = healthy.api.objects["topics"]["t0"]
    other = {**obj, "status": {**obj["status"], "partitions": {"1": obj["status"]["partitions"]["0"]}}}
    monkeypatch.setattr(healthy.oracles, "ledgers", {**healthy.oracles.ledgers})
    monkeypatch.setattr(type(ledger), "made_again", lambda self: self.forget(-1))
    for restored in (False, True):
        monkeypatch.setattr(healthy.oracles.metadata, "restored", restored)
        ledger.behind = (-1, -1)
        healthy.oracles.store_changed("topics", other, obj)
        assert ledger.is_behind(ledger.entry) == restored
