"""Readable runs of the registration machine; the property test covers the races."""

from dataclasses import replace

import pytest

from kafkalite_core.membership import registration as reg
from kafkalite_core.membership.settlement import Settled
from kafkalite_core.model.cluster import Adopted, Broker, BrokerState, Registration
from kafkalite_core.storage.last_registration import LastRegistration

IDENTITY = reg.Identity(
    broker_id=0, incarnation="new", directory_id="disk", trusted=True, clean_epoch=None, host="h", port=1
)
FORMER = Registration(
    broker_epoch=5, incarnation="old", directory_id="disk", trusted_since=2, clean_since=4, host="h", port=1
)
BROKER = Broker(id=0, object_name="kafkalite-broker-0", uid="u", registration=FORMER)


def registered(identity=IDENTITY, broker=BROKER, epoch=6):
    """A machine that has just registered, and what it wrote."""
    machine = reg.RegistrationMachine(identity)
    assert machine.step(reg.Tick()) == [reg.ReadBroker()]
    assert machine.step(reg.BrokerRead(broker)) == [reg.DrawEpoch(max(broker.epoch, broker.fenced_epoch) + 1)]
    [write] = machine.step(reg.EpochDrawn(epoch))
    assert not write.update
    assert machine.step(reg.RegistrationAnswered(write.registration, Settled.APPLIED)) == [
        reg.Registered(epoch),
        reg.CatchUp(epoch),
    ]
    return machine, write.registration


def test_the_draw_asks_for_an_epoch_above_everything_that_was():
    machine = reg.RegistrationMachine(IDENTITY)
    machine.step(reg.Tick())
    assert machine.step(reg.BrokerRead(replace(BROKER, fenced_epoch=9))) == [reg.DrawEpoch(10)]


def test_a_registration_that_is_on_its_way_is_in_doubt_until_it_is_seen():
    """Meanwhile nobody knows which epoch a clean marker has to name (S11)."""
    machine = reg.RegistrationMachine(IDENTITY)
    machine.step(reg.Tick())
    machine.step(reg.BrokerRead(BROKER))
    assert not machine.in_doubt
    [write] = machine.step(reg.EpochDrawn(6))
    assert machine.in_doubt
    machine.step(reg.RegistrationAnswered(write.registration, Settled.UNKNOWN))
    assert machine.in_doubt
    machine.step(reg.BrokerRead(replace(BROKER, registration=write.registration)))
    assert (machine.broker_epoch, machine.in_doubt) == (6, False)
    machine.step(reg.BrokerSeen(replace(BROKER, registration=write.registration, fenced_epoch=6)))
    machine.step(reg.BrokerRead(replace(BROKER, registration=write.registration, fenced_epoch=6)))
    machine.step(reg.EpochDrawn(7))
    assert machine.in_doubt, "of a fenced one, that registers anew, too"


def test_the_draw_remembers_what_a_restored_store_does_not_show():  # S11
    machine = reg.RegistrationMachine(IDENTITY)
    machine.step(reg.Tick())
    machine.step(reg.BrokerRead(replace(BROKER, fenced_epoch=9)))
    machine.step(reg.CallFailed())
    machine.step(reg.Tick())
    assert machine.step(reg.BrokerRead(BROKER)) == [reg.DrawEpoch(10)], "leaders may remember that 9 was fenced"


def test_a_lost_registration_is_adopted_and_its_epoch_not_used_again():  # decision 011
    """The object is new, and so is the counter: what was comes from the directory alone."""
    identity = replace(IDENTITY, last=LastRegistration.of(FORMER), clean_epoch=5)
    machine = reg.RegistrationMachine(identity)
    machine.step(reg.Tick())
    assert machine.step(reg.BrokerRead(replace(BROKER, registration=None))) == [reg.DrawEpoch(6)]
    [write] = machine.step(reg.EpochDrawn(6))
    assert (write.registration.trusted_since, write.registration.clean_since) == (6, 6)
    assert write.registration.adopted == (Adopted(broker_epoch=5, trusted_since=2, clean_since=4),)
    machine.step(reg.RegistrationAnswered(write.registration, Settled.APPLIED))
    [update] = [e for e in machine.step(reg.CaughtUp(6)) if isinstance(e, reg.WriteRegistration)] or [None]
    assert update is None or update.registration.adopted == write.registration.adopted
    assert machine.current.adopted == write.registration.adopted
    # Should the object be lost once more, this process still knows.
    lost = replace(BROKER, registration=None, uid="u2")
    machine.step(reg.BrokerSeen(lost))
    assert reg.DrawEpoch(7) in machine.step(reg.BrokerRead(lost))
    [write] = machine.step(reg.EpochDrawn(7))
    assert write.registration.adopted == (Adopted(broker_epoch=5, trusted_since=2, clean_since=4),)


def test_an_object_that_went_with_the_registration_just_written_is_waited_for():
    machine = reg.RegistrationMachine(IDENTITY)
    machine.step(reg.Tick())
    machine.step(reg.BrokerRead(BROKER))
    [write] = machine.step(reg.EpochDrawn(6))
    machine.step(reg.BrokerSeen(None))  # the cluster was deleted, and the watch is faster than the answer
    answered = machine.step(reg.RegistrationAnswered(write.registration, Settled.APPLIED))
    assert not machine.registered
    assert reg.Registered(6) not in answered
    made_again = replace(BROKER, registration=None, uid="u2")
    machine.step(reg.BrokerSeen(made_again))
    [again] = machine.step(reg.BrokerRead(made_again))
    assert again.registration.broker_epoch == 6, "nobody has seen it under this epoch"
    assert reg.Registered(6) in machine.step(reg.RegistrationAnswered(again.registration, Settled.APPLIED))


def test_a_restored_counter_does_not_make_an_epoch_be_used_twice():  # S11
    """The store shows epoch 5, the directory was registered with 9 since: others know this broker by that."""
    later = LastRegistration.of(replace(FORMER, broker_epoch=9))
    machine = reg.RegistrationMachine(replace(IDENTITY, last=later))
    machine.step(reg.Tick())
    assert machine.step(reg.BrokerRead(BROKER)) == [reg.DrawEpoch(10)]


def test_a_clean_restart_after_a_restore_is_trusted_by_what_the_directory_remembers():  # S11
    """Stopped in order in epoch 9, while the store went back to 5: else a partition that has its only replica here, and
    whose entry is as it was, would wait for the consent to a loss that has not happened."""
    later = LastRegistration.of(replace(FORMER, broker_epoch=9, incarnation="later"))
    machine = reg.RegistrationMachine(replace(IDENTITY, last=later, clean_epoch=9))
    machine.step(reg.Tick())
    assert machine.step(reg.BrokerRead(BROKER)) == [reg.DrawEpoch(10)]
    [write] = machine.step(reg.EpochDrawn(10))
    assert (write.registration.trusted_since, write.registration.clean_since) == (2, 4)


@pytest.mark.parametrize(
    ("changes", "trust"),
    [
        ({"clean_epoch": 5}, (2, 4)),
        ({"clean_epoch": None}, (2, 6)),
        ({"clean_epoch": 3}, (6, 6)),
        ({"trusted": False, "clean_epoch": 5}, (6, 6)),
    ],
)
def test_what_a_restart_proves(changes, trust):
    _, written = registered(replace(IDENTITY, **changes))
    assert (written.trusted_since, written.clean_since) == trust


def test_running_is_said_only_after_catching_up():
    machine, written = registered()
    assert written.state is BrokerState.CATCHING_UP
    assert machine.step(reg.StateWanted(BrokerState.RUNNING)) == []
    [update] = machine.step(reg.CaughtUp(6))
    assert update == reg.WriteRegistration(replace(written, state=BrokerState.RUNNING), update=True)


def test_a_newer_epoch_of_another_incarnation_ends_this_one():
    machine, written = registered()
    later = replace(BROKER, registration=replace(written, incarnation="later", broker_epoch=7))
    [superseded] = machine.step(reg.BrokerSeen(later))
    assert "later" in superseded.reason
    assert machine.step(reg.Tick()) == []


def test_an_older_registration_seen_late_changes_nothing():
    machine, _ = registered()
    assert machine.step(reg.BrokerSeen(BROKER)) == []
    assert machine.registered


def test_an_older_registration_that_a_read_shows_as_well_is_replaced():  # S11
    machine, written = registered()
    assert machine.step(reg.CaughtUp(6)) == []
    assert machine.step(reg.BrokerSeen(BROKER)) == [reg.ReadBroker()]
    current = replace(BROKER, registration=written)
    assert machine.step(reg.BrokerRead(current)) == [], "the event was late"
    assert machine.step(reg.BrokerSeen(BROKER)) == [reg.ReadBroker()]
    assert machine.step(reg.BrokerRead(BROKER)) == [reg.DrawEpoch(7)], (
        "above what this process had, whatever the restored counter says"
    )
    assert not machine.registered
    [write] = machine.step(reg.EpochDrawn(7))
    assert (write.registration.broker_epoch, write.registration.trusted_since) == (7, written.trusted_since)


def test_a_read_that_failed_is_due_still():  # S11
    machine, _ = registered()
    machine.step(reg.CaughtUp(6))
    assert machine.step(reg.BrokerSeen(BROKER)) == [reg.ReadBroker()]
    assert machine.step(reg.CallFailed()) == [reg.ReadBroker()]
    assert machine.step(reg.BrokerRead(BROKER)) == [reg.DrawEpoch(7)]


def test_a_fence_leads_to_a_new_epoch_with_the_data_intact():
    machine, written = registered()
    machine.step(reg.CaughtUp(6))
    fenced = replace(BROKER, registration=written, fenced_epoch=6)
    waits, read = machine.step(reg.BrokerSeen(fenced))
    assert isinstance(waits, reg.Waits)
    assert read == reg.ReadBroker()
    assert machine.step(reg.BrokerRead(fenced)) == [reg.DrawEpoch(7)]
    [write] = machine.step(reg.EpochDrawn(7))
    assert write.registration.trusted_since == written.trusted_since
    assert write.registration.incarnation == "new"


def test_who_is_given_up_asks_once_a_tick_and_registers_when_it_is_not_given_up_any_more():
    machine, written = registered()
    machine.step(reg.CaughtUp(6))
    fenced = replace(BROKER, registration=written, fenced_epoch=6)
    machine.step(reg.BrokerSeen(fenced))
    assert machine.step(reg.BrokerRead(fenced)) == [reg.DrawEpoch(7)]
    assert machine.step(reg.DrawRefused("the node is lost")) == [reg.Waits("the node is lost")]
    assert machine.waiting == "the node is lost"
    for _ in range(2):
        assert machine.step(reg.Tick()) == [reg.ReadBroker()]
        assert machine.step(reg.BrokerRead(fenced)) == [reg.DrawEpoch(7)]
        assert machine.step(reg.DrawRefused("the node is lost")) == []
    machine.step(reg.Tick())
    machine.step(reg.BrokerRead(fenced))
    [write] = machine.step(reg.EpochDrawn(7))
    assert write.registration.trusted_since == written.trusted_since


def test_an_unknown_outcome_is_looked_at_and_adopted():
    machine = reg.RegistrationMachine(IDENTITY)
    machine.step(reg.Tick())
    machine.step(reg.BrokerRead(BROKER))
    [write] = machine.step(reg.EpochDrawn(6))
    assert machine.step(reg.RegistrationAnswered(write.registration, Settled.UNKNOWN)) == [reg.ReadBroker()]
    landed = replace(BROKER, registration=write.registration)
    assert reg.Registered(6) in machine.step(reg.BrokerRead(landed))


ELSEWHERE = replace(IDENTITY, directory_id="another disk")


def test_another_directory_waits_for_the_fence_or_for_silence():  # S6
    machine = reg.RegistrationMachine(ELSEWHERE)
    machine.step(reg.Tick())
    [waits] = machine.step(reg.BrokerRead(BROKER))
    assert "has directory another disk and waits" in waits.reason
    assert machine.predecessor == 5
    assert machine.step(reg.PredecessorSilent(4)) == [], "that was another registration"
    machine.step(reg.Tick())
    assert machine.step(reg.BrokerRead(BROKER)) == []
    assert machine.step(reg.Tick()) == [reg.ReadBroker()]
    machine.step(reg.PredecessorSilent(5))
    assert machine.step(reg.BrokerRead(BROKER)) == [reg.DrawEpoch(6)]
    [write] = machine.step(reg.EpochDrawn(6))
    assert not write.update
    assert (write.registration.trusted_since, write.registration.clean_since) == (6, 6)
    machine.step(reg.RegistrationAnswered(write.registration, Settled.APPLIED))
    assert (machine.predecessor, machine.broker_epoch) == (-1, 6)


@pytest.mark.parametrize("broken_off_by", ["a failed call", "a refused write"])
def test_silence_is_looked_at_again_after_a_call_that_came_to_nothing(broken_off_by):
    machine = reg.RegistrationMachine(ELSEWHERE)
    machine.step(reg.Tick())
    machine.step(reg.BrokerRead(BROKER))
    assert machine.step(reg.PredecessorSilent(5)) == [reg.DrawEpoch(6)]
    if broken_off_by == "a failed call":
        machine.step(reg.CallFailed())
    else:
        [write] = machine.step(reg.EpochDrawn(6))
        machine.step(reg.RegistrationAnswered(write.registration, Settled.REJECTED))
    assert machine.step(reg.BrokerRead(BROKER)) == []
    assert machine.predecessor == 5


def test_a_predecessor_that_registers_again_is_alive():
    machine = reg.RegistrationMachine(ELSEWHERE)
    machine.step(reg.Tick())
    machine.step(reg.PredecessorSilent(5))
    again = replace(BROKER, registration=replace(FORMER, broker_epoch=6))
    assert machine.step(reg.BrokerRead(again)) == [reg.Waits(machine.waiting)]
    assert "with epoch 6" in machine.waiting
    assert machine.predecessor == 6


def test_what_is_being_written_is_not_confirmed():
    """The answer may be lost, and the object still say what it said before (S10)."""
    machine, _ = registered()
    machine.step(reg.CaughtUp(6))
    target = machine._target()
    assert machine.confirmed
    assert machine.step(reg.StraysChanged()) == [reg.WriteRegistration(target, update=True)]
    assert (machine.settled, machine.confirmed) == (True, False)
    machine.step(reg.RegistrationAnswered(target, Settled.UNKNOWN))
    assert not machine.confirmed
