"""The named scenarios: every kind of fault under the workloads it is meant for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.faults import FAULTS
from tests.chaos.workloads import WORKLOADS

if TYPE_CHECKING:
    from random import Random

    from tests.chaos.faults import Fault
    from tests.chaos.workloads import Workload

MODULES = (
    "signal_faults",
    "process_faults",
    "api_faults",
    "disk_faults",
    "network_faults",
    "clock_faults",
    "topic_faults",
)
SAMPLE = {
    "brokers": ("kill-leader/steady", "stop-leader/single", "kill-two/single", "kill-all/rolling"),
    "control plane": ("kill-apiserver-and-leader/single",),
    "API": ("api-lost-answer/single", "api-late-write/single", "api-cut-off-leader/single"),
    "disks": ("power-loss-all/single", "disk-eio/single", "disk-wiped/single", "disk-torn/single"),
    "network": ("net-isolate-leader/single", "net-one-way-out/single"),
}  # fmt: skip
"""Short ones that are known to bite, of which one of each group runs with the ordinary tests."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault under a workload."""

    fault: Fault
    workload: Workload

    @property
    def name(self) -> str:
        """Unique."""
        return f"{self.fault.name}/{self.workload.name}"


def scenarios() -> dict[str, Scenario]:
    """All of them by name."""
    for module in MODULES:
        importlib.import_module(f"tests.chaos.{module}")
    found = [Scenario(fault, WORKLOADS[name]) for fault in FAULTS.values() for name in fault.workloads]
    return {scenario.name: scenario for scenario in found}


def deck(random: Random, names: list[str]) -> list[str]:
    """The names in a random order in which no fault comes twice before every fault came once."""
    by_fault: dict[str, list[str]] = {}
    for name in random.sample(names, len(names)):
        by_fault.setdefault(name.partition("/")[0], []).append(name)
    order: list[str] = []
    while by_fault:
        for fault in random.sample(sorted(by_fault), len(by_fault)):
            order.append(by_fault[fault].pop())
            if not by_fault[fault]:
                del by_fault[fault]
    return order
