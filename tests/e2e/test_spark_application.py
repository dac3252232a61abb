"""A SparkApplication, submitted with kubectl, proves a topic whole on the cluster: Kubeflow's operator runs it as it is.

It takes images that `make spark-images` builds, so it is run where KAFKALITE_E2E_SPARK=1 says that they are there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.cluster import PATIENCE, ROOT, image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

TOPIC = "audited"
RECORDS = 20_000
OPERATOR = "spark-operator"
PRODUCE = """
import sys
from confluent_kafka import Producer
failed = []
producer = Producer({"bootstrap.servers": sys.argv[1], "enable.idempotence": True, "linger.ms": 5})
for number in range(int(sys.argv[3])):
    producer.produce(sys.argv[2], value=b"%d" % number, on_delivery=lambda error, _: error and failed.append(error))
    producer.poll(0)
print(producer.flush(60), len(failed))
"""

pytestmark = [
    pytest.mark.timeout(1200 * PATIENCE),
    pytest.mark.skipif(
        os.environ.get("KAFKALITE_E2E_SPARK") != "1", reason="make spark-images, then KAFKALITE_E2E_SPARK=1"
    ),
]


@pytest.fixture(scope="module")
def topic(cluster: Cluster, release: float) -> str:
    """A topic with records in all of its partitions."""
    spec = {"partitions": 3, "replicas": 3, "config": {"min.insync.replicas": "2"}}
    body = {"apiVersion": "kafkalite.io/v1alpha1", "kind": "KafkaLiteTopic", "metadata": {"name": TOPIC}, "spec": spec}
    cluster.apply(body)
    cluster.wait("condition=Ready", f"klt/{TOPIC}", limit_s=180)
    producer = cluster.start("client", "python3", "-c", PRODUCE, cluster.bootstrap, TOPIC, str(RECORDS))
    said, _ = producer.communicate(timeout=180 * PATIENCE)
    assert said.split() == ["0", "0"]
    return TOPIC


@pytest.fixture(scope="module")
def spark_operator(cluster: Cluster, release: float) -> Iterator[None]:
    """Kubeflow's operator by its own chart, which its Go module holds."""
    script = ROOT / "tools" / "spark-operator" / "module.sh"
    module = Path(subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    registry, _, name = image("kafkalite.io/spark-operator").partition("/")
    cluster.helm("install", OPERATOR, str(module / "charts" / "spark-operator-chart"), "--wait", "--timeout=4m",
                 f"--set=image.registry={registry}", f"--set=image.repository={name}", "--set=image.tag=1",
                 "--set=webhook.enable=false", "--set=prometheus.metrics.enable=false",
                 f"--set=spark.jobNamespaces={{{cluster.namespace}}}")  # fmt: skip
    yield
    cluster.kubectl("delete", "sparkapplications", "--all", limit_s=120)
    cluster.helm("uninstall", OPERATOR)
    crds = cluster.kubectl("get", "crd", "--output=name").split()
    cluster.kubectl("delete", *(each for each in crds if each.endswith(".sparkoperator.k8s.io")), limit_s=120)


def test_an_audit_of_a_topic_completes_and_finds_it_whole(cluster: Cluster, topic: str, spark_operator: None):
    manifest = yaml.safe_load((ROOT / "spark_app" / "sparkapplication-audit.yaml").read_text())
    manifest["spec"]["image"] = image(manifest["spec"]["image"])
    manifest["spec"]["arguments"][-1] = topic
    cluster.apply(manifest)
    name = f"sparkapplication/{manifest['metadata']['name']}"

    def state() -> str:
        return cluster.get(name).get("status", {}).get("applicationState", {}).get("state", "")

    took = cluster.until(lambda: state() in {"COMPLETED", "FAILED", "SUBMISSION_FAILED"}, "the job is over", 600)
    driver = cluster.get(name)["status"].get("driverInfo", {}).get("podName", "")
    said = cluster.kubectl("logs", driver) if driver else cluster.story()
    assert state() == "COMPLETED", said
    print(f"audit of {RECORDS} records: {took:.1f} s from kubectl apply", file=sys.stderr)
    [verdict] = re.findall(r"^(?:OK|BROKEN): .*$", said, re.MULTILINE)
    assert verdict == (f"OK: {topic}: 3 partitions, {RECORDS:,} records, 0 missing, 0 duplicated, 0 out of order")
