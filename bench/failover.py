"""Client-visible pauses when leaders are killed under load, on the running local cluster (`kafkalite up`).

    python bench/failover.py --signal KILL --kills 10 --rate 2000

Prints every pause, their median and maximum, and the verdict of the history checker; exit code 1 on an anomaly.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from kafkalite_cli.verify.load import Load

KAFKALITE = Path(sys.executable).parent / "kafkalite"
TOPIC = "failover"
MANIFEST = {
    "apiVersion": "kafkalite.io/v1alpha1",
    "kind": "KafkaLiteTopic",
    "metadata": {"name": TOPIC},
    "spec": {"partitions": 6, "replicas": 3, "config": {"min.insync.replicas": "2"}},
}
HEAL_LIMIT_S = 60.0


def kafkalite(*arguments: str, data: str = "") -> str:
    """Run the command line; its standard output."""
    done = subprocess.run([str(KAFKALITE), *arguments], input=data, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kafkalite {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def partitions() -> list[dict]:
    """The topic's partitions once all replicas are in sync."""
    end = time.monotonic() + HEAL_LIMIT_S
    while time.monotonic() < end:
        topics = {
            topic["name"]: topic["partitions"] for topic in json.loads(kafkalite("status", "-o", "json"))["topics"]
        }
        found = topics.get(TOPIC, [])
        if found and all(p["leader"] >= 0 and len(p["isr"]) == len(p["replicas"]) for p in found):
            return found
        time.sleep(0.2)
    sys.exit(f"{TOPIC}: not all replicas are in sync after {HEAL_LIMIT_S:.0f} s")


def pid_of(broker: int) -> int:
    """Process of a broker. The signal is sent from here: starting the command line would count as pause."""
    return next(int(b["pid"]) for b in json.loads(kafkalite("status", "-o", "json"))["brokers"] if b["id"] == broker)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signal", default="KILL", choices=["KILL", "TERM"])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=2000)
    options = parser.parse_args()
    kafkalite("apply", "-f", "-", data=json.dumps(MANIFEST))
    bootstrap = json.loads(kafkalite("status", "-o", "json"))["bootstrap"]
    partitions()
    pauses = []
    with Load(bootstrap, TOPIC, rate=options.rate) as load:
        load.wait_acks(options.rate, timeout_s=30)
        for number in range(options.kills):
            state = partitions()
            leaders = [entry["leader"] for entry in state]
            victim = max(set(leaders), key=leaders.count)
            led = [entry["partition"] for entry in state if entry["leader"] == victim]
            pid = pid_of(victim)
            killed = load.fault(f"SIG{options.signal} broker {victim}", led)
            os.kill(pid, signal.Signals[f"SIG{options.signal}"])
            pauses.append(load.pause_after(killed, led, timeout_s=60))
            print(f"{number + 1:3} broker {victim} partitions {led}: {pauses[-1]:.3f} s", flush=True)
    report = load.report()
    print(
        f"SIG{options.signal} x {len(pauses)} at {options.rate} records/s: "
        f"pause p50 {statistics.median(pauses):.3f} s, max {max(pauses):.3f} s"
    )
    print(f"acknowledged {report.acked}, read {report.read}, anomalies {report.counts or 'none'}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
