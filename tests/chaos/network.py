"""A network of its own for a scenario: every broker has a host, the control plane and the clients share another.

Five network namespaces: one per broker, one for everybody else, and one with the bridge that joins them, where what is
to be dropped is dropped. Nothing is changed outside of them. The process that runs the scenario moves into the hosts'
namespace, and with it all that it starts; a broker's launcher moves its process into its own.

A broker listens on its own address: its launcher gives it a copy of its configuration with that instead of the
loopback. The API server listens on the loopback, so brokers reach it by way of the proxy.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.cleanup import namespace_tag
from tests.chaos.cluster import BROKERS, ChaosError
from tests.chaos.disks import command
from tests.chaos.launcher import broker_pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalite_runtime.home import Ports
    from tests.chaos.launcher import Launcher

CLONE_NEWNET = 0x40000000
SUBNET = "10.77.7"
EVERYBODY = f"{SUBNET}.1"
TABLE = "chaos"


def address(broker: int) -> str:
    """Of a broker's host."""
    return f"{SUBNET}.{10 + broker}"


@dataclass(frozen=True, slots=True)
class Drop:
    """What happens to packets from one address to another: dropped, or `percent` of them."""

    source: str
    target: str
    percent: int = 100

    def text(self) -> str:
        """As a rule of nftables."""
        chance = "" if self.percent == 100 else f"numgen random mod 100 < {self.percent} "
        return f"ip saddr {self.source} ip daddr {self.target} {chance}counter drop"


def ruleset(drops: Sequence[Drop]) -> str:
    """The input of `nft -f` that puts exactly these rules in force."""
    lines = [f"table bridge {TABLE} {{}}", f"delete table bridge {TABLE}", f"table bridge {TABLE} {{"]
    lines += ["  chain forward {", "    type filter hook forward priority 0; policy accept;"]
    lines += [f"    {drop.text()}" for drop in drops]
    return "\n".join([*lines, "  }", "}", ""])


def between(ones: Sequence[str], others: Sequence[str]) -> list[Drop]:
    """Nothing passes between these and those, in either direction."""
    return [drop for one in ones for other in others for drop in (Drop(one, other), Drop(other, one))]


def packets(document: str) -> int:
    """How many packets the counters of `nft -j list table` have seen."""
    rules = [entry["rule"] for entry in json.loads(document)["nftables"] if "rule" in entry]
    return sum(part["counter"]["packets"] for rule in rules for part in rule["expr"] if "counter" in part)


@dataclass(slots=True)
class Dropped:
    """Packets that were dropped, known when the rules are gone again."""

    packets: int = 0


@dataclass(slots=True)
class Network:
    """The namespaces of one scenario."""

    folder: Path
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        self.tag = namespace_tag(self.folder)

    @property
    def switch(self) -> str:
        """Namespace of the bridge."""
        return f"{self.tag}-s"

    def name(self, host: str) -> str:
        """Namespace of a host: `h`, or a broker's id."""
        return f"{self.tag}-{host}"

    def broker_host(self, broker: int) -> str:
        """Address of a broker."""
        return address(broker)

    def make(self) -> None:
        """Make the namespaces and move this process into the one of everybody. Raises ChaosError."""
        if os.geteuid() != 0:
            raise ChaosError("network namespaces need root")
        command("nft", "--version")
        command("ip", "netns", "add", self.switch)
        command("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for host, where in [("h", EVERYBODY), *((str(n), address(n)) for n in range(BROKERS))]:
            self._host(host, where)
        enter(self.name("h"))

    def _host(self, host: str, where: str) -> None:
        name = self.name(host)
        command("ip", "netns", "add", name)
        command("ip", "-n", self.switch, "link", "add", f"p{host}", "type", "veth", "peer", "name", "e0", "netns", name)
        command("ip", "-n", self.switch, "link", "set", f"p{host}", "master", "bridge", "up")
        command("ip", "-n", name, "address", "add", f"{where}/24", "dev", "e0")
        for device in ("lo", "e0"):
            command("ip", "-n", name, "link", "set", device, "up")

    def lines_for(self, broker: int, launcher: Launcher) -> list[str]:
        """Shell with which a broker starts on its own host."""
        config = launcher.folder / "settings" / f"{broker_pod(broker)}.json"
        loopback, own = '"host": "127.0.0.1"', f'"host": "{address(broker)}"'
        return [
            f"sed 's/{loopback}/{own}/' \"$KAFKALITE_CONFIG\" > '{config}'",
            f"export KAFKALITE_CONFIG='{config}'",
            f"prefix='nsenter --net=/run/netns/{self.name(str(broker))}'",
        ]

    def forwards(self, ports: Ports) -> tuple[str, ...]:
        """For the proxy: the kubelet probes the loopback, and the brokers are elsewhere."""
        pairs = [(ports.broker_metrics(n), address(n)) for n in range(BROKERS)]
        return tuple(f"{port}:{host}:{port}" for port, host in pairs)

    # --- faults

    @contextmanager
    def drops(self, drops: Sequence[Drop]) -> Iterator[Dropped]:
        """These packets are dropped for the body."""
        dropped = Dropped()
        self._nft(ruleset(drops))
        try:
            yield dropped
        finally:
            dropped.packets = packets(self._in_switch("nft", "-j", "list", "table", "bridge", TABLE))
            self._nft(ruleset([]))

    @contextmanager
    def narrow(self, broker: int, rate: str) -> Iterator[Dropped]:
        """A broker sends and receives no faster than this for the body; packets that had to wait are counted."""
        dropped = Dropped()
        places = [(self.name(str(broker)), "e0"), (self.switch, f"p{broker}")]
        shape = ("root", "tbf", "rate", rate, "burst", "16kb", "latency", "300ms")
        try:
            for name, device in places:
                command("tc", "-n", name, "qdisc", "replace", "dev", device, *shape)
            yield dropped
        finally:
            for name, device in places:
                shown = json.loads(command("tc", "-n", name, "-s", "-j", "qdisc", "show", "dev", device))
                dropped.packets += sum(each.get("overlimits", 0) for each in shown)
                command("tc", "-n", name, "qdisc", "del", "dev", device, "root")

    def _in_switch(self, *words: str) -> str:
        return command("nsenter", f"--net=/run/netns/{self.switch}", *words)

    def _nft(self, text: str) -> None:
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.switch}", "nft", "-f", "-"],
            input=text,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode != 0:
            raise ChaosError(f"nft: {done.stderr.strip()}")


def enter(namespace: str) -> None:
    """Move this thread, and what it starts from now on, into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise ChaosError(f"setns {namespace}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)
