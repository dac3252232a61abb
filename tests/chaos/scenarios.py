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
    "brokers": (
        "kill-leader/steady", "kill-follower/single", "kill-two/single", "kill-all/rolling", "kill-long/single", "flap/single",
        "stop-leader/single", "stop-follower/single", "stop-two/single", "term-leader/single", "term-follower/single",
        "term-two/single",
    ),
    "control plane, clocks, topics": (
        "kill-apiserver-and-leader/single", "kill-control-plane/steady", "kill-kubelet-and-leader/steady",
        "kill-operator-and-leader/single", "kill-apiserver/steady", "stop-apiserver-kill-follower/single",
        "stop-operator-kill-leader/steady", "stop-kubelet-kill-leader/single", "stop-supervisor-kill-apiserver/steady",
        "term-apiserver/churn", "term-kubelet/single", "term-operator/steady", "term-supervisor/steady",
        "clock-jump-and-kill/steady", "clock-operator/steady", "topic-recreated-and-killed/steady",
    ),
    "API": (
        "api-lost-answer/single", "api-late-write/single", "api-cut-off-leader/single", "api-cut-off-operator/steady",
        "api-429/steady", "api-500/single", "api-cut/steady", "api-duplicate/single", "api-gone/steady",
        "api-latency/steady", "api-slow-watch/steady", "api-stall/steady",
    ),
    "disks": (
        "power-loss-all/single", "power-loss-leader/single", "power-loss-two/single", "disk-eio/single",
        "disk-flush-fails/single", "disk-slow/steady", "disk-wiped/single", "disk-wiped-and-killed/single",
        "disk-torn/single",
    ),
    "network": (
        "net-isolate-leader/single", "net-isolate-follower/single", "net-isolate-and-kill/single",
        "net-one-way-out/single", "net-one-way-in/single", "net-brokers-apart/single", "net-not-transitive/single",
        "net-narrow/steady",
    ),
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
