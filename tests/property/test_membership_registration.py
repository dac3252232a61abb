"""S6, R8, R9: incarnations that come, go, hang and race for one broker id, over an API that loses and delays."""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalite_core.membership import registration as reg
from kafkalite_core.membership.settlement import Settled
from kafkalite_core.model.cluster import Broker, BrokerState

DIRECTORIES = ("disk-a", "disk-b")
FATES = ("answered", "answered", "answered", "answer lost", "request lost", "delayed")


@dataclass
class Process:
    incarnation: str
    directory: str
    machine: reg.RegistrationMachine
    work: list
    read: tuple = None
    """(version, broker) of the last read, which a new registration tests."""
    epochs: tuple = ()


class ServerObject:
    """The broker's object and the cluster's counter, with the tests that the patches make."""

    def __init__(self):
        self.version = 1
        self.broker = Broker(id=0, object_name="kafkalite-broker-0", uid="uid-1")
        self.next_epoch = 1
        self.written = []
        self.told_silent = set()
        """(waiting incarnation, epoch of the holder)."""
        self.states = [(self.version, self.broker)]

    def put(self, broker):
        self.version += 1
        self.broker = broker
        self.states.append((self.version, broker))

    def register(self, read_version, new):
        if self.version != read_version:
            return False
        old = self.broker.registration
        if old is not None:
            assert new.broker_epoch > old.broker_epoch, "epochs grow"
            if old.directory_id != new.directory_id:
                taken = self.broker.fenced or (new.incarnation, old.broker_epoch) in self.told_silent
                assert taken, "another directory takes over only what is fenced, or silent as far as it knows (S6)"
        assert new.broker_epoch > self.broker.fenced_epoch, "a fence outlives a registration"
        self.written.append(new)
        self.put(replace(self.broker, registration=new))
        return True

    def update(self, new):
        old = self.broker.registration
        if old is None or (old.broker_epoch, old.incarnation) != (new.broker_epoch, new.incarnation):
            return False
        assert (old.trusted_since, old.clean_since) == (new.trusted_since, new.clean_since)
        self.put(replace(self.broker, registration=new))
        return True


class Registrations(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.server = ServerObject()
        self.processes = []
        self.delayed = []
        self.count = 0
        self.ever_registered = {}
        self.operator_is_gone = False
        self.given_up = ""

    # ---------------------------------------------------------------- processes

    def feed(self, process, event):
        for effect in process.machine.step(event):
            match effect:
                case reg.Registered(epoch):
                    owner = self.ever_registered.setdefault(epoch, process.incarnation)
                    assert owner == process.incarnation, "two incarnations were told that they have one epoch"
                    process.epochs += (epoch,)
                case reg.Superseded():
                    process.work.clear()
                case reg.Waits():
                    pass
                case _:
                    assert not process.work, "one piece of work at a time"
                    process.work.append(effect)

    def live(self):
        return [process for process in self.processes if not process.machine.superseded]

    @rule(directory=st.sampled_from(DIRECTORIES), trusted=st.booleans(), clean=st.booleans())
    def start(self, directory, trusted, clean):
        if any(process.directory == directory for process in self.processes):
            return  # the lock of the directory is held
        self.count += 1
        last = [w for w in self.server.written if w.directory_id == directory]
        identity = reg.Identity(
            broker_id=0,
            incarnation=f"incarnation-{self.count}",
            directory_id=directory,
            trusted=trusted,
            clean_epoch=last[-1].broker_epoch if clean and last else None,
            host="h",
            port=1,
        )
        process = Process(identity.incarnation, directory, reg.RegistrationMachine(identity), [])
        self.processes.append(process)
        self.feed(process, reg.Tick())

    @precondition(lambda self: self.processes)
    @rule(index=st.integers(0, 1))
    def kill(self, index):
        self.processes.pop(index % len(self.processes))

    @precondition(lambda self: self.live())
    @rule(index=st.integers(0, 1), state=st.sampled_from([BrokerState.RUNNING, BrokerState.SHUTTING_DOWN]))
    def want(self, index, state):
        process = self.live()[index % len(self.live())]
        self.feed(process, reg.StateWanted(state))

    # -------------------------------------------------------------------- network

    @precondition(lambda self: any(process.work for process in self.live()))
    @rule(index=st.integers(0, 1), fate=st.sampled_from(FATES))
    def work(self, index, fate):
        busy = [process for process in self.live() if process.work]
        process = busy[index % len(busy)]
        work = process.work.pop()
        self.feed(process, self.carry_out(process, work, fate))

    def carry_out(self, process, work, fate):
        server = self.server
        match work:
            case reg.ReadBroker():
                if fate != "answered":
                    return reg.CallFailed()
                process.read = (server.version, server.broker)
                return reg.BrokerRead(server.broker)
            case reg.DrawEpoch(minimum):
                if fate in {"request lost", "delayed"}:
                    return reg.CallFailed()
                if process.directory == self.given_up:
                    return reg.DrawRefused("its disk is given up")
                drawn = max(server.next_epoch, minimum)
                server.next_epoch = drawn + 1
                return reg.CallFailed() if fate == "answer lost" else reg.EpochDrawn(drawn)
            case reg.CatchUp(epoch):
                return reg.CaughtUp(epoch) if fate == "answered" else reg.CallFailed()
            case reg.WriteRegistration(new, update):
                version = process.read[0] if process.read is not None else -1
                if fate == "delayed":
                    self.delayed.append((new, update, version))
                    return reg.RegistrationAnswered(new, Settled.UNKNOWN)
                if fate == "request lost":
                    return reg.RegistrationAnswered(new, Settled.UNKNOWN)
                landed = server.update(new) if update else server.register(version, new)
                if fate == "answer lost":
                    return reg.RegistrationAnswered(new, Settled.UNKNOWN)
                return reg.RegistrationAnswered(new, Settled.APPLIED if landed else Settled.REJECTED)
        raise AssertionError(work)

    @rule()
    def a_calm_moment(self):
        """Without it few runs would get beyond the first registration."""
        for _ in range(6):
            for process in self.live():
                self.feed(process, reg.BrokerSeen(self.server.broker))
                if process.work:
                    self.feed(process, self.carry_out(process, process.work.pop(), "answered"))

    @precondition(lambda self: self.delayed)
    @rule(index=st.integers(0, 5))
    def land(self, index):
        new, update, version = self.delayed.pop(index % len(self.delayed))
        if update:
            self.server.update(new)
        else:
            self.server.register(version, new)

    @precondition(lambda self: self.live())
    @rule(index=st.integers(0, 1), lag=st.integers(0, 3))
    def watch(self, index, lag):
        process = self.live()[index % len(self.live())]
        states = self.server.states
        self.feed(process, reg.BrokerSeen(states[max(0, len(states) - 1 - lag)][1]))

    @rule()
    def tick(self):
        for process in self.live():
            self.feed(process, reg.Tick())

    # ------------------------------------------------------------------- operator

    @precondition(lambda self: not self.operator_is_gone)
    @rule()
    def fence(self):
        broker = self.server.broker
        if broker.registration is not None and not broker.fenced:
            self.server.put(replace(broker, fenced_epoch=broker.registration.broker_epoch))

    @rule(index=st.integers(0, 1))
    def a_holder_is_silent(self, index):
        """Maybe it is alive: it could not renew, or hangs."""
        for process in self.live()[index:]:
            self.tell_silent(process)

    def tell_silent(self, process):
        epoch = process.machine.predecessor
        if epoch >= 0:
            self.server.told_silent.add((process.incarnation, epoch))
            self.feed(process, reg.PredecessorSilent(epoch))

    @rule(directory=st.sampled_from((*DIRECTORIES, "")))
    def a_disk_is_given_up_or_none_any_more(self, directory):
        self.given_up = directory

    @rule()
    def the_operator_goes_away_for_good(self):
        self.operator_is_gone = True

    @rule()
    def the_counter_is_restored_from_a_backup(self):
        self.server.next_epoch = 1

    # ----------------------------------------------------------------- invariants

    @invariant()
    def no_epoch_is_written_for_two(self):
        owners = {}
        for written in self.server.written:
            assert owners.setdefault(written.broker_epoch, written.incarnation) == written.incarnation

    @invariant()
    def no_two_think_they_are_registered_with_one_epoch(self):
        epochs = [process.machine.broker_epoch for process in self.processes if process.machine.broker_epoch >= 0]
        assert len(epochs) == len(set(epochs))

    @invariant()
    def who_is_registered_was_written(self):
        written = {(w.incarnation, w.broker_epoch) for w in self.server.written}
        for process in self.processes:
            if process.machine.broker_epoch >= 0:
                assert (process.incarnation, process.machine.broker_epoch) in written

    @invariant()
    def trust_is_never_above_the_epoch_and_never_grows_within_a_process(self):
        since = {}
        for written in self.server.written:
            assert max(written.trusted_since, written.clean_since) <= written.broker_epoch
            known = since.setdefault(written.incarnation, (written.trusted_since, written.clean_since))
            assert known == (written.trusted_since, written.clean_since)

    def teardown(self):
        """Liveness: once the network works, and the dead are fenced or seen to be silent, exactly one is registered.

        So it is when no disk is given up any more: who was refused asks again.
        """
        self.given_up = ""
        for _ in range(200):
            holder = self.server.broker.registration
            if holder is not None and all(p.incarnation != holder.incarnation for p in self.live()):
                if self.operator_is_gone:
                    for process in self.live():
                        self.tell_silent(process)
                else:
                    self.fence()
            for process in self.live():
                self.feed(process, reg.BrokerSeen(self.server.broker))
                self.feed(process, reg.Tick())
                if process.work:
                    self.feed(process, self.carry_out(process, process.work.pop(), "answered"))
            if not any(process.work for process in self.live()) and self.settled():
                break
        active = [p for p in self.live() if p.machine._wanted_state is not BrokerState.SHUTTING_DOWN]
        if active:
            names = [p.incarnation for p in self.live() if p.machine.registered]
            assert len(names) == 1, (names, self.server.broker)
            registered = self.server.broker.registration
            assert registered.incarnation == names[0]
            process = next(p for p in self.live() if p.incarnation == names[0])
            assert registered.state is process.machine._wanted_state
            for other in self.live():
                assert other is process or other.machine.broker_epoch < 0, "the former incarnation has not ended (R8)"
        super().teardown()

    def settled(self):
        return any(process.machine.settled for process in self.live())


TestRegistrations = Registrations.TestCase
TestRegistrations.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
