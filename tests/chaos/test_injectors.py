"""Each way to harm a machine really harms it, and is gone afterwards. Needs root, nftables and a C compiler."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos import cleanup
from tests.chaos.clock_faults import Clocks
from tests.chaos.disks import CANARY, UNFLUSHED, Disk, command
from tests.chaos.network import Network

MIB = 1 << 20

# One after another in a process of its own: entering a namespace changes the process that does it.
ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 5000))
    print("bound", flush=True)
    while True:
        data, peer = s.recvfrom(100)
        s.sendto(data, peer)
"""
CHECK = """
import socket, sys
from pathlib import Path
from tests.chaos.network import EVERYBODY, Drop, Network, address, between
network = Network(Path(sys.argv[1]))
network.make()
import subprocess
echo = subprocess.Popen(
    ["nsenter", f"--net=/run/netns/{network.name('1')}", sys.executable, "-c", sys.argv[2], address(1)],
    stdout=subprocess.PIPE,
)
assert echo.stdout.readline() == b"bound\\n"
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.bind((EVERYBODY, 0))
client.settimeout(0.5)

def answered():
    client.sendto(b"hello", (address(1), 5000))
    try:
        return client.recv(100) == b"hello"
    except TimeoutError:
        return False

try:
    print("before", answered())
    with network.drops([Drop(address(1), EVERYBODY)]) as one_way:
        print("one way", answered())
    print("dropped", one_way.packets)
    print("healed", answered())
    with network.drops([Drop(address(0), EVERYBODY)]) as elsewhere:
        print("elsewhere", answered())
    print("dropped", elsewhere.packets)
    with network.narrow(1, "1mbit") as narrow:
        for _ in range(60):
            client.sendto(bytes(1400), (address(1), 5000))
    print("waited", narrow.packets > 0)
finally:
    echo.kill()
    echo.wait()
"""


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    cleanup.clean(tmp_path)
    assert cleanup.leftovers(tmp_path) == []


@pytest.fixture
def disk(folder):
    made = Disk(folder / "disks" / "0", folder / "home" / "volumes" / "data")
    made.make()
    return made


def test_packets_are_dropped_in_the_direction_that_is_named_and_no_longer_than_asked(folder):
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(folder), ECHO],
        capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ, PYTHONPATH=str(Path.cwd())),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert said == [
        ["before", "True"], ["one way", "False"], ["dropped", "1"], ["healed", "True"], ["elsewhere", "True"],
        ["dropped", "0"], ["waited", "True"],
    ]  # fmt: skip


def test_a_power_failure_takes_what_was_not_flushed_and_nothing_else(disk):
    flushed = disk.mount / "flushed"
    with flushed.open("wb") as file:
        file.write(b"kept")
        file.flush()
        os.fsync(file.fileno())
    unflushed = disk.mount / "unflushed"
    unflushed.write_bytes(b"lost")
    disk.fail_power()
    with pytest.raises(OSError, match="Input/output error"):
        (disk.mount / "after").write_bytes(b"never")
    disk.detach()
    disk.attach()
    assert flushed.read_bytes() == b"kept"
    assert not unflushed.exists() or unflushed.stat().st_size == 0
    assert disk.lost()


def test_a_disk_whose_power_did_not_fail_lost_nothing(disk):
    (disk.mount / CANARY).write_bytes(UNFLUSHED)
    disk.detach()
    disk.attach()
    assert not disk.lost()


def test_a_full_disk_takes_nothing_until_it_has_space_again(disk):
    path = disk.mount / "file"
    with disk.full(), pytest.raises(OSError, match="No space left"):
        path.write_bytes(bytes(MIB))
    path.write_bytes(bytes(MIB))


def test_a_failing_device_accepts_writes_and_fails_the_flush(disk):
    with disk.failing(), (disk.mount / "file").open("wb", buffering=0) as file:
        for _ in range(20):
            file.write(os.urandom(MIB))
            try:
                os.fsync(file.fileno())
            except OSError as error:
                failed = error.errno
                break
        else:
            failed = 0
    assert failed in {errno.EIO, errno.ENOSPC, errno.EROFS}
    disk.repair()
    (disk.mount / "after").write_bytes(bytes(MIB))


def test_a_frozen_disk_hangs_a_writer_until_it_thaws(disk):
    script = "import os, sys; f = open(sys.argv[1], 'wb'); f.write(b'x'); f.flush(); os.fsync(f.fileno())"
    with disk.frozen():
        writer = subprocess.Popen([sys.executable, "-c", script, str(disk.mount / "file")])
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(1)
    assert writer.wait(10) == 0


def test_a_throttled_disk_is_slow_for_so_long(disk):
    quick_s = disk.flush_s()
    with disk.slow(100_000, 10):
        disk.flush_s()
        slow_s = disk.flush_s()
    assert slow_s > max(0.2, 3 * quick_s)
    assert disk.flush_s() < slow_s


def test_the_wall_clock_of_a_running_process_jumps_and_its_monotonic_time_does_not(folder):
    clocks = Clocks(folder)
    program = (
        "import sys, time; print(time.time(), time.monotonic(), flush=True); sys.stdin.readline(); "
        "time.sleep(1.2); print(time.time(), time.monotonic(), flush=True)"
    )
    script = "\n".join([*clocks.lines_for("broker-2"), f"exec '{sys.executable}' -c '{program}'"])
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wall, monotonic = map(float, process.stdout.readline().split())
        clocks.set("broker-2", 7200)
        process.stdin.write("\n")
        process.stdin.flush()
        wall_after, monotonic_after = map(float, process.stdout.readline().split())
    assert 7200 < wall_after - wall < 7260
    assert 1 < monotonic_after - monotonic < 60


def test_cleaning_up_finds_what_a_killed_run_left(folder, disk):
    """The device is mounted and frozen, namespaces are there, and nobody who made them is left."""
    command("fsfreeze", "-f", str(disk.mount))
    command("ip", "netns", "add", Network(folder).name("0"))
    began = time.monotonic()
    assert len(cleanup.leftovers(folder)) >= 3
    cleanup.clean(folder)
    assert cleanup.leftovers(folder) == []
    assert time.monotonic() - began < 60
