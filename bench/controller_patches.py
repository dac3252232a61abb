"""What a patch of a topic's status costs the API server: elections as the operator sends them, and nothing else.

    python -m bench.controller_patches                      # CPU of kube-apiserver and etcd for each patch
    python -m bench.controller_patches --tracked            # of topics with metadata.managedFields
    python -m bench.controller_patches --profile /tmp/cpu   # and a profile: `go tool pprof -top -cum /tmp/cpu`

A development tool; it needs the programs of `make kubernetes`. Everything is in one folder below .cache.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from bench.controller import WORK, say
from bench.controller_world import NAMESPACE
from bench.processes import cpu_s
from kafkalite_core.controller.pacing import LIMITS, Urgency
from kafkalite_core.model.partition import IsrEntry, Partition, PartitionChange, TopicRef
from kafkalite_core.resources import patches
from kafkalite_core.resources.topics import parse_topic
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.kinds import TOPICS
from tests.cluster.control_plane import ControlPlane, programs

CHANGED_EACH = 3  # of ten partitions, what a broker of three leads
MEASURED = ("kube-apiserver", "etcd")


def first(number: int) -> Partition:
    """The entry of a partition as it is placed on three brokers."""
    replicas = tuple((number + offset) % 3 for offset in range(3))
    isr = tuple(IsrEntry(each, 100 + each) for each in replicas)
    return Partition(leader=replicas[0], leader_epoch=0, partition_epoch=0, min_isr=2, replicas=replicas, isr=isr)


def elected(entry: Partition) -> Partition:
    """Another leader, and once without the last one in the ISR."""
    leader = next(each.id for each in entry.isr if each.id != entry.leader)
    isr = tuple(each for each in entry.isr if each.id != entry.leader) if len(entry.isr) > 2 else entry.isr
    return replace(
        entry, leader=leader, leader_epoch=entry.leader_epoch + 1, partition_epoch=entry.partition_epoch + 1, isr=isr
    )


class Bench:
    """Topics, and rounds in which some of their partitions change."""

    def __init__(self, client: KubeClient, options: argparse.Namespace) -> None:
        self.client = client
        self.options = options
        self.topics: dict[str, tuple[TopicRef, dict[int, Partition]]] = {}

    async def make(self, name: str) -> None:
        """A topic with its first status."""
        body = {
            "apiVersion": TOPICS.api_version,
            "kind": TOPICS.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"partitions": self.options.partitions, "replicas": 3},
        }
        made = await self.client.create(TOPICS, NAMESPACE, body, deadline_s=30.0)
        if not self.options.tracked:  # as the operator does
            operations = patches.untracked(made, resource_version=made["metadata"]["resourceVersion"])
            made = await self.client.json_patch(TOPICS, NAMESPACE, name, operations, deadline_s=30.0)
        topic = replace(parse_topic(made).ref, topic_id="A" * 22)
        entries = {number: first(number) for number in range(self.options.partitions)}
        version = made["metadata"]["resourceVersion"]
        operations = patches.first_status(
            topic, entries, resource_version=version, has_status=False, controller_epoch=1
        )
        await self.client.json_patch(TOPICS, NAMESPACE, name, operations, subresource="status", deadline_s=30.0)
        self.topics[name] = (topic, entries)

    async def change(self, name: str) -> None:
        """One compare-and-swap, as the operator's election."""
        topic, entries = self.topics[name]
        changes = {n: PartitionChange(entries[n], elected(entries[n])) for n in list(entries)[:CHANGED_EACH]}
        operations = patches.elections(topic, changes, controller_epoch=1)
        await self.client.json_patch(TOPICS, NAMESPACE, name, operations, subresource="status", deadline_s=30.0)
        entries |= {number: change.proposed for number, change in changes.items()}

    async def all_topics(self, work: str) -> None:
        """`make` or `change` every topic, as many at once as the operator would."""
        free = asyncio.Semaphore(LIMITS[Urgency.ELECTION])

        async def one(name: str) -> None:
            async with free:
                await getattr(self, work)(name)

        await asyncio.gather(*(one(f"t{number:04d}") for number in range(self.options.topics)))

    async def watch(self) -> None:
        """As a broker or an operator does, but for parsing."""
        listed = await self.client.list(TOPICS, NAMESPACE)
        stream = self.client.watch(TOPICS, NAMESPACE, resource_version=listed.resource_version, silence_limit_s=600.0)
        async with aclosing(stream) as events:
            async for _ in events:
                pass


async def measure(plane: ControlPlane, options: argparse.Namespace) -> None:
    """Warm up, then print what the rounds cost."""
    client = KubeClient.from_environment({"KUBECONFIG": str(plane.kubeconfig)})
    pids = {name: plane.pid(name) for name in MEASURED}
    bench = Bench(client, options)
    try:
        await bench.all_topics("make")
        watches = [asyncio.create_task(bench.watch()) for _ in range(options.watches)]
        await bench.all_topics("change")
        profile = take_profile(plane, options) if options.profile else None
        allocated = allocated_bytes(plane)
        before, began = {name: cpu_s([pid]) for name, pid in pids.items()}, time.monotonic()
        for _ in range(options.rounds):
            await bench.all_topics("change")
        took_s, count = time.monotonic() - began, options.rounds * options.topics
        used = {name: 1000 * (cpu_s([pid]) - before[name]) / count for name, pid in pids.items()}
        each = ", ".join(f"{name} {ms:.2f} ms" for name, ms in used.items())
        each_kb = (allocated_bytes(plane) - allocated) / count / 1000
        say(
            f"{count} patches in {took_s:.1f} s ({1000 * took_s / count:.2f} ms); of each: "
            f"{each}, {each_kb:.0f} kB allocated by kube-apiserver"
        )
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        if profile is not None:
            profile.wait(timeout=60)
    finally:
        await client.close()


def allocated_bytes(plane: ControlPlane) -> float:
    """What the API server has allocated since its start: unlike CPU the same on a busy machine."""
    lines = plane.kubectl("get", "--raw", "/metrics").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("go_memstats_alloc_bytes_total "))


def take_profile(plane: ControlPlane, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Begin a CPU profile of the API server."""
    path = f"/debug/pprof/profile?seconds={options.profile_s}"
    command = [str(programs() / "kubectl"), "--kubeconfig", str(plane.kubeconfig), "get", "--raw", path]
    with Path(options.profile).open("wb") as file:
        return subprocess.Popen(command, stdout=file)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.controller_patches", description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=300, help="default: 300")
    parser.add_argument("--partitions", type=int, default=10, help="of each topic; default: 10")
    parser.add_argument("--rounds", type=int, default=3, help="changes of each topic that are measured; default: 3")
    parser.add_argument("--watches", type=int, default=3, help="of all topics, as brokers have them; default: 3")
    parser.add_argument("--tracked", action="store_true", help="leave managedFields, as where somebody uses apply")
    parser.add_argument("--profile", default="", help="write a CPU profile of kube-apiserver to this file")
    parser.add_argument("--profile-s", type=int, default=5, help="its length; default: 5")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=WORK))
    plane = ControlPlane(folder / "control-plane", say)
    try:
        plane.start()
        asyncio.run(measure(plane, options))
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
