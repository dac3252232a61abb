"""The load of a round, in a pod beside the control plane, and what is told to it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import PATIENCE, client_pod
from tests.e2e.load import CLIENT, STARTED_LIMIT_S, Load

if TYPE_CHECKING:
    from tests.chaos.kind.schedule import Workload
    from tests.e2e.cluster import Cluster

SOURCE = Path(__file__).parent / "client" / "traffic.py"
FLOOR = 0.1
"""Of the intended rate, over the whole time of the load, faults included."""
WARM_UP_RECORDS = 300
WARM_UP_LIMIT_S = 120
STOP_LIMIT_S = 120
PROGRESS_LIMIT_S = 240
COPY_LIMIT_S = 120
SETTINGS = {name: value for name, value in CLIENT.items() if name != "debug"}


class PodTraffic(Load):
    """As the load of the e2e tests, with more workloads and a report that names what has to be on every replica."""

    def __init__(self, cluster: Cluster, topic: str, workload: Workload) -> None:
        super().__init__(cluster, topic, partitions=workload.partitions, rate=workload.rate)
        self.workload = workload

    def start(self) -> None:
        settings = {
            "bootstrap": self.cluster.bootstrap, "topic": self.topic, "rate": self.rate, "client": SETTINGS,
            "producers": self.workload.producers, "members": self.workload.members,
        }  # fmt: skip
        self.cluster.apply(client_pod(self.pod, "python3", "-c", SOURCE.read_text(), json.dumps(settings)))
        self.cluster.wait("condition=Ready", f"pod/{self.pod}", limit_s=STARTED_LIMIT_S)
        self.acknowledged(WARM_UP_RECORDS, WARM_UP_LIMIT_S)
        self.settled()

    def settled(self) -> None:
        """Wait until the group, if there is one, has all its members."""
        limit_s = PROGRESS_LIMIT_S * PATIENCE
        self.tell("settled", limit_s, limit_s=limit_s)

    def progress(self) -> None:
        """Wait until every partition acknowledges a record that is sent from now on, and the group is stable."""
        self.served(limit_s=PROGRESS_LIMIT_S)
        self.settled()

    def stop(self) -> dict[str, Any]:
        """What the clients saw; answers, the reader in the load, the group and the final read each have their time."""
        limit_s = STOP_LIMIT_S * PATIENCE
        return self.tell("stop", limit_s, limit_s=4 * limit_s)

    def floor(self, seconds: float) -> int:
        """The acknowledged records without which the round shows nothing."""
        return max(WARM_UP_RECORDS, round(FLOOR * self.rate * seconds))

    def save_histories(self, target: Path) -> None:
        """What the clients wrote down, as an archive."""
        script = "cd /tmp && tar -cf - *.jsonl *.err 2>/dev/null"
        words = [str(self.cluster.kubectl_binary), f"--namespace={self.cluster.namespace}", "exec", self.pod, "--"]
        with target.open("wb") as file:
            subprocess.run(
                [*words, "sh", "-c", script],
                stdout=file, stderr=subprocess.DEVNULL, timeout=COPY_LIMIT_S, check=False, env=self.cluster.environment,
            )  # fmt: skip
