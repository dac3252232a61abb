"""How fast the history checker is, and how much memory it takes: writes a good history and judges it, on one core.

    python -m bench.verify_speed                       # 10 million lines, 420 MB in .cache
    python -m bench.verify_speed --operations 1000000

A third of the lines are acknowledgements, a third reads of a consumer, a third the final read; six partitions.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path

from kafkalite_cli.verify.checker import Checker
from kafkalite_cli.verify.history import FINAL_READ, read_history_parts

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS, KEYS, BATCH = 6, 60, 60


def write(path: Path, operations: int) -> None:
    """A history of batches: each is sent, acknowledged and read; at the end everything is read once more."""
    rounds = operations // 3 // BATCH
    with path.open("wb") as file:
        file.write(b'["header",1,"speed","orders",%d,0]\n' % PARTITIONS)
        for consumer in (0, FINAL_READ):
            file.writelines(b'["assign",%d,%d,0,0]\n' % (consumer, partition) for partition in range(PARTITIONS))
        for number in range(rounds):
            file.write(
                b"".join(lines(number, b'["ack",0,%(key)d,%(sequence)d,%(partition)d,%(offset)d,%(sent)d,%(at)d]\n'))
            )
            file.write(b"".join(lines(number, b'["read",0,%(partition)d,%(offset)d,0,%(key)d,%(sequence)d,%(at)d]\n')))
        again = b'["read",%d,%%(partition)d,%%(offset)d,0,%%(key)d,%%(sequence)d,%%(at)d]\n' % FINAL_READ
        for number in range(rounds):
            file.write(b"".join(lines(number, again)))
        end = rounds * BATCH // PARTITIONS
        file.writelines(b'["end",%d,%d,%d,0]\n' % (FINAL_READ, partition, end) for partition in range(PARTITIONS))


def lines(number: int, form: bytes) -> list[bytes]:
    """One batch: a record of each key."""
    return [
        form
        % {
            b"key": key,
            b"sequence": number + 1,
            b"partition": key % PARTITIONS,
            b"offset": number * BATCH // PARTITIONS + key // PARTITIONS,
            b"sent": number * 400 + key,
            b"at": number * 400 + 900 + key,
        }
        for key in range(KEYS)
    ]


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000_000)
    options = parser.parse_args()
    path = ROOT / ".cache" / "verify-speed.jsonl"
    path.parent.mkdir(exist_ok=True)
    try:
        write(path, options.operations)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        size_mb, began_s, cpu_s = path.stat().st_size / 1e6, time.perf_counter(), time.process_time()
        checker = Checker()
        for part in read_history_parts(path):
            checker.feed(part)
        report = checker.report()
        took_s, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    finally:
        path.unlink(missing_ok=True)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{report.operations:,} operations ({size_mb:,.0f} MB) in {took_s:.1f} s on one core ({used_s:.1f} s of CPU), "
        f"{report.operations / took_s:,.0f} per second, {memory_mb:,.0f} MB of memory; "
        f"anomalies: {report.counts or 'none'}"
    )
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
