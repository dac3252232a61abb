"""What users do to a cluster while it runs: make topics again, change them, move leaders, delete records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.replica.events import DeleteRecordsAnswered, DeleteRecordsRequested, HandOver
from kafkalite_core.resources.naming import ANNOTATION_ADOPT, ANNOTATION_ELECT_PREFERRED
from tests.simulation.swarm import GROUP_TOPIC
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.api import Backup
    from tests.simulation.cluster import SimCluster
    from tests.simulation.driver import Driver
    from tests.simulation.host import Host
    from tests.simulation.network import Link
    from tests.simulation.oracles.ledger import Ledger
    from tests.simulation.swarm import TopicShape


OTHERS_WRITE = 1_000_000
"""Versions that hours of others' writes take."""


class UserActions:
    """Draws; `Faults` says when."""

    def __init__(self, cluster: SimCluster, stream: str) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._chance = cluster.world.rng(stream)
        self._healed = False
        self._lost: list[TopicShape] = []
        self._backup: Backup | None = None
        self._bumps = self._world.rng("restored versions").random
        self._wanted: dict[str, int] = {}
        """By topic that the user made larger: how many partitions it is to have. A restore may take some back."""
        self._grows_again = self._world.rng("partitions again").random

    def _duration(self, longest_ms: float) -> float:
        return 50.0 + self._chance.random() ** 2 * longest_ms

    def _until(self, longest_ms: float, action: Callable[..., None], *args: object) -> None:
        self._world.at(self._duration(longest_ms), None, action, *args)

    def _slow_down(self, host: Host, longest_ms: float) -> None:
        """Its flushes take a hundred times as long for a while. Not longer still: one flush would outlast the history."""
        host.fsync_ms = 100.0 * self._cluster.shape.fsync_ms
        self._until(longest_ms, self._fast_disk, host)

    def _fast_disk(self, host: Host) -> None:
        host.fsync_ms = self._cluster.shape.fsync_ms

    @staticmethod
    def _hears_soon(host: Host) -> None:
        host.late_completions = max(0, host.late_completions - 1)

    def _any_ledger(self) -> Ledger | None:
        ledgers = [ledger for ledger in self._cluster.oracles.ledgers.values() if ledger.entry is not None]
        return self._chance.choice(ledgers) if ledgers else None

    def _leading(self, ledger: Ledger) -> Driver | None:
        """The replica that leads by the store, if it runs and knows."""
        entry = ledger.entry
        host = None if entry is None else self._cluster.hosts.get(entry.leader)
        broker = None if host is None else host.broker
        driver = None if broker is None or broker.process.paused else broker.driver(ledger.topic, ledger.number)
        return driver if driver is not None and driver.is_leader and driver.ref.topic_id == ledger.tag[0] else None

    def _recreate_topic(self) -> None:
        """Once, or several times in a row, while requests of before are still on their way."""
        topic = self._chance.choice(self._cluster.shape.topics)
        self._recreate(topic, self._chance.randrange(1, 4))
        if self._chance.random() < 0.5:
            self._cluster.api.delay_request = 0.4
            self._world.at(5_000.0, None, setattr, self._cluster.api, "delay_request", 0.0)

    def _recreate(self, topic: TopicShape, times: int) -> None:
        if self._healed:
            return
        if topic not in self._lost:
            for ledger in self._cluster.oracles.ledgers.values():
                if ledger.topic == topic.name:
                    ledger.forfeited = True  # also if the object has no status, or a restore took it
        if topic.name in self._cluster.api.objects["topics"]:
            self._cluster.api.delete("topics", topic.name)
            self._forgive(topic)
            self._world.bite("recreate_topic")
        self._world.at(50.0 + self._chance.random() ** 2 * 3_000.0, None, self._create_again, topic)
        if times > 1:
            self._world.at(3_100.0 + self._chance.random() * 1_000.0, None, self._recreate, topic, times - 1)

    def _forgive(self, topic: TopicShape) -> None:
        """Offsets committed for a topic go with it."""
        if topic.name == GROUP_TOPIC:
            self._cluster.oracles.groups.forgive()

    def _create_again(self, topic: TopicShape, adopt: bool = False) -> None:
        if topic not in self._lost and topic.name not in self._cluster.api.objects["topics"]:
            self._cluster.create_topic(topic, {ANNOTATION_ADOPT: "true"} if adopt else None)

    def _create_what_is_missing(self) -> None:
        """Topics that a restore of the store took with it are made again, and their data are wanted back."""
        for topic in self._cluster.shape.topics:
            named = [ledger for ledger in self._cluster.oracles.ledgers.values() if ledger.topic == topic.name]
            wanted = any(ledger.entry is None and ledger.committed and not ledger.forfeited for ledger in named)
            self._create_again(topic, wanted)

    def _lose_topic(self) -> None:
        """The object is lost, by a slip; it is made again, and the data are wanted back (S10)."""
        topic = self._chance.choice(self._cluster.shape.topics)
        obj = self._cluster.api.objects["topics"].get(topic.name)
        if obj is None or "status" not in obj:
            return
        before = {ledger: ledger.forfeited for ledger in self._cluster.oracles.ledgers.values()}
        self._cluster.api.delete("topics", topic.name)
        for ledger, forfeited in before.items():
            ledger.forfeited = forfeited
        self._forgive(topic)
        self._world.bite("lose_topic")
        self._lost.append(topic)
        self._find_again()

    def _find_again(self) -> None:
        """Lost topics are made again once every broker lists their data as strays, as users are told to wait for."""
        for topic in list(self._lost):
            if self._all_set_aside(topic):
                self._lost.remove(topic)
                self._create_again(topic, True)
        if self._lost:
            self._world.at(300.0, None, self._find_again)

    def _all_set_aside(self, topic: TopicShape) -> bool:
        for host in self._cluster.host_list:
            broker = host.broker
            if broker is None or not broker.serving or broker.process.paused or broker.registrar is None:
                return False
            if broker.cache.topic(topic.name) is not None or not broker.registrar.settled:
                return False
            if any(key.topic == topic.name for key in broker.logs.logs):  # a full disk: not set aside yet
                return False
        return True

    def _restore(self) -> None:
        """The API server's store is restored from a copy of some seconds ago, every second time so that versions come
        again (S11).
        """
        api = self._cluster.api
        if not api.up or self._backup is None:
            self._backup = api.backup()
            if self._bumps() < 0.5:
                # Others write, too: what is written from now on may have versions that a restored store does not reach.
                api.version += OTHERS_WRITE
            return
        backup, self._backup = self._backup, None
        api.stop()
        bump = self._bumps() < 0.5
        self._world.trace("user", f"restores the store, {'with new versions' if bump else 'whose versions come again'}")
        api.restore(backup, bump=bump)
        self._cluster.oracles.store_restored(api.objects)
        self._cluster.history.store_went_back = True
        self._cluster.oracles.groups.forgive(generations=True)
        self._world.bite("restore")
        self._world.at(500.0 + self._chance.random() * 2_000.0, None, api.start)
        self._world.at(1_000.0 + self._grows_again() ** 2 * 30_000.0, None, self._grow_again)

    def _delete_records(self) -> None:
        """DeleteRecords, up to some committed offset (KIP-107)."""
        ledger = self._any_ledger()
        driver = None if ledger is None else self._leading(ledger)
        if driver is None:
            return
        log, mark = driver.log, driver.replica.high_watermark
        offset = self._chance.randint(log.start_offset, mark) if mark > log.start_offset else mark
        assert ledger is not None
        ledger.deletable = max(ledger.deletable, offset)

        def answered(effect: DeleteRecordsAnswered) -> None:
            if not effect.error_code and effect.low_watermark < offset:
                raise Violation(
                    "records are deleted", f"low watermark {effect.low_watermark} after deletion to {offset}"
                )
            if effect.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Violation("records are deleted", f"{offset} refused, the high watermark is {mark}")

        broker = driver.partitions.broker
        event = DeleteRecordsRequested(token=answered, offset=offset, deadline_ms=broker.mono_ms() + 5_000.0)
        self._world.at(0.0, broker.process, driver.step, event)
        self._world.bite("delete_records")

    def _stale_patch(self) -> None:
        """A topic is made again while a patch is on its way that was decided when its former object was as new."""
        topic = self._chance.choice(self._cluster.shape.topics)
        if topic.name in self._cluster.api.objects["topics"]:
            self._recreate(topic, 1)
            self._world.at(100.0, None, self._patch_late, topic, self._world.now + 6_000.0)

    def _patch_late(self, topic: TopicShape, until_ms: float) -> None:
        """As soon as a new partition has its first leader, that one gives it away, by a patch that lands late."""
        if self._healed or self._world.now > until_ms:
            return
        for ledger in list(self._cluster.oracles.ledgers.values()):
            entry = ledger.entry
            if ledger.topic != topic.name or entry is None or entry.partition_epoch or not entry.has_leader:
                continue
            if self._leading(ledger) is not None:
                self._cluster.api.late[topic.name] = 2
                self._world.arm("api_delayed_request")
                self._hand_over(ledger)
                self._world.at(20.0 + self._chance.random() * 200.0, None, self._recreate, topic, 1)
                self._world.at(300.0, None, self._in_time, topic)
                return
        self._world.at(20.0, None, self._patch_late, topic, until_ms)

    def _in_time(self, topic: TopicShape) -> None:
        self._cluster.api.late.pop(topic.name, None)

    def _depose(self) -> None:
        """A leader is deposed while its first flush is under way, and cuts its log before that ends (S8)."""
        names = {topic.name for topic in self._cluster.shape.topics}
        ledgers = [
            ledger
            for ledger in self._cluster.oracles.ledgers.values()
            if ledger.topic in names and ledger.entry is not None and len(ledger.entry.isr) > 2
        ]
        if ledgers:
            ledger = self._chance.choice(ledgers)
            if ledger.entry is not None and ledger.entry.leader == ledger.entry.replicas[0]:
                self._hand_over(ledger)
            self._part(ledger, self._world.now + 4_000.0)

    def _part(self, ledger: Ledger, until_ms: float) -> None:
        """Another one leads than the first of the replicas. That one and the leader go on without the others."""
        entry = ledger.entry
        if self._healed or self._world.now > until_ms or entry is None:
            return
        first, leader = entry.replicas[0], entry.leader
        others = [number for number in entry.isr_ids() if number not in {first, leader}]
        if self._leading(ledger) is None or leader == first or first not in entry.isr_ids() or not others:
            self._world.at(50.0, None, self._part, ledger, until_ms)
            return
        self._world.arm("network_cut")
        links = self._cut_off(others, [number for number in self._cluster.hosts if number not in others])
        self._world.at(30.0 + self._chance.random() * 120.0, None, self._lead_a_moment, ledger, first, links)

    def _cut_off(self, some: list[int], rest: list[int]) -> list[Link]:
        network = self._cluster.network
        links = [
            network.link(f"b{a}", f"b{b}") for one in some for other in rest for a, b in ((one, other), (other, one))
        ]
        for link in links:
            link.cut = True
        return links

    def _lead_a_moment(self, ledger: Ledger, first: int, links: list[Link]) -> None:
        """The first one leads, alone, on a disk that is slow; then one of those who lack what it has."""
        if self._healed:
            return
        host = self._cluster.hosts[first]
        host.late_completions += 1
        self._world.at(1_500.0, None, self._hears_soon, host)
        links += self._cut_off([first], [number for number in self._cluster.hosts if number != first])
        self._hand_over(ledger)
        self._pass_on(ledger, host, links, self._world.now + 300.0)

    def _pass_on(self, ledger: Ledger, host: Host, links: list[Link], until_ms: float) -> None:
        driver = self._leading(ledger)
        if driver is not None and driver.partitions.broker.host is host:
            self._hand_over(ledger)
            self._world.bite("depose")
            self._world.at(5.0, None, self._connect_again, host, links)
        elif self._healed or self._world.now > until_ms:
            self._connect_again(host, links)
        else:
            self._world.at(2.0, None, self._pass_on, ledger, host, links, until_ms)

    def _connect_again(self, host: Host, links: list[Link]) -> None:
        """The links carry again; that machine notices at once, the others when their requests time out."""
        self._mend(links)
        broker = host.broker
        if broker is not None and broker.serving and not broker.process.paused:
            for other in self._cluster.hosts:
                self._world.at(0.0, broker.process, broker.partitions.connections_reset, other)

    @staticmethod
    def _mend(links: list[Link]) -> None:
        for link in links:
            link.cut = False

    def _churn(self) -> None:
        """Leaders hand over and are elected anew in quick succession, now and then on a disk that is slow."""
        ledger = self._any_ledger()
        if ledger is None:
            return
        self._world.arm("churn")
        if self._chance.random() < 0.5 and ledger.entry is not None and ledger.entry.has_leader:
            host = self._cluster.hosts[ledger.entry.leader]
            self._slow_down(host, 4_000.0)
        at = 0.0
        for _ in range(self._chance.randrange(2, 6)):
            self._world.at(at, None, self._hand_over, ledger)
            at += self._chance.choice((5.0, 20.0, 100.0, 300.0)) * (0.5 + self._chance.random())
            self._world.at(at, None, self._prefer, ledger)
            at += self._chance.choice((5.0, 20.0, 100.0, 300.0)) * (0.5 + self._chance.random())

    def _hand_over(self, ledger: Ledger) -> None:
        driver = self._leading(ledger)
        if driver is not None:
            self._world.at(0.0, driver.partitions.broker.process, driver.step, HandOver(reason="disk full"))
            self._world.bite("churn")

    def _prefer(self, ledger: Ledger) -> None:
        """The user asks for the preferred leader (ElectLeaders)."""
        self._cluster.annotate(ledger.topic, ANNOTATION_ELECT_PREFERRED, str(ledger.number))

    def _reassign(self) -> None:
        """Another number of replicas, or other brokers for a partition; sometimes the next wish comes at once."""
        topic = self._chance.choice(self._cluster.shape.topics)
        api = self._cluster.api
        obj = api.objects["topics"].get(topic.name)
        if obj is None:
            return
        ids = list(self._cluster.hosts)
        least = int(obj["spec"]["config"]["min.insync.replicas"])
        spec = dict(obj["spec"])
        if self._chance.random() < 0.5:
            spec.pop("replicaAssignment", None)
            spec["replicas"] = self._chance.randint(least, min(len(ids), 5))
        else:
            number = self._chance.randrange(spec["partitions"])
            chosen = self._chance.sample(ids, max(least, min(len(ids), spec["replicas"])))
            spec["replicaAssignment"] = {**spec.get("replicaAssignment", {}), str(number): chosen}
        api.patch("topics", topic.name, [{"op": "replace", "path": "/spec", "value": spec}])
        self._world.bite("reassign")
        if self._chance.random() < 0.3 and not self._healed:
            self._until(1_000.0, self._reassign_again)

    def _reassign_again(self) -> None:
        if not self._healed:
            self._reassign()

    def _flush_config(self) -> None:
        """The user tightens or relaxes `flush.messages`."""
        topic = self._chance.choice(self._cluster.shape.topics)
        obj = self._cluster.api.objects["topics"].get(topic.name)
        if obj is not None and "flush.messages" in topic.config:
            config = {**obj["spec"]["config"], "flush.messages": self._chance.choice(("1", "1000"))}
            self._cluster.api.patch("topics", topic.name, [{"op": "replace", "path": "/spec/config", "value": config}])
            self._world.bite("flush_config")

    def _min_isr(self) -> None:
        topic = self._chance.choice(self._cluster.shape.topics)
        obj = self._cluster.api.objects["topics"].get(topic.name)
        if obj is not None:
            value = str(self._chance.randint(1, obj["spec"]["replicas"]))
            config = {**obj["spec"]["config"], "min.insync.replicas": value}
            self._cluster.api.patch("topics", topic.name, [{"op": "replace", "path": "/spec/config", "value": config}])
            self._world.bite("min_isr")

    def _scale(self) -> None:
        """The user wants fewer brokers, or more again."""
        count = self._chance.randint(2, self._cluster.shape.brokers)
        self._scale_to(count)
        self._world.bite("scale")

    def _scale_to(self, count: int) -> None:
        self._world.trace("user", f"wants {count} brokers")
        api = self._cluster.api
        for name in list(api.objects["clusters"]):  # none while it is made again
            api.patch("clusters", name, [{"op": "replace", "path": "/spec/replicas", "value": count}])

    def _grow(self) -> None:
        topic = self._chance.choice(self._cluster.shape.topics)
        obj = self._cluster.api.objects["topics"].get(topic.name)
        if obj is not None and obj["spec"]["partitions"] < 8:
            more = obj["spec"]["partitions"] + 1
            self._cluster.api.patch(
                "topics", topic.name, [{"op": "replace", "path": "/spec/partitions", "value": more}]
            )
            self._world.bite("grow")
            if self._cluster.shape.faults.get("restore"):
                self._wanted[topic.name] = max(more, self._wanted.get(topic.name, 0))
                for producer in self._cluster.producers:
                    producer.write_also(topic.name, more - 1)

    def _grow_again(self) -> None:
        """Topics have fewer partitions than their users want, since the store went back to before they were added."""
        for name, count in self._wanted.items():
            obj = self._cluster.api.objects["topics"].get(name)
            if obj is not None and obj["spec"]["partitions"] < count:
                self._cluster.api.patch("topics", name, [{"op": "replace", "path": "/spec/partitions", "value": count}])
