"""Nobody is fenced without a hearing, asked to give up what is there, or scaled away with replicas: if so, it is noticed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkalite_core.controller.actions import Fence
from kafkalite_core.model.topic import Stray
from kafkalite_core.protocol.errors import ErrorCode
from tests.simulation import run
from tests.simulation.api import Outcome
from tests.simulation.elector import LeaseReader
from tests.simulation.oracles import last_resort
from tests.simulation.oracles.lease_justice import GAP_S, LeaseJustice
from tests.simulation.users import UserActions
from tests.simulation.world import Violation

DURATION_S = 5.0


def fires(name: str):
    return pytest.raises(Violation, match=name)


def unheard():
    return fires("nobody is fenced for silence without a hearing")


# ------------------------------------------------------------ R16


def listening(justice: LeaseJustice, until_s: float, *, since_s: float = 0.0, stamp: object = 1) -> None:
    """Operator o0 reads all Leases, every second."""
    now_s = since_s
    while now_s <= until_s:
        justice.read("o0", {"b1": stamp}, now_s)
        now_s += 1.0


def test_a_fence_after_a_whole_silence_is_just() -> None:
    justice = LeaseJustice()
    listening(justice, 5.0)
    justice.fenced_for_silence("o0", "b1", 5.0, DURATION_S)
    justice.fenced_for_silence("o0", "never seen", 5.0, DURATION_S)
    with unheard():
        justice.fenced_for_silence("o0", "b1", 4.9, DURATION_S)


def test_who_has_renewed_is_heard_anew() -> None:
    justice = LeaseJustice()
    listening(justice, 5.0)
    justice.read("o0", {"b1": 2}, 6.0)
    listening(justice, 10.0, since_s=7.0, stamp=2)
    with unheard():
        justice.fenced_for_silence("o0", "b1", 10.0, DURATION_S)
    justice.read("o0", {"b1": 2}, 11.0)
    justice.fenced_for_silence("o0", "b1", 11.0, DURATION_S)


def test_who_did_not_listen_in_between_has_heard_nothing() -> None:
    """An outage of the API server: the same stamp is shown after it, and says nothing of the time of the outage."""
    justice = LeaseJustice()
    listening(justice, 1.0)
    back_s = 1.0 + GAP_S + 2.0
    listening(justice, back_s + 4.0, since_s=back_s)
    with unheard():
        justice.fenced_for_silence("o0", "b1", back_s + 4.0, DURATION_S)
    justice.fenced_for_silence("o0", "b1", back_s + 5.0, DURATION_S)


def test_each_operator_listens_for_itself() -> None:
    justice = LeaseJustice()
    listening(justice, 5.0)
    with unheard():
        justice.fenced_for_silence("o1", "b1", 5.0, DURATION_S)
    justice.read("o1", {"b1": 1}, 5.0)
    with unheard():
        justice.fenced_for_silence("o1", "b1", 6.0, DURATION_S)


def test_an_operator_that_fences_who_renews_is_noticed(healthy, monkeypatch) -> None:
    """What operators are shown and decide reaches the oracle."""
    operator = next(host.operator for host in healthy.operators if host.operator is not None)
    name = healthy.hosts[1].object_name
    monkeypatch.setattr(healthy.oracles, "justice", LeaseJustice())
    monkeypatch.setattr(operator, "start", lambda *_, **__: False)
    fence = Fence(broker=healthy.oracles.brokers[1], reason="", message="", by_expiry=True)
    leases = list(healthy.api.objects["leases"].values())
    reader, now_s = LeaseReader(operator), operator.now_s()
    for after_s in range(20):
        monkeypatch.setattr(operator, "now_s", lambda after_s=after_s: now_s + after_s)
        reader._listed(Outcome.OK, (leases, "1"))
    operator._dispatch([fence], 1)
    lease = next(each for each in leases if each["metadata"]["name"] == name)
    renewed = {**lease, "spec": {**lease["spec"], "renewTime": "2030-01-01T00:00:00.000000Z"}}
    reader._listed(Outcome.OK, ([renewed if each is lease else each for each in leases], "1"))
    with unheard():
        operator._dispatch([fence], 1)
    operator._dispatch([replace(fence, by_expiry=False)], 1)  # its container has ended


# ------------------------------------------------------------ S10


@pytest.fixture
def lost_topic(healthy, ledger, monkeypatch):
    """The topic's object is gone, and every broker lists what it has of it; called with who does not."""
    ledger.last, ledger.entry = ledger.entry, None

    def listed(*, by=(0, 1, 2), isr_epoch: int | None = None) -> None:
        stray = Stray(
            topic="t0", topic_id=ledger.tag[0], partition=0, leader_epoch=0, partition_epoch=0, end_offset=1,
            isr_epoch=ledger.last.partition_epoch if isr_epoch is None else isr_epoch,
        )  # fmt: skip
        brokers = {
            i: replace(broker, strays=(stray,) if i in by else ()) for i, broker in healthy.oracles.brokers.items()
        }
        monkeypatch.setattr(healthy.oracles, "brokers", brokers)

    listed()
    yield listed
    ledger.last = None


def asked(healthy, ledger) -> None:
    last_resort.asked(healthy.oracles, ledger.tag[0])


def test_a_topic_that_waits_for_consent_though_all_of_it_is_listed(healthy, ledger, lost_topic) -> None:
    assert {member.id for member in ledger.last.isr} == {0, 1, 2}
    for by in ((0, 1, 2), (1,)):
        lost_topic(by=by)
        with fires("nobody is asked to give up what is there"):
            asked(healthy, ledger)
    lost_topic(by=())
    asked(healthy, ledger)
    lost_topic(isr_epoch=ledger.last.partition_epoch - 1)  # no disk has noted who was in sync at the end
    asked(healthy, ledger)


def test_a_topic_that_waits_for_consent_since_something_is_lost(healthy, ledger, lost_topic, monkeypatch) -> None:
    lost_topic(by=(1,))
    with monkeypatch.context() as patch:  # who lists it was not in sync
        patch.setattr(ledger, "last", replace(ledger.last, isr=ledger.last.isr[:1]))
        asked(healthy, ledger)
    with monkeypatch.context() as patch:  # its disk is another one by now
        own = healthy.oracles.brokers[1]
        registration = replace(own.registration, trusted_since=own.epoch + 1, broker_epoch=own.epoch + 1)
        patch.setattr(
            healthy.oracles, "brokers", {**healthy.oracles.brokers, 1: replace(own, registration=registration)}
        )
        asked(healthy, ledger)
    with monkeypatch.context() as patch:  # it has another batch in the place of the last one
        segment = ledger.directory(healthy.hosts[1]).segments()[0][1]
        patch.setattr(segment, "marks", [*segment.marks[:-1], segment.marks[-1]._replace(crc=1)])
        asked(healthy, ledger)
    with monkeypatch.context() as patch:
        patch.setattr(healthy.oracles.metadata, "restored", True)
        asked(healthy, ledger)
    with fires("nobody is asked to give up what is there"):
        asked(healthy, ledger)


def test_the_user_who_is_asked_looks_whether_it_is_so(healthy, ledger, lost_topic, monkeypatch) -> None:
    monkeypatch.setattr(healthy.oracles, "decided_on", healthy.oracles.brokers)
    monkeypatch.setattr(healthy, "asked", {})
    words = f"data of topic id {ledger.tag[0]}, without their data"
    assert not run._is_asked_again(healthy, "t0", words), "he reads it twice"
    with fires("nobody is asked to give up what is there"):
        run._is_asked_again(healthy, "t0", words)


# ------------------------------------------------------------ scaling, deleted records


def test_a_broker_that_is_scaled_away_with_replicas(healthy) -> None:
    healthy.oracles.removal.pod_ends(healthy.api, 7)
    with fires("no broker with replicas is removed"):
        healthy.oracles.removal.pod_ends(healthy.api, 2)


@pytest.mark.parametrize(
    ("answer", "broken"),
    [
        ({"error_code": 0, "low_watermark": -1}, True),
        ({"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE), "low_watermark": -1}, True),
        ({"error_code": int(ErrorCode.REQUEST_TIMED_OUT), "low_watermark": -1}, False),
    ],
)
def test_a_deletion_that_is_answered_and_not_done(healthy, ledger, leader, monkeypatch, answer, broken) -> None:
    users = UserActions(healthy, "test")
    monkeypatch.setattr(users, "_any_ledger", lambda: ledger)
    taken = []
    monkeypatch.setattr(healthy.world, "at", lambda _delay_ms, _process, _action, event: taken.append(event))
    users._delete_records()
    (event,) = taken
    if not broken:
        event.token(SimpleNamespace(**answer))
        return
    with fires("records are deleted"):
        event.token(SimpleNamespace(**answer))
