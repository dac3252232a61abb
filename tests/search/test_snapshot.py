"""A replica that is put away and taken out again between any two steps behaves as one that never was."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kafkalite_core.membership.settlement import Settled
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.replica import events, isr
from kafkalite_core.replica.events import CasOutcome
from tests.search import snapshot
from tests.search.node import CONFIG
from tests.search.small_log import HEADER, RECORD, SmallLog
from tests.search.snapshot import LATER_MS, NOW_MS, PROGRESS, Stage, freeze, new_replica
from tests.search.store import fence, first_store

OWN = 1
assert set(CasOutcome) == {CasOutcome(one.value) for one in Settled}


class Script:
    """Plausible events for one replica, drawn from the state that it is in."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        store = first_store(isr=3, min_isr=2)
        self.entry = store.entry
        self.brokers = [{broker.id: broker for broker in one.brokers} for one in (store, fence(store, 2))]
        self.proposals: list[int] = []

    def next(self, replica, log: SmallLog):
        """(event, time)"""
        kinds = [
            self.metadata,
            self.produce,
            self.produce,
            self.fetch,
            self.fetch,
            self.response,
            self.answer,
            self.tick,
        ]
        return self.chance.choice(kinds)(replica, log)

    def metadata(self, replica, log):
        entry = self.entry
        leader = self.chance.choice((OWN, OWN, entry.leader, 2, 3))
        others = [
            IsrEntry(broker_id, 1) for broker_id in (1, 2, 3) if broker_id == leader or self.chance.random() < 0.6
        ]
        self.entry = replace(
            entry,
            leader=leader,
            leader_epoch=entry.leader_epoch + (leader != entry.leader or self.chance.random() < 0.2),
            partition_epoch=entry.partition_epoch + 1,
            isr=tuple(others),
        )
        brokers = self.chance.choice(self.brokers)
        return events.MetadataChanged(partition=self.entry, brokers=brokers, broker_epoch=1, config=CONFIG), NOW_MS

    def produce(self, replica, log):
        value = self.chance.randrange(200)
        request = events.ProduceRequested(
            token=value, acks=self.chance.choice((-1, -1, 0, 1)), batch=bytearray((value,)), header=HEADER,
            received_ms=NOW_MS, deadline_ms=float("inf"), wall_ms=0,
        )  # fmt: skip
        return request, NOW_MS

    def fetch(self, replica, log):
        offset = self.chance.randrange(log.end_offset + 1)
        epoch = log.epochs.epoch_at(offset - 1) if offset else -1
        request = events.FetchRequested(
            token=0, replica_id=self.chance.choice((2, 3)), replica_epoch=1,
            current_leader_epoch=replica.leader_epoch, fetch_offset=offset,
            last_fetched_epoch=epoch + self.chance.choice((0, 0, 0, 1)), log_start_offset=0,
        )  # fmt: skip
        return request, NOW_MS

    def response(self, replica, log):
        position = replica.fetch_position()
        if position is None:
            log.flushed_end = log.end_offset
            return events.FlushCompleted(), NOW_MS
        diverging = (max(log.epochs.latest_epoch - 1, 0), self.chance.randrange(log.end_offset + 1))
        response = events.FetchResponded(
            leader_id=position.leader, leader_epoch=position.current_leader_epoch, fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch, error_code=0,
            high_watermark=self.chance.randrange(log.end_offset + 2), log_start_offset=0,
            diverging=diverging if self.chance.random() < 0.3 else None,
            records=memoryview(RECORD.pack(log.end_offset, max(log.epochs.latest_epoch, 0), 7)), wall_ms=0,
        )  # fmt: skip
        return response, NOW_MS

    def answer(self, replica, log):
        if not self.proposals:
            return self.tick(replica, log)
        number = self.chance.choice(self.proposals)
        return events.ProposalAnswered(proposal_id=number, outcome=self.chance.choice(list(CasOutcome))), NOW_MS

    def tick(self, replica, log):
        return events.Tick(), LATER_MS


def told(effects, numbers):
    """Effects in a form that does not depend on the numbers of proposals and on back-offs."""
    result = []
    for effect in effects:
        if isinstance(effect, events.ProposePartition):
            result.append(("propose", numbers.get(effect.proposal_id), effect.expected, effect.proposed))
        elif isinstance(effect, events.Decided):
            result.append(("decided", effect.event))
        elif not isinstance(effect, events.FetchPositionChanged | events.IsrChanged):
            result.append(effect)
    return result


def run_both(seed: int) -> dict[str, int]:
    """300 events for two replicas, one of which is put away and taken out before each; how often what was the case."""
    script, stage = Script(seed), Stage()
    log = SmallLog()
    replica = new_replica(OWN, log, 0)
    away, numbers = freeze(replica)[0], {}
    seen = {"leads": 0, "follows": 0, "proposed": 0, "committed": 0}
    for _ in range(300):
        frozen_log = log.freeze()
        event, now_ms = script.next(replica, log)
        other_event = event
        if isinstance(event, events.ProposalAnswered):
            other_event = events.ProposalAnswered(
                proposal_id=numbers.get(event.proposal_id, 0), outcome=event.outcome, observed=event.observed
            )
        other = stage.thaw(OWN, frozen_log, away)
        if isinstance(event, events.FlushCompleted):
            other._state.log.flushed_end = other._state.log.end_offset
        mine = replica.step(now_ms, event)
        theirs = other.step(now_ms, other_event)
        own, own_numbers = freeze(replica)
        away, moved = freeze(other)
        assert own == away, f"seed {seed}"
        assert log.freeze() == other._state.log.freeze(), f"seed {seed}"
        # Of both the numbers of proposals, as they will be from now on.
        assert told(mine, own_numbers) == told(theirs, moved), f"seed {seed}"
        numbers = own_numbers
        script.proposals = sorted(own_numbers)
        seen["leads"] += replica.is_leader
        seen["follows"] += replica.fetch_position() is not None
        seen["proposed"] += bool(own_numbers)
        seen["committed"] += replica.high_watermark
    return seen


def test_put_away_and_taken_out_again(monkeypatch):
    # Back-offs end at the time of every tick, and what a leader had at the previous fetch is kept: elsewhere these are
    # abstracted (see the package), here nothing must differ.
    monkeypatch.setattr(isr, "BACK_OFF_MIN_MS", LATER_MS - NOW_MS)
    monkeypatch.setattr(isr, "BACK_OFF_MAX_MS", LATER_MS - NOW_MS)
    monkeypatch.setattr(isr, "ADDITIONS_PAUSE_MS", LATER_MS - NOW_MS)
    kept = PROGRESS.slot("leader_end_at_fetch")
    monkeypatch.setattr(PROGRESS, "normal", tuple(one for one in PROGRESS.normal if one[0] != kept))
    total: dict[str, int] = {}
    for seed in range(60):
        for what, times in run_both(seed).items():
            total[what] = total.get(what, 0) + times
    assert min(total.values()) > 500, total


def test_an_unknown_slot_is_an_error():
    replica = new_replica(OWN, SmallLog(), 0)
    replica._led = [1, 2]
    with pytest.raises(TypeError, match=r"Replica\._led"):
        freeze(replica)


def test_times_are_recent_or_long_ago():
    assert snapshot.recently(NOW_MS) == snapshot.recently(NOW_MS - snapshot.LAG_MS) == NOW_MS
    assert snapshot.recently(0.0) == snapshot.LONG_AGO_MS
    assert snapshot.expiry(NOW_MS + 500) == LATER_MS
    assert snapshot.expiry(NOW_MS) == 0.0
