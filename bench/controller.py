"""The operator at scale, on a real API server: etcd, kube-apiserver, two operators, brokers that are only registered.

    python -m bench.controller                        # 1,000 topics of 10 partitions; writes docs/scale.md
    python -m bench.controller --topics 100           # a short one; writes only with --write
    python -m bench.controller --render               # docs/scale.md anew from the last result

Needs the programs of `make kubernetes`. Everything is in one folder below .cache and is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.controller_document import render
from bench.controller_world import CLUSTER, NAMESPACE, Observer, SimulatedBroker, TimeUpError, until
from bench.failover_report import commit
from bench.processes import cpu_s, memory_mb, python_of_images
from kafkalite_core.resources.leases import parse_lease
from kafkalite_core.resources.naming import OPERATOR_LEASE
from kafkalite_local.pytest_plugin import free_ports
from kafkalite_runtime.kube.client import KubeClient
from kafkalite_runtime.kube.kinds import CLUSTERS, LEASES, TOPICS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import Program, StartError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "scale"
RESULT = ROOT / "bench" / "results" / "controller.json"
DOCUMENT = ROOT / "docs" / "scale.md"
OPERATORS = ("one", "two")
CREATIONS_AT_ONCE = 8
QUIET_S = 5.0
SAMPLE_S = 0.25
WRITES = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:7.1f} s  {text}", flush=True)


class Spent:
    """CPU seconds of some processes, from now on."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids, self._began = pids, time.monotonic()
        self._before = {name: cpu_s([pid]) for name, pid in pids.items()}

    def until_now(self) -> dict[str, Any]:
        """Seconds, CPU seconds by process, and how many CPUs there are."""
        used = {name: cpu_s([pid]) - self._before[name] for name, pid in self._pids.items()}
        return {"seconds": time.monotonic() - self._began, "cpu_s": used, "cpus": os.cpu_count() or 1}


class Meter:
    """CPU and the greatest memory of some processes between two moments."""

    def __init__(self, programs: dict[str, Program]) -> None:
        self._pids = {name: program.process.pid for name, program in programs.items()}
        self._peak: dict[str, float] = {}
        self._spent = Spent(self._pids)
        self._sampling = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        while True:
            for name, pid in self._pids.items():
                self._peak[name] = max(self._peak.get(name, 0.0), memory_mb([pid]))
            await asyncio.sleep(SAMPLE_S)

    async def stop(self) -> dict[str, Any]:
        """Seconds, CPU seconds and peak memory by process."""
        self._sampling.cancel()
        await asyncio.gather(self._sampling, return_exceptions=True)
        return {**self._spent.until_now(), "peak_mb": dict(self._peak)}


class Bench:
    """One run. Every wait has a limit."""

    def __init__(self, options: argparse.Namespace, plane: ControlPlane, folder: Path) -> None:
        self.options = options
        self.plane = plane
        self.folder = folder
        self.operators: dict[str, Program] = {}
        self.brokers: list[SimulatedBroker] = []
        self.found: dict[str, Any] = {}

    async def run(self, *, again: bool) -> dict[str, Any]:
        """All phases, one after the other; only as far as the death of a broker when they all were run before."""
        self.client = KubeClient.from_environment({"KUBECONFIG": str(self.plane.kubeconfig)})
        self.observer = Observer(self.client)
        try:
            await self.observer.start()
            await self._begin()
            for phase in (self._place, self._quiet, self._fail) if again else self._phases():
                say(phase.__doc__ or "")
                await phase()
                self.plane.check()
        finally:
            for broker in self.brokers:
                await broker.fall_silent()
            await self.observer.stop()
            await self.client.close()
            for program in self.operators.values():
                program.stop()
        return self.found

    def _phases(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return self._place, self._list, self._rest, self._fail, self._take_over

    async def _begin(self) -> None:
        ports = free_ports()
        python, imported, _ = python_of_images()
        for number, name in enumerate(OPERATORS):
            environment = {
                "KUBECONFIG": str(self.plane.kubeconfig),
                "KAFKALITE_METRICS_PORT": str(ports.broker(number)),
                "POD_NAME": name,
                "PYTHONPATH": imported,
            }
            command = [python, "-c", "from kafkalite_operator.main import main; main()"]
            arguments = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
            self.operators[name] = Program(f"operator {name}", arguments, self.folder / f"{name}.log")
        spec = {
            "replicas": self.options.brokers,
            "listeners": [{"name": "plain", "type": "hostport", "port": 9092, "host": "127.0.0.1"}],
        }
        metadata = {"name": CLUSTER, "namespace": NAMESPACE}
        body = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": metadata, "spec": spec}
        await self.client.create(CLUSTERS, NAMESPACE, body)
        self.brokers = [SimulatedBroker(self.client, number) for number in range(self.options.brokers)]
        await asyncio.gather(*(broker.start() for broker in self.brokers))
        self.lease = await self._lease()
        say(f"{len(self.brokers)} brokers are registered; operator {self.lease.holder} acts")

    async def _lease(self) -> Any:
        return parse_lease(await self.client.get(LEASES, NAMESPACE, OPERATOR_LEASE))

    async def _place(self) -> None:
        """Topics are created and placed."""
        count, limit_s = self.options.topics, self.options.limit_s
        meter, began = Meter(self.operators), time.monotonic()
        free = asyncio.Semaphore(CREATIONS_AT_ONCE)

        async def create(number: int) -> None:
            body = {
                "apiVersion": TOPICS.api_version,
                "kind": TOPICS.kind,
                "metadata": {"name": f"t{number:04d}", "namespace": NAMESPACE},
                "spec": {"partitions": self.options.partitions, "replicas": min(3, self.options.brokers)},
            }
            async with free:
                await self.client.create(TOPICS, NAMESPACE, body, deadline_s=30.0)

        creating = asyncio.gather(*(create(number) for number in range(count)))
        await creating
        created_s = time.monotonic() - began
        say(f"{count} topics created after {created_s:.1f} s; {self.observer.placed()} are placed")
        await until("all topics placed", lambda: self.observer.placed() >= count, limit_s, self._progress)
        placed_s = time.monotonic() - began
        await until("all topics Ready", lambda: self.observer.told() >= count, limit_s, self._progress)
        ready_s = time.monotonic() - began
        used = await meter.stop()
        self.found["place"] = {"created_s": created_s, "placed_s": placed_s, "ready_s": ready_s, **used}
        say(f"placed after {placed_s:.1f} s, all Ready after {ready_s:.1f} s")

    def _progress(self, text: str) -> None:
        for program in self.operators.values():
            program.check()
        say(f"{text}; placed {self.observer.placed()}, ready {self.observer.told()}")

    async def _list(self) -> None:
        """All topics are listed."""
        took: list[float] = []
        for _ in range(5):
            began = time.monotonic()
            listed = await self.client.list(TOPICS, NAMESPACE, deadline_s=60.0)
            took.append(time.monotonic() - began)
        size = sum(len(json.dumps(obj)) for obj in listed.items)
        self.found["list"] = {"s": statistics.median(took), "topics": len(listed.items), "mb": size / 1e6}
        say(f"{len(listed.items)} topics ({size / 1e6:.1f} MB) listed in {statistics.median(took):.2f} s")

    async def _rest(self) -> None:
        """Nothing is left to do: what is written, and what it costs."""
        await self._quiet()
        before, seen = self._writes(), dict(self.observer.changes)
        meter = Meter(self.operators)
        await asyncio.sleep(self.options.rest_s)
        used = await meter.stop()
        after = self._writes()
        written = {
            name: count - before.get(name, 0.0) for name, count in after.items() if count > before.get(name, 0.0)
        }
        changed = {kind: count - seen.get(kind, 0) for kind, count in self.observer.changes.items()}
        self.found["rest"] = {"writes": written, "changes": sum(changed.values()), **used}
        say(f"in {used['seconds']:.0f} s at rest: {written or 'no writes but Leases'}, {used['cpu_s']} CPU s")

    async def _quiet(self) -> None:
        """Nothing more is written."""

        async def settled() -> None:
            while True:
                before = self._writes()
                await asyncio.sleep(QUIET_S)
                if self._writes() == before:
                    return

        try:
            await asyncio.wait_for(settled(), self.options.limit_s)
        except TimeoutError:
            raise TimeUpError("the operator goes on writing") from None

    def _writes(self) -> dict[str, float]:
        """Requests that write, Leases apart, by verb and resource, as the API server counts them."""
        found: dict[str, float] = {}
        for line in self.plane.kubectl("get", "--raw", "/metrics").splitlines():
            if line.startswith("apiserver_request_total{"):
                labels, _, value = line.removeprefix("apiserver_request_total{").rpartition("} ")
                fields = dict(pair.split("=", 1) for pair in labels.replace('"', "").split(",") if "=" in pair)
                if fields.get("verb") in WRITES and fields.get("resource") != "leases":
                    name = f"{fields['verb']} {fields['resource']}"
                    found[name] = found.get(name, 0.0) + float(value)
        return found

    async def _fail(self) -> None:
        """A broker falls silent: everything that it led is led by others."""
        victim = self.brokers[0]
        led = self.observer.led(victim.id)
        meter, silent_at = Meter(self.operators), time.monotonic()
        await victim.fall_silent()
        name, limit_s = f"{CLUSTER}-broker-{victim.id}", self.options.limit_s
        await until("the fence", lambda: name in self.observer.fenced_at, limit_s, self._progress)
        fenced_at = self.observer.fenced_at[name]
        window = Spent({f"operator {each}": p.process.pid for each, p in self.operators.items()} | self._others())
        say(f"broker {victim.id}, leader of {len(led)} partitions, is fenced after {fenced_at - silent_at:.1f} s")
        await until("all led again", lambda: not self.observer.led(victim.id), limit_s, self._progress)
        electing = window.until_now()
        after = sorted(self.observer.led_since[partition] - fenced_at for partition in led)
        await self._quiet()
        self.found["fail"] = {
            "led": len(led),
            "detected_s": fenced_at - silent_at,
            "median_s": statistics.median(after),
            "max_s": after[-1],
            "electing": electing,
            **await meter.stop(),
        }
        say(f"led again after the fence: median {statistics.median(after):.2f} s, last {after[-1]:.2f} s")

    def _others(self) -> dict[str, int]:
        """The other processes that work while leaders are elected, by name."""
        names = ("kube-apiserver", "etcd", "kube-controller-manager")
        return {**{name: self.plane.pid(name) for name in names}, "this program": os.getpid()}

    async def _take_over(self) -> None:
        """The operator that acts is killed: the other one takes over."""
        lease = await self._lease()
        self.found["hands"] = lease.transitions - self.lease.transitions
        acting = next(name for name in OPERATORS if lease.holder.startswith(f"{name}_"))
        say(f"the Lease changed hands {self.found['hands']} times; operator {acting} is killed")
        meter = Meter({name: program for name, program in self.operators.items() if name != acting})
        killed_at = time.monotonic()
        self.operators[acting].process.kill()
        holder = lease.holder
        while holder == lease.holder:
            if time.monotonic() - killed_at > self.options.limit_s:
                raise TimeUpError("nobody took over")
            obj = await self.client.get(CLUSTERS, NAMESPACE, CLUSTER)
            holder = obj["status"]["controller"]["holder"]
            await asyncio.sleep(0.05)
        took_s = time.monotonic() - killed_at
        self.found["take_over"] = {"s": took_s, **await meter.stop()}
        say(f"{holder} controls the cluster {took_s:.1f} s later")


def machine() -> str:
    """What it ran on."""
    model = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model or platform.machine()}), {memory_gb:.0f} GB, {system}"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All runs; the result of the first, and of the others how long the last elections took, and what they cost."""
    load, revision = os.getloadavg()[0], commit()
    found = run(options, again=False)
    again = []
    for number in range(2, options.runs + 1):
        say(f"Run {number} of {options.runs}, on a new control plane.")
        failed = run(options, again=True)["fail"]
        again.append({name: failed[name] for name in ("max_s", "electing")})
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": revision,
        "machine": machine(),
        "python": python_of_images()[2],
        "load": load,
        "topics": options.topics,
        "partitions": options.topics * options.partitions,
        "brokers": options.brokers,
        **found,
        "again": again,
    }


def run(options: argparse.Namespace, *, again: bool) -> dict[str, Any]:
    """One run on a control plane of its own; what it found."""
    WORK.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=WORK))
    plane = ControlPlane(folder / "control-plane", say)
    try:
        plane.start()
        return asyncio.run(Bench(options, plane, folder).run(again=again))
    except (TimeUpError, StartError):
        for name in OPERATORS:
            if (log := folder / f"{name}.log").exists():
                print(
                    f"--- the end of operator {name}'s log", *log.read_text().splitlines()[-15:], sep="\n", flush=True
                )
        raise
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-controller", description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1000, help="default: 1000")
    parser.add_argument("--partitions", type=int, default=10, help="of each topic; default: 10")
    parser.add_argument("--brokers", type=int, default=3, help="simulated; default: 3")
    parser.add_argument("--rest-s", type=float, default=60.0, help="how long to look on at rest; default: 60")
    parser.add_argument("--limit-s", type=float, default=300.0, help="the longest wait for anything; default: 300")
    parser.add_argument("--runs", type=int, default=3, help="in how many of them a broker falls silent; default: 3")
    parser.add_argument("--write", action="store_true", help="write docs/scale.md although there are fewer topics")
    parser.add_argument("--render", action="store_true", help="only write docs/scale.md, from the last result")
    options = parser.parse_args()
    if options.render and not RESULT.exists():
        print(f"bench-controller: no result to write of in {RESULT.relative_to(ROOT)}: measure first", file=sys.stderr)
        return 1
    if not options.render:
        try:
            result = measure(options)
        except (TimeUpError, StartError) as error:
            print(f"bench-controller: {error}", file=sys.stderr)
            return 1
        say(json.dumps(result))
        if options.topics < 1000 and not options.write:
            return 0
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    DOCUMENT.write_text(render(json.loads(RESULT.read_text())))
    say(f"{DOCUMENT.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
