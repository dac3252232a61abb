"""A SparkApplication, submitted with kubectl, proves a topic whole on the cluster: Kubeflow's operator runs it as it is.

It takes images that `make spark-images` builds, so it is run where KAFKALITE_E2E_SPARK=1 says that they are there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.cluster import PATIENCE, ROOT, image
from tests.e2e.installation import delete_definitions
from tests.e2e.load import topic_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

RECORDS = 20_000
OPERATOR = "spark-operator"
JOB_LIMIT_S = 600
COMPACTION_LIMIT_S = 120
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "65536", "min.cleanable.dirty.ratio": "0.01"}
PRODUCE = """
import sys
from confluent_kafka import Producer
failed = []
# a batch has to fit into a segment of the topic that is compacted
producer = Producer({"bootstrap.servers": sys.argv[1], "enable.idempotence": True, "linger.ms": 5, "batch.size": 16384,
                     "socket.connection.setup.timeout.ms": 5000})
for number in range(int(sys.argv[3])):
    key = sys.argv[4] and (sys.argv[4] if number else "first")
    producer.produce(sys.argv[2], key=key or None, value=b"%d" % number,
                     on_delivery=lambda error, _: error and failed.append(error))
    producer.poll(0)
print(producer.flush(60), len(failed), *failed[:1])
"""

pytestmark = [
    pytest.mark.timeout(1200 * PATIENCE),
    pytest.mark.skipif(
        os.environ.get("KAFKALITE_E2E_SPARK") != "1", reason="make spark-images, then KAFKALITE_E2E_SPARK=1"
    ),
]


def make_topic(cluster: Cluster, name: str, records: int, key: str = "", **config: str) -> None:
    """A topic with records in all of its partitions; with a `key`, which all but the first have, in one."""
    body = topic_object(name, partitions=1 if key else 3)
    body["spec"]["config"].update(config)
    cluster.apply(body)
    cluster.wait("condition=Ready", f"klt/{name}", limit_s=180)
    producer = cluster.start("client", "python3", "-c", PRODUCE, cluster.bootstrap, name, str(records), key)
    said, _ = producer.communicate(timeout=180 * PATIENCE)
    assert said == "0 0\n"


@pytest.fixture(scope="module")
def spark_operator(cluster: Cluster, release: float) -> Iterator[None]:
    """Kubeflow's operator by its own chart, which its Go module holds."""
    script = ROOT / "tools" / "spark-operator" / "module.sh"
    module = Path(subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    registry, _, name = image("kafkalite.io/spark-operator").partition("/")
    cluster.helm("install", OPERATOR, str(module / "charts" / "spark-operator-chart"), "--wait", f"--timeout={240 * PATIENCE:.0f}s",
                 f"--set=image.registry={registry}", f"--set=image.repository={name}", "--set=image.tag=1",
                 "--set=webhook.enable=false", "--set=prometheus.metrics.enable=false",
                 f"--set=spark.jobNamespaces={{{cluster.namespace}}}", limit_s=240 * PATIENCE + 60)  # fmt: skip
    yield
    cluster.kubectl("delete", "sparkapplications", "--all", limit_s=120)
    cluster.helm("uninstall", OPERATOR)
    crds = [name.partition("/")[2] for name in cluster.kubectl("get", "crd", "--output=name").split()]
    delete_definitions(cluster, [name for name in crds if name.endswith(".sparkoperator.k8s.io")])


def submit(cluster: Cluster, topic: str) -> str:
    """The audit of a topic; returns the name of its SparkApplication."""
    manifest = yaml.safe_load((ROOT / "spark_app" / "sparkapplication-audit.yaml").read_text())
    manifest["metadata"]["name"] += f"-{topic}"
    manifest["spec"]["image"] = image(manifest["spec"]["image"])
    manifest["spec"]["arguments"][-1] = topic
    cluster.apply(manifest)
    return f"sparkapplication/{manifest['metadata']['name']}"


@dataclass(frozen=True)
class Ended:
    """A SparkApplication that is over: its state, why, what the driver printed, and after how long."""

    state: str
    reason: str
    said: str
    took_s: float

    @property
    def verdict(self) -> list[str]:
        return re.findall(r"^(?:OK|BROKEN|error): .*$", self.said, re.MULTILINE)


def ended(cluster: Cluster, name: str) -> Ended:
    """Wait for the end of a job."""

    def status() -> dict[str, Any]:
        return cluster.get(name).get("status", {})

    def state() -> dict[str, str]:
        return status().get("applicationState", {})

    over = {"COMPLETED", "FAILED", "SUBMISSION_FAILED"}
    took_s = cluster.until(lambda: state().get("state") in over, f"{name} is over", JOB_LIMIT_S)
    driver = status().get("driverInfo", {}).get("podName", "")
    said = cluster.kubectl("logs", driver) if driver else cluster.story()
    return Ended(state()["state"], state().get("errorMessage", ""), said, took_s)


def test_an_audit_of_a_topic_completes_and_finds_it_whole(cluster: Cluster, spark_operator: None):
    make_topic(cluster, "audited", RECORDS)
    job = ended(cluster, submit(cluster, "audited"))
    assert job.state == "COMPLETED", job
    print(f"audit of {RECORDS} records: {job.took_s:.1f} s from kubectl apply", file=sys.stderr)
    assert job.verdict == [f"OK: audited: 3 partitions, {RECORDS:,} records, 0 missing, 0 duplicated, 0 out of order"]


def test_audits_of_what_is_not_whole_fail_and_say_why(cluster: Cluster, spark_operator: None):
    """A topic from which compaction has taken records, and one that does not exist."""
    make_topic(cluster, "gaps", RECORDS, "same", **COMPACTED)
    cluster.until(lambda: len(cluster.consumed("gaps")) < RECORDS, "compaction has removed records", COMPACTION_LIMIT_S)
    jobs = {topic: submit(cluster, topic) for topic in ("gaps", "absent")}
    gaps, absent = (ended(cluster, jobs[topic]) for topic in ("gaps", "absent"))
    assert (gaps.state, absent.state) == ("FAILED", "FAILED"), (gaps, absent)
    assert "ExitCode: 1" in gaps.reason
    [found] = [
        re.fullmatch(r"BROKEN: gaps: 1 partitions, ([0-9,]+) records, ([0-9,]+) missing, 0 d.*", each)
        for each in gaps.verdict
    ]
    assert found is not None, gaps.verdict
    records, missing = (int(number.replace(",", "")) for number in found.groups())
    assert missing > 0
    assert records + missing == RECORDS
    assert "ExitCode: 2" in absent.reason
    assert absent.verdict == ["error: topic absent does not exist on kafkalite-bootstrap:9092"]
