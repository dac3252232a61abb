"""The traffic of a round, in a pod of its own: the clients of `kafkalite verify`, which may be a group as well.

It is told what happens as client/load.py of the e2e tests is, by `load.py tell` in the same container. Besides
    ["coordinator"]      the broker that coordinates the group
    ["hung"]             a broker is about to hang or to be cut off; null
    ["settled", LIMIT_S] wait until the group is stable with all its members, and nobody hangs any more; null
    ["stop", LIMIT_S]    end, read everything once more; what `tests/chaos/kind/judge.py` wants to know
"""

import json
import math
import socketserver
import sys
import time
from pathlib import Path

import load as e2e
import msgspec

from kafkalite_cli.verify.group_load import GroupLoad
from kafkalite_cli.verify.group_report import GroupLimits
from kafkalite_cli.verify.history import Assign, Foreign, read_history
from kafkalite_cli.verify.load import Load

FOLDER = Path("/tmp")
HISTORY = FOLDER / "log.jsonl"
LIMITS = GroupLimits(settle_ms=240_000, stuck_ms=300_000)  # safety and convergence; speed is measured elsewhere


class Traffic:
    def __init__(self, settings):
        bootstrap, topic, rate, producers, members, client = (
            settings[each] for each in ("bootstrap", "topic", "rate", "producers", "members", "client")
        )
        self.members = members
        self.group = None
        if members:
            self.group = GroupLoad(bootstrap, topic, FOLDER, members=members, producers=producers, rate=rate)
            self.log = self.group.log
        else:
            self.log = Load(bootstrap, topic, rate, producers=producers, history=HISTORY,
                            producer_config=client, consumer_config=client)  # fmt: skip
        self.load = self.group or self.log
        self.began = 0.0
        self.hanging = []  # [from, to] in microseconds of the monotonic clock

    def start(self):
        e2e.begin(self.load)
        self.began = time.monotonic()

    def fault(self, name, partitions):
        self.load.fault(name, partitions)

    def count(self):
        return self.log.acks.count

    def acknowledged(self, count, limit_s):
        self.log.wait_acks(self.log.acks.count + count, limit_s)

    def served(self, partitions, limit_s):
        at_us = now_us()
        self.log.acks.watch(at_us, partitions)
        self.log.pauses_after(at_us / 1e6, partitions, limit_s)

    def coordinator(self):
        return int(self.group.describe().coordinator.id)

    def hung(self):
        self.hanging.append([now_us(), math.inf])

    def settled(self, limit_s):
        if self.group:
            self.group.wait_stable(self.members, limit_s)
        for window in self.hanging:
            window[1] = min(window[1], now_us())

    def stop(self, limit_s):
        seconds = round(time.monotonic() - self.began, 1)
        self.load.stop(limit_s)
        if self.group:
            verdict = self.group.verdict(LIMITS)
            report = verdict.log
            told, excused = without_stale_answers(verdict.group, self.hanging)
            counts = {**report.counts, **told.counts}
            examples = [*report.examples, *told.examples]
        else:
            report, excused = self.log.report(), 0
            counts, examples = dict(report.counts), list(report.examples)
        if foreign := self.foreign():
            counts["foreign"] = foreign
        said = {name: getattr(report, name) for name in ("acked", "unknown", "failed", "read", "longest_ack_gap_ms")}
        return msgspec.to_builtins({
            **said, "counts": counts, "examples": [str(each) for each in examples[:10]], "seconds": seconds,
            "highest": dict(self.log.acks.highest), "starts": dict(self.log.starts), "errors": dict(self.log.errors),
            "too_large": self.log.too_large, "unread": sum(self.log.unread.values()), "excused": excused,
        }, str_keys=True)  # fmt: skip

    def foreign(self):
        """Records in the topic that this traffic did not make, those before its first one included."""
        found = 0
        for event in read_history(HISTORY):
            if isinstance(event, Foreign):
                found += 1
            elif isinstance(event, Assign) and event.consumer == 0:
                found += event.offset
        return found


def without_stale_answers(report, hanging):
    """The group's report, without offsets that were told while a broker hung or was cut off; and how many these are.

    Until a coordinator learns of its successor it tells what it knows, as Kafka's does: no commit that it takes then is
    acknowledged. Only what is named can be excused, so more than the report shows of the kind stays what it is.
    """
    kind = "offset-regressed"
    named = [each for each in report.examples if each.kind == kind]
    stale = [each for each in named if any(begin <= each.at_us <= end for begin, end in hanging)]
    if not stale or len(named) != report.counts.get(kind):
        return report, 0
    counts = {**report.counts, kind: len(named) - len(stale)}
    examples = [each for each in report.examples if each not in stale]
    kept = {name: count for name, count in counts.items() if count}
    return msgspec.structs.replace(report, counts=kept, examples=examples), len(stale)


def now_us():
    return time.monotonic_ns() // 1000


def main(settings):
    traffic = Traffic(settings)
    known = ("fault", "count", "acknowledged", "served", "coordinator", "hung", "settled", "stop")

    class Told(socketserver.StreamRequestHandler):
        def handle(self):
            try:
                name, *arguments = json.loads(self.rfile.readline())
                assert name in known, name
                answer = {"answer": getattr(traffic, name)(*arguments)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.wfile.write(json.dumps(answer).encode())

    traffic.start()
    with socketserver.ThreadingUnixStreamServer(e2e.PLACE, Told) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
