"""Producers and consumers over the simulated network, with the patience and the retries of real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_broker.replication.throttles import ReplicationThrottles
from kafkalite_broker.server.handlers.fetch.wanted import Asker, Wanted
from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.fetch import FetchPartition, FetchRequest, PartitionData
from kafkalite_core.replica.events import CONSUMER_ID, FetchRequested
from kafkalite_core.storage.errors import ReadInterrupted
from tests.simulation.batches import marks_of
from tests.simulation.lane import Lane
from tests.simulation.world import Process, Violation

if TYPE_CHECKING:
    from kafkalite_core.replica.events import FetchAnswered
    from tests.simulation.broker import Broker
    from tests.simulation.cluster import SimCluster
    from tests.simulation.driver import Driver

READ_BYTES: Final = 4_000
NO_THROTTLES: Final = ReplicationThrottles(-1, lambda: -1, {})


def asked_from(position: int) -> FetchRequested:
    """A consumer's question for one partition."""
    return FetchRequested(
        token=None, replica_id=CONSUMER_ID, replica_epoch=-1, current_leader_epoch=-1, fetch_offset=position,
        last_fetched_epoch=-1,
    )  # fmt: skip


class Client:
    """Knows, a little late, who leads; sends requests whose answers may never come."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.network = cluster.network
        self.name = name
        self.process = Process(name)
        self.chance = self.world.rng(name).random
        self.leaders: dict[tuple[str, int], int] = {}
        self._asked_ms = -1e9

    def begin(self) -> None:
        """It begins with asking who leads."""
        self.refresh()

    def connection_lost(self, _host: str) -> None:
        """Connections to that broker broke: somebody else may lead now."""
        self.refresh()

    def refresh(self) -> None:
        """Ask some broker who leads; not too often."""
        if self.world.now - self._asked_ms < 20.0:
            return
        self._asked_ms = self.world.now
        hosts = self.cluster.host_list
        host = hosts[int(self.chance() * len(hosts))]
        broker = host.broker
        if broker is not None and broker.serving:
            self.network.send(self.name, host.name, broker.process, self._at_broker, broker)

    def _at_broker(self, broker: Broker) -> None:
        known = {
            (topic.ref.name, number): entry.leader
            for topic in broker.cache.topics()
            for number, entry in topic.partitions.items()
        }
        self.network.send(broker.host.name, self.name, self.process, self._learned, known)

    def _learned(self, known: dict[tuple[str, int], int]) -> None:
        self.leaders = known

    def leader(self, topic: str, number: int) -> Broker | None:
        """The broker that is thought to lead, if something listens there."""
        host = self.cluster.hosts.get(self.leaders.get((topic, number), -1))
        broker = None if host is None else host.broker
        return broker if broker is not None and broker.serving else None


class Producer(Client):
    """One producer: a lane for each partition; if it is idempotent, with several batches in flight on each."""

    def __init__(self, cluster: SimCluster, number: int, *, idempotent: bool, acks: int) -> None:
        super().__init__(cluster, f"p{number}")
        self.idempotent = idempotent
        self.acks = acks
        self.producer_id = -1
        self._asked = 0
        self._open_asks: set[int] = set()
        self.stopped = False
        self._lanes = [
            Lane(self, topic.name, partition) for topic in cluster.shape.topics for partition in range(topic.partitions)
        ]

    def begin(self) -> None:
        """Start all lanes."""
        self.refresh()
        if self.idempotent and self.cluster.shape.renewal_ms:
            self._renew_later()
        for lane in self._lanes:
            self.world.at(100.0 + self.chance() * 200.0, self.process, lane.begin)

    def write_also(self, topic: str, number: int) -> None:
        """The topic is to have that partition as well."""
        if not any((lane.topic, lane.number) == (topic, number) for lane in self._lanes):
            self._lanes.append(Lane(self, topic, number))
            self.world.at(100.0 + self.chance() * 200.0, self.process, self._lanes[-1].begin)

    def ask_id(self) -> None:
        """InitProducerId, of any broker."""
        hosts = self.cluster.host_list
        host = hosts[int(self.chance() * len(hosts))]
        broker = host.broker
        if broker is not None and broker.serving:
            self._asked += 1
            self._open_asks.add(self._asked)
            self.network.send(self.name, host.name, broker.process, self._at_broker_for_id, broker, self._asked)

    def _at_broker_for_id(self, broker: Broker, ask: int) -> None:
        def reply(error_code: int, producer_id: int) -> None:
            self.network.send(broker.host.name, self.name, self.process, self._got_id, ask, error_code, producer_id)

        broker.draws.take(reply)

    def _got_id(self, ask: int, error_code: int, producer_id: int) -> None:
        if ask not in self._open_asks:
            return  # the network repeats messages, and TCP does not
        self._open_asks.discard(ask)
        if not error_code:
            self.cluster.history.id_given(f"{self.name} ({ask})", producer_id)
            if self.producer_id < 0:
                self.producer_id = producer_id

    def _renew_later(self) -> None:
        self.world.at(self.cluster.shape.renewal_ms * (0.5 + self.chance()), self.process, self._renew)

    def _renew(self) -> None:
        """The application starts anew: no log knows its next id."""
        if not self.stopped:
            self.bump()
            self._renew_later()

    def connection_lost(self, host: str) -> None:
        """As after the patience of a request: of what was under way to that broker nobody knows whether it arrived."""
        super().connection_lost(host)
        for lane in self._lanes:
            lane.connection_lost(host)

    def bump(self) -> None:
        """The id cannot be used any more."""
        self.producer_id = -1


class Sent(NamedTuple):
    """A request as the broker's handlers know it."""

    version: int
    body: FetchRequest


class Read(NamedTuple):
    """What a consumer asks of one replica of one partition."""

    topic: str
    number: int
    topic_id: str
    position: int
    elsewhere: bool


class Consumer(Client):
    """Reads partitions from their start, again and again from the end of what it has.

    In a rack it goes to the replica that the leader names (KIP-392), for a while, or until that one has not what it asks
    for, is gone, or knows the partition no more: then it asks the leader.

    Attributes:
        elsewhere: Answers with records from others than the leader.
    """

    POLL_MS = 400.0
    ELSEWHERE_MS = 5_000.0

    def __init__(self, cluster: SimCluster, number: int) -> None:
        super().__init__(cluster, f"c{number}")
        rack = dict(enumerate(cluster.shape.reader_racks)).get(number, "")
        self._request = Sent(cluster.shape.fetch_version, FetchRequest(rack_id=rack))
        self._positions: dict[tuple[str, int], tuple[str, int]] = {}
        self._partitions = [
            (topic.name, partition) for topic in cluster.shape.topics for partition in range(topic.partitions)
        ]
        self._waiting: dict[tuple[str, int], int] = {}
        self._preferred: dict[tuple[str, int], tuple[int, float]] = {}
        self.elsewhere = 0

    def begin(self) -> None:
        """Start reading."""
        self.refresh()
        for topic, number in self._partitions:
            self.world.at(200.0 + self.chance() * self.POLL_MS, self.process, self._poll, topic, number)

    def connection_lost(self, host: str) -> None:
        """It asks the leader again, whoever that is."""
        super().connection_lost(host)
        self._preferred = {key: who for key, who in self._preferred.items() if f"b{who[0]}" != host}

    def _poll(self, topic: str, number: int) -> None:
        key = (topic, number)
        reader = self._named(key)
        elsewhere = reader is not None
        reader = reader or self.leader(topic, number)
        turn = self._waiting[key] = self._waiting.get(key, 0) + 1
        if reader is None:
            self.refresh()
        else:
            topic_id, position = self._positions.get(key, ("", 0))
            asked = Read(topic, number, topic_id, position, elsewhere)
            self.network.send(self.name, reader.host.name, reader.process, self._at_broker_to_read, reader, asked)
        self.world.at(self.POLL_MS * (0.75 + 0.5 * self.chance()), self.process, self._again, topic, number, turn)

    def _named(self, key: tuple[str, int]) -> Broker | None:
        """The broker that the leader has named, if something listens there."""
        broker_id, until_ms = self._preferred.get(key, (-1, 0.0))
        broker = None if self.world.now >= until_ms else self.cluster.hosts[broker_id].broker
        if broker is None or not broker.serving:
            self._preferred.pop(key, None)
            return None
        return broker

    def _again(self, topic: str, number: int, turn: int) -> None:
        if self._waiting[topic, number] == turn:
            self._poll(topic, number)
        else:
            self.world.events -= 1

    def _at_broker_to_read(self, broker: Broker, asked: Read) -> None:
        driver = broker.driver(asked.topic, asked.number)
        position, known, records = asked.position, "", b""
        if driver is None:
            data = PartitionData(error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            known = driver.ref.topic_id
            if asked.topic_id and known != asked.topic_id:
                position = 0  # the topic was made again
            data, records = read_for(self._request, driver, position, rack_aware=broker.rack_aware)
            self.cluster.oracles.watermark.latest(driver)
        heard = self._got_elsewhere if asked.elsewhere else self._got
        self.network.send(
            broker.host.name, self.name, self.process, heard, asked.topic, asked.number, known, position, data, records
        )

    def _got_elsewhere(
        self, topic: str, number: int, topic_id: str, position: int, answer: PartitionData, records: bytes
    ) -> None:
        """The answer of one that does not lead; who lacks what was asked for sends back to the leader."""
        if answer.error_code:
            self._preferred.pop((topic, number), None)
            self.refresh()
            return
        self.elsewhere += bool(records)
        self._got(topic, number, topic_id, position, answer, records)

    def _got(
        self,
        topic: str,
        number: int,
        topic_id: str,
        position: int,
        answer: FetchAnswered | PartitionData,
        records: bytes,
    ) -> None:
        if answer.error_code:
            self.refresh()
            below = answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and position < answer.log_start_offset
            if below and not self._is_late((topic, number), topic_id, position):
                self._positions[topic, number] = (topic_id, answer.log_start_offset)
            return
        if self._is_late((topic, number), topic_id, position):
            return
        if answer.preferred_read_replica in self.cluster.hosts:
            self._preferred[topic, number] = answer.preferred_read_replica, self.world.now + self.ELSEWHERE_MS
            if self._named((topic, number)) is not None:
                self._poll(topic, number)
            return
        ledger = self.cluster.oracles.ledgers[topic_id, number]
        for mark, sound in marks_of(records):
            if not sound or mark.base > position or mark.next > answer.high_watermark:
                what = "it is damaged" if not sound else "records before it are passed over"
                if mark.next > answer.high_watermark:
                    what = f"the high watermark is {answer.high_watermark}"
                raise Violation(
                    "consumer reads committed", f"{ledger}: {self.name} at {position} is given {mark}: {what}"
                )
            self.cluster.oracles.watermark.read(ledger, self.name, mark)
            position = max(position, mark.next)
        self._positions[topic, number] = (topic_id, position)
        if records:
            self._poll(topic, number)

    def _is_late(self, key: tuple[str, int], topic_id: str, position: int) -> bool:
        """Whether an answer came late or twice; the first one of a topic that was made again is none."""
        known_id, reached = self._positions.get(key, ("", 0))
        return reached != position if known_id == topic_id else bool(known_id and position)


def read_for(request: Sent, driver: Driver, position: int, *, rack_aware: bool) -> tuple[PartitionData, bytes]:
    """What the broker's own handler finds for a consumer, the records apart; what is on the disk is read at once."""
    question = FetchPartition(partition=driver.number, fetch_offset=position, partition_max_bytes=READ_BYTES)
    wanted = Wanted(driver.ref.name, None, question)
    wanted.driver = driver  # type: ignore[assignment]  # of the simulator, which has what is asked of it
    asker = Asker(request, rack_aware=rack_aware)  # type: ignore[arg-type]
    wanted.read(asker, request, READ_BYTES, first=True, throttles=NO_THROTTLES)
    if wanted.cold is not None:
        try:
            wanted.give(wanted.cold.run())
        except ReadInterrupted:
            wanted.give(None)
        else:
            driver.log.keep_indexes(wanted.cold.loading)
    return wanted.data, b"".join(wanted.data.records or ())
