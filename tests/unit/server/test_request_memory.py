"""What requests hold, over all connections: who is stopped, who goes on, and that nobody waits for ever."""

import asyncio
import random

import pytest

from kafkalite_broker.server import connection as connections
from kafkalite_broker.server.budget import InFlightBudget
from kafkalite_broker.server.connection import Connection
from tests.unit.server.fake_connection import FakeDispatcher, FakeTransport, feed, frame

LIMIT = 100_000
READ_BYTES = 1 << 10


class Clients:
    """Connections that share a budget; what they send arrives as far as they are read."""

    def __init__(self, limit_bytes=LIMIT):
        self.budget = InFlightBudget(limit_bytes)
        self.dispatcher = FakeDispatcher()
        self.connections = []
        self.transports = []
        self.unread = []

    def connect(self):
        connection, transport = Connection(self.dispatcher, self.budget, 1 << 20, "plain", bytearray(1 << 14)), None
        transport = FakeTransport()
        connection.connection_made(transport)
        self.connections.append(connection)
        self.transports.append(transport)
        self.unread.append(bytearray())
        return len(self.connections) - 1

    def send(self, number, data):
        self.unread[number] += data
        self.arrive(number)

    def arrive(self, number, reads=1 << 20):
        """The transport reads as long as it may."""
        unread, transport = self.unread[number], self.transports[number]
        while unread and reads and transport.reading and not transport.closing:
            taken = bytes(unread[:READ_BYTES])
            del unread[:READ_BYTES]
            feed(self.connections[number], taken)
            reads -= 1

    def reading(self):
        return [transport.reading for transport in self.transports]


@pytest.fixture
async def clients():
    return Clients()


async def settle():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_waits_without_its_frame_leaves_its_bytes_to_others(clients):
    one, other = clients.connect(), clients.connect()
    clients.send(one, frame(b"p" * (LIMIT - 1000)))
    clients.dispatcher.frames[0][1].let_go(300)
    assert clients.budget.used_bytes == 300
    clients.dispatcher.frames[0][1].let_go(400)
    assert clients.budget.used_bytes == 300, "more is not counted again"
    clients.send(other, frame(b"q" * (LIMIT - 1000)))
    assert clients.reading() == [True, True]
    for _, slot in clients.dispatcher.frames:
        slot.finish([])
    assert clients.budget.used_bytes == 0


async def test_a_connection_of_a_broker_that_replicates_is_never_held(clients):
    follower, producer = clients.connect(), clients.connect()
    clients.send(follower, frame(b"fetch"))
    clients.dispatcher.frames[0][1].replication_noted()
    clients.send(producer, frame(b"p" * LIMIT))
    assert clients.reading() == [True, False]
    clients.send(follower, frame(b"fetch" * 1000) + frame(b"again"))
    assert clients.reading() == [True, False]
    assert [payload[:5] for payload, _ in clients.dispatcher.frames] == [b"fetch", b"ppppp", b"fetch", b"again"]


async def test_unfinished_frames_are_bounded_and_finish_oldest_first(clients):
    numbers = [clients.connect() for _ in range(30)]
    for number in numbers:
        clients.send(number, frame(b"%02d" % number * 10_000)[: LIMIT // 20])
    assert clients.budget.held
    assert clients.budget.used_bytes <= LIMIT + 10 * READ_BYTES, "one read of each that was late, and no more"
    assert clients.reading()[:2] == [True, False]
    finished = []
    for number in numbers:
        clients.unread[number] += frame(b"%02d" % number * 10_000)[LIMIT // 20 :]
    while len(finished) < len(numbers):
        reading = [number for number in numbers if clients.transports[number].reading]
        for number in reading:
            clients.arrive(number, reads=1)
        await settle()
        assert clients.budget.used_bytes <= LIMIT + 20_000 + 30 * READ_BYTES
        for payload, slot in clients.dispatcher.frames:
            finished.append(int(payload[:2]))
            slot.finish([])
        clients.dispatcher.frames.clear()
        await settle()
    assert finished[:10] == list(range(10))
    assert sorted(finished) == numbers
    assert clients.budget.used_bytes == 0
    assert all(clients.reading())


async def test_the_oldest_frame_is_read_on_even_if_its_client_does_not_read_answers(clients):
    oldest, other = clients.connect(), clients.connect()
    clients.send(oldest, frame(b"o" * 50_000)[:40_000])
    clients.connections[oldest].pause_writing()
    assert clients.reading() == [False, True]
    clients.send(other, frame(b"p" * 90_000)[:70_000])
    await settle()
    assert clients.budget.held
    assert clients.reading() == [True, False]
    clients.send(oldest, frame(b"o" * 50_000)[40_000:] + frame(b"next"))
    await settle()
    assert [len(payload) for payload, _ in clients.dispatcher.frames] == [50_000]
    assert clients.reading() == [False, True], "its frame is whole: its turn is over, and its answers are unread still"
    clients.send(other, frame(b"p" * 90_000)[70_000:])
    for _, slot in clients.dispatcher.frames:
        slot.finish([])
    clients.connections[oldest].resume_writing()
    await settle()
    clients.arrive(oldest)
    assert clients.dispatcher.frames[-1][0] == b"next"
    assert clients.reading() == [True, True]


async def test_a_broker_whose_first_fetch_had_its_turn_is_read_on(clients):
    hog, follower = clients.connect(), clients.connect()
    clients.send(hog, frame(b"x" * LIMIT)[: LIMIT // 2])
    clients.send(follower, frame(b"f" * 60_000)[:51_000])
    assert clients.reading() == [True, False]
    clients.connections[follower].pause_writing()
    clients.send(hog, frame(b"x" * LIMIT)[LIMIT // 2 :])
    await settle()
    assert clients.reading() == [False, True]
    clients.dispatcher.on_frame = lambda slot: slot.replication_noted()
    clients.send(follower, frame(b"f" * 60_000)[51_000:])
    assert clients.reading() == [False, False], "it has answers to read first"
    clients.connections[follower].resume_writing()
    await settle()
    assert clients.budget.held
    assert clients.reading() == [False, True]


async def test_the_next_frame_has_its_turn_when_the_connection_of_the_oldest_ends(clients):
    numbers = [clients.connect() for _ in range(3)]
    for number in numbers:
        clients.send(number, frame(b"x" * LIMIT)[: LIMIT // 2])
    assert clients.reading() == [True, False, False]
    clients.connections[0].connection_lost(None)
    await settle()
    assert clients.budget.held
    assert clients.reading()[1:] == [True, False]
    clients.connections[1].close("enough")
    clients.connections[2].connection_lost(None)
    assert clients.budget.used_bytes == 0
    assert not clients.budget.held
    assert not clients.budget._waiting
    assert not clients.budget._unfinished


async def test_dead_clients_in_the_middle_of_their_frames_hold_up_the_others_for_a_moment_only(clients, monkeypatch):
    monkeypatch.setattr(connections, "TURN_SILENCE_S", 0.05)
    dead = [clients.connect() for _ in range(4)]
    for number in dead:
        clients.send(number, frame(b"d" * LIMIT)[: LIMIT // 3])
    alive = clients.connect()
    clients.send(alive, frame(b"first") + frame(b"second"))
    assert clients.budget.held
    for _ in range(200):
        if not clients.budget.held:
            break
        await asyncio.sleep(0.01)
    assert [clients.connections[number].closed for number in dead] == [True, True, False, False]
    await settle()
    assert not clients.connections[alive].closed
    assert clients.transports[alive].reading


async def test_who_sends_in_its_turn_is_not_taken_for_gone_however_slow_it_is(clients):
    slow, other = clients.connect(), clients.connect()
    clients.send(slow, frame(b"s" * LIMIT)[: LIMIT // 2])
    clients.send(other, frame(b"o" * LIMIT)[: LIMIT * 2 // 3])
    assert clients.reading() == [True, False]
    its, waits = clients.connections[slow], clients.connections[other]
    its._turn_began_s -= 3 * connections.TURN_SILENCE_S
    clients.send(slow, b"s")
    its._end_silent_turn()
    waits.last_activity_s -= 3 * connections.TURN_SILENCE_S
    waits._end_silent_turn()
    assert not its.closed, "something came a moment ago"
    assert not waits.closed, "it has no turn yet"
    its.last_activity_s -= 3 * connections.TURN_SILENCE_S
    its._end_silent_turn()
    assert its.closed


async def test_time_in_which_a_connection_was_held_is_not_its_clients(clients):
    oldest, held = clients.connect(), clients.connect()
    clients.send(oldest, frame(b"o" * LIMIT)[: LIMIT // 2])
    clients.send(held, frame(b"h" * LIMIT)[: LIMIT - 1])
    connection = clients.connections[held]
    now_s = asyncio.get_running_loop().time()
    assert connection.held
    assert not connection.overdue(now_s + 1000, 60)
    assert clients.connections[oldest].overdue(now_s + 1000, 60)
    started_s = connection.frame_started_s = connection.frame_started_s - 20
    connection._stopped_s -= 15
    clients.connections[oldest].connection_lost(None)
    clients.budget.give_back(0)
    await settle()
    assert clients.reading()[held]
    assert not connection.held
    assert connection.frame_started_s - started_s == pytest.approx(15, abs=1)
    assert connection.overdue(now_s + 60, 60)


@pytest.mark.parametrize("seed", range(30))
async def test_whoever_sends_is_read_in_the_end(clients, seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    payloads = {}
    for number in (clients.connect() for _ in range(12)):
        payloads[number] = [
            b"%02d" % number + rng.randbytes(rng.choice((10, 900, 20_000, 150_000))) for _ in range(rng.randint(1, 8))
        ]
        clients.unread[number] += b"".join(map(frame, payloads[number]))
    got = {number: [] for number in payloads}
    most_bytes, open_slots = 0, []
    for _ in range(100_000):
        if not any(clients.unread) and not clients.dispatcher.frames and not open_slots:
            break
        number = rng.randrange(12)
        clients.arrive(number, reads=rng.randint(1, 20))
        most_bytes = max(most_bytes, clients.budget.used_bytes)
        for payload, slot in clients.dispatcher.frames:
            got[int(payload[:2])].append(payload)
            open_slots.append(slot)
        clients.dispatcher.frames.clear()
        rng.shuffle(open_slots)
        while open_slots and rng.random() < 0.6:
            open_slots.pop().finish([])
        await asyncio.sleep(0)
    assert got == payloads
    assert clients.budget.used_bytes == 0
    # What was counted: the limit, whole frames that are not answered yet, and one read of each that was late.
    assert most_bytes <= LIMIT + 12 * 20 * READ_BYTES + 150_002 * 2
