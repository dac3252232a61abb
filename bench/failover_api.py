"""The API server hangs under load, once for long or again and again for a short while, and comes back.

Data is to go on, and when it is back nothing is to happen but what was asked for. What goes wrong is counted on both
sides: by brokers (requests answered with an error) and by clients (errors, requests that failed, timed out or had to be
sent again).
"""

from __future__ import annotations

import math
import random
import time
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.failover_lab import HEALED, REPLICAS, WHOLE_LIMIT_S
from kafkalite_core.resources.naming import OPERATOR_LEASE
from kafkalite_runtime.home import API_SERVER
from tests.chaos.cluster import BROKERS, ChaosError
from tests.chaos.launcher import broker_pod
from tests.chaos.metadata_log import TROUBLES

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

    from bench.failover_lab import Lab
    from tests.chaos.cluster import Cluster

RETURN_S = 60.0
SAID_EVERY_S = 30.0
ASKED_EVERY_S = 0.1
FAILED = {
    "failed_produce_requests": "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "failed_fetch_requests": "kafka_server_brokertopicmetrics_failedfetchrequests_total",
}
"""Our names -> the brokers' counters; the sample without labels is that of all topics."""


def without_api(lab: Lab, outages_s: Sequence[float]) -> None:
    """The API server is away so many times, for so many seconds each.

    A pause is the longest time without an acknowledged record of a partition, of all of them the slowest, from the
    beginning of an outage until operator and brokers have renewed their Leases again; the last one's is from its
    beginning until a minute after its end.
    """
    cluster = lab.cluster
    cluster.wait_whole(WHOLE_LIMIT_S)
    cluster.log.sync()
    counts, troubles = cluster.log.counts(), Troubles(lab)
    facts = lab.result.facts
    facts |= {"outages": 0, "acked": 0, "received": 0}
    for number, seconds in enumerate(outages_s, 1):
        time.sleep(random.random())  # a random moment of the renewals of Leases
        back_s = away(lab, seconds)
        facts["outages"] = number
        lab.result.heal_s.append(round(time.monotonic() - back_s, 2))
        if number == len(outages_s):
            made_after(cluster, back_s + WHOLE_LIMIT_S)
            facts["new_topic_in_sync_s"] = round(time.monotonic() - back_s, 2)
            time.sleep(RETURN_S)
            cluster.wait_whole(WHOLE_LIMIT_S)
        lab.load.fault(HEALED, [])
        facts |= troubles.so_far()
    cluster.log.sync()
    facts |= happened(cluster.log.counts() - counts)


def away(lab: Lab, seconds: float) -> float:
    """One outage, until all have renewed their Leases again. Returns when the server came back (monotonic seconds)."""
    load, facts = lab.load, lab.result.facts
    acked, received = load.acks.count, load.received
    instant_s = load.fault("API server away", range(lab.result.partitions))
    with lab.cluster.frozen(API_SERVER):
        while (left_s := instant_s + seconds - time.monotonic()) > 0:
            time.sleep(min(left_s, SAID_EVERY_S))
            lab.say(f"{load.acks.count - acked:,} acknowledged, {load.received - received:,} read without API server")
        facts["acked"] += load.acks.count - acked
        facts["received"] += load.received - received
    back_s, back = time.monotonic(), datetime.now(UTC)
    facts["away_s"] = min(facts.get("away_s", math.inf), round(back_s - instant_s, 1))
    renewed(lab.cluster, back, back_s + WHOLE_LIMIT_S)
    lab.cluster.wait_whole(WHOLE_LIMIT_S)
    return back_s


def renewed(cluster: Cluster, since: datetime, limit_s: float) -> None:
    """Wait until the operator and every broker have renewed their Leases since then. Raises ChaosError."""
    while late := behind(cluster, since):
        if time.monotonic() > limit_s:
            raise ChaosError(f"not renewed since the API server is back: {', '.join(late)}")
        time.sleep(ASKED_EVERY_S)  # a watch would be a client whose own return is measured


def behind(cluster: Cluster, since: datetime) -> list[str]:
    """Leases that were not renewed since then, or why nobody says so."""
    try:
        leases = {each["metadata"]["name"]: each["spec"] for each in cluster.api.list("leases")["items"]}
    except TROUBLES as error:
        return [f"{type(error).__name__}: {error}"]
    names = [OPERATOR_LEASE, *(broker_pod(broker) for broker in range(BROKERS))]
    return [name for name in names if not since < renewal(leases.get(name, {}))]


def renewal(spec: dict[str, Any]) -> datetime:
    """When a Lease was renewed last."""
    said = spec.get("renewTime")
    return datetime.fromisoformat(said) if said else datetime.min.replace(tzinfo=UTC)


def made_after(cluster: Cluster, limit_s: float) -> None:
    """Make a topic and ask until it is in sync: operator, brokers and their watches work again."""
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": "after"}}
    cluster.api.create("kafkalitetopics", {**body, "spec": {"partitions": 3, "replicas": REPLICAS}})
    while time.monotonic() < limit_s:
        status = cluster.api.get("kafkalitetopics", "after").get("status") or {}
        if status.get("inSync") == f"{3 * REPLICAS}/{3 * REPLICAS}":
            return
        time.sleep(ASKED_EVERY_S)
    raise ChaosError("a topic that was made after the API server's return is not in sync")


def happened(changed: Counter[str]) -> dict[str, int]:
    """Elections (of topics that were there), fencings and restarts among what has changed."""
    beginnings = {
        "elections": ("elections/",),
        "fencings": ("fencings/",),
        "restarts": ("incarnations/", "restarts/"),
    }
    return {
        what: sum(number for name, number in changed.items() if name.startswith(begins))
        for what, begins in beginnings.items()
    }


class Troubles:
    """What brokers and clients have counted since this was made."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._before = self._now()

    def so_far(self) -> dict[str, float]:
        """By name: `failed_…` of brokers, `client_…` of clients, `unknown` records that had no answer."""
        return {name: value - self._before[name] for name, value in self._now().items()}

    def _now(self) -> dict[str, float]:
        load = self._lab.load
        ports = self._lab.cluster.ports
        scrapes = [failed(f"http://127.0.0.1:{ports.broker_metrics(broker)}/metrics") for broker in range(BROKERS)]
        return {
            **{name: sum(each[name] for each in scrapes) for name in FAILED},
            "client_errors": sum(load.errors.values()),
            **self._lab.statistics.counts(),
            "unknown": load.acks.unknown,
        }


def failed(url: str) -> dict[str, float]:
    """Requests that a broker has answered with an error so far, by its own counters. Raises as `counters` does."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = counters(answer.read().decode(), FAILED.values())
    return {name: found[counter] for name, counter in FAILED.items()}


def counters(text: str, names: Iterable[str]) -> dict[str, float]:
    """Samples without labels, by name. Raises ChaosError for one that is not there: what nobody counts is not 0."""
    samples = dict(line.rpartition(" ")[::2] for line in text.splitlines() if line and not line.startswith("#"))
    if missing := [name for name in names if name not in samples]:
        raise ChaosError(f"a broker exports no {', '.join(missing)}: what it does not count is not 0")
    return {name: float(samples[name]) for name in names}
