"""From the installation of the chart, whose images the nodes have, to the first record that a client's pod has read."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bench.failover_lab import Result
from bench.failover_plots import percentile
from tests.e2e.installation import installed
from tests.e2e.load import topic_object
from tests.e2e.test_first_cluster import end_producing, start_producing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.failover_clauses import Lines
    from tests.e2e.cluster import Cluster

FIRST = "first"
FEWEST, MOST = 3, 5
PARTITIONS = 3
RATE = 200
"""Of tests/e2e/client/produce.py: one record in 5 ms."""
READY_LIMIT_S = 180
TEXT = """\
## First record

From the beginning of `helm install`, in an empty namespace of a cluster whose nodes have the images, without the custom
resource definitions: install (`--wait`), apply a topic, wait until it is Ready, produce from a pod, and read everything
that was acknowledged from a pod. Then all is taken away and done again.
"""


def measured_first(cluster: Cluster, count: int) -> dict[str, Any]:
    """So many installations, 3 at least and 5 at most, or as many as went well; the line for the results."""
    result, began_s = Result(FIRST, RATE, PARTITIONS, {}), time.monotonic()
    facts = result.facts
    facts |= {"installed_s": [], "topic_ready_s": [], "first_record_s": []}
    try:
        for _ in range(min(max(count, FEWEST), MOST)):
            once(cluster, result)
    except Exception as error:  # what was measured until then is kept, and the other kinds go on
        result.problem = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        print(f"  {error}", flush=True)
    result.minutes = round((time.monotonic() - began_s) / 60, 2)
    return asdict(result)


def once(cluster: Cluster, result: Result) -> None:
    """One installation, which is gone afterwards."""
    facts = result.facts
    with installed(cluster) as install_s:
        installed_s = time.monotonic() - install_s
        cluster.apply(topic_object(FIRST, partitions=PARTITIONS))
        cluster.wait("condition=Ready", f"klt/{FIRST}", limit_s=READY_LIMIT_S)
        ready_s = time.monotonic() - install_s
        acknowledged = end_producing(start_producing(cluster, FIRST, topic=FIRST))
        read = cluster.consumed(FIRST)
        first_s = time.monotonic() - install_s
        assert acknowledged, "nothing was acknowledged"
        assert sorted(read) == sorted(acknowledged), f"{len(acknowledged)} acknowledged, {len(read)} read"
        result.acked += len(acknowledged)
        for name, value_s in (("installed_s", installed_s), ("topic_ready_s", ready_s), ("first_record_s", first_s)):
            facts[name].append(round(value_s, 1))
        print(f"  installed after {installed_s:.1f} s, topic {ready_s:.1f} s, record {first_s:.1f} s", flush=True)


def first_records(found: Mapping[str, Lines]) -> str:
    """The section of the page."""
    lines = found.get(FIRST, [])
    if not lines:
        return ""
    rows = [TEXT, "| since the installation began | n | p50 | max |", "|---|---|---|---|"]
    steps = {
        "installed_s": "the chart is installed",
        "topic_ready_s": "the topic is Ready",
        "first_record_s": "its records are read",
    }
    for fact, name in steps.items():
        values = [each for line in lines for each in line["facts"][fact]]
        rows.append(f"| {name} | {len(values)} | {percentile(values, 50):.1f} s | {max(values):.1f} s |")
    return "\n".join([*rows, ""])
