"""docs/scale.md from the result of a run."""

from __future__ import annotations

from typing import Any

TARGET_S = 5.0
TEXT = """# The operator at scale

Written by `make bench-controller` (`bench/controller.py`): {topics:,} topics with {partitions:,} partitions on etcd and
kube-apiserver, {brokers} brokers that are only registered and renew their Leases, two operators of which one stands by.
All of it, and the program that measures, share one machine.

| | |
|---|---|
| when, commit | {when}, `{commit}` |
| machine | {machine}; load before: {load:.1f} |
| the operators run with Python | {python} |

| what | measured |
|---|---|
| create the topics, eight at a time | {created_s:.1f} s |
| all of them placed, since the first was created | {placed_s:.1f} s |
| all of them say Ready | {ready_s:.1f} s |
| list all topics ({mb:.1f} MB) | {list_s:.2f} s |
| writes in {rest_s:.0f} s with nothing to do, Leases apart | {writes} |
| a broker falls silent: fenced after (its Lease lasts 5 s) | {detected_s:.1f} s |
| its {led:,} leaderships are elsewhere, after the fence | median {median_s:.2f} s, last {max_s:.2f} s |
| the last of them in all {runs} runs, each on a control plane of its own | {lasts}{target} |
| CPU seconds of all processes from the fence to that, run by run | {costs} |
| the Lease of the operators changed hands meanwhile | {hands} times |
| the operator that acts is killed: the other controls the cluster after | {take_over_s:.1f} s |

| the operators | CPU seconds: acts, stands by | greatest memory: acts, stands by |
|---|---|---|
| while topics are created and placed, {place_s:.0f} s | {place_cpu} | {place_mb} |
| at rest, {rest_s:.0f} s | {rest_cpu} | {rest_mb} |
| from the silence of a broker until all is told, {fail_s:.0f} s | {fail_cpu} | {fail_mb} |

From the fence to the last of these elections, {electing_s:.1f} s, the {cpus} CPUs could give {given_s:.1f} s, and
{used_s:.1f} s were used: {electing}. So on this machine it takes {least_s:.1f} s at least.

## Why it stays calm

- **A plan costs what changed.** `plan` is given the memory of earlier plans (`core/…/controller/at_rest.py`): a topic
  whose object, brokers and cluster are as they were is not looked at again, whether nothing had to be done or its
  action waits for its turn. A property test compares every plan with one that remembers nothing.
- **Bursts are planned once.** After a round the controller rests for four times as long, ¾ s at most, and for ¾ s
  while something planned waits for its turn. It plans at once when the last of that has begun, and for what fences and
  elections follow from (brokers, pods, the cluster, a refused election; Leases, but while elections are under way only
  if somebody is to be fenced).
- **Elections go alone.** A patch that elects leaders changes no other entry of the topic. Whoever is gone leaves the
  ISRs of the other partitions by a patch of their leaders, which see it at the same moment; in one patch with that the
  elections would be refused, and they would cost the API server half as much again. What leaders leave comes after.
- **What goes out is bounded.** Fewer than 6 actions are under way when one more condition is written, 12 for a
  placement or a move, 40 for an election: a thousand new topics do not hold an election up
  (`core/…/controller/pacing.py`). Looks at what belongs to clusters have 12 turns of their own, first come, first
  served, and those that read nodes 4 others. While elections are under way Events wait, and the brokers are read for
  the next plan. One compare-and-swap is one line in the log, however many partitions it changes.
- **A write is cheap for the API server.** It judges a patch with all entries of the topic, changed or not: the CEL
  rules are two for an entry and one for the status, and read `self` without its schema, which made up most of their
  price (`python -m bench.controller_patches`: CPU and memory of a patch). Members of ISRs are two lists of numbers: an
  object for each of them was 13 % of the CPU ([decision 018](decisions/018-members-are-two-lists-of-numbers.md)).
- **Nobody is asked who wrote which field.** For `metadata.managedFields` the API server compares all fields of a topic
  with those before at every write: a fifth of its CPU for a patch, 12 % of the memory (`--tracked` measures with them).
  The operator removes them once, before a topic's first status; the server keeps none from then on, unless somebody
  uses server-side apply ([what that means for tools](operations.md#who-wrote-a-field)).
- **kopf hands over and keeps nothing.** It stores nothing to compare an object with, so it does not copy every object
  of every event; most events are of the controller's own patches, whose answers it knows already.
- **Python looks for cycles seldom.** Nearly all that is made stays, as part of the snapshot; with Python's own
  threshold the search took a sixth of the operator's CPU time.
- **The Lease is renewed by a thread of its own**, so a long round does not lose it. The thread watches the main loop:
  when that has not turned for 15 s it renews no more, and another operator acts 5 s later; the liveness probe ends the
  blocked one. No write is sent unless the last renewal is younger than 4 s, which also holds for a process that was
  stopped and goes on. What such a process may still have under way is refused by the tests in every patch and by
  `controllerEpoch`.
"""


def pair(values: dict[str, float], unit: str, digits: int) -> str:
    """The one that acts is the one that used more."""
    return ", ".join(f"{value:.{digits}f}{unit}" for value in sorted(values.values(), reverse=True))


def account(electing: dict[str, Any]) -> dict[str, Any]:
    """The processors while leaders are elected: what was there, and what each process took of it."""
    used = sorted(electing["cpu_s"].items(), key=lambda each: -each[1])
    total, cpus = sum(electing["cpu_s"].values()), electing["cpus"]
    return {
        "electing": ", ".join(f"{name} {seconds:.1f} s" for name, seconds in used),
        "electing_s": electing["seconds"],
        "cpus": cpus,
        "given_s": cpus * electing["seconds"],
        "used_s": total,
        "least_s": total / cpus,
    }


def wanted(lasts: list[float]) -> str:
    """What the last elections of all runs should have kept, and how many of them did."""
    kept = sum(last < TARGET_S for last in lasts)
    if kept == len(lasts):
        return f" (wanted: {TARGET_S:.0f} s)"
    return f" (**wanted: {TARGET_S:.0f} s**, kept by {kept} of {len(lasts)})"


def render(result: dict[str, Any]) -> str:
    """The whole document."""
    place, rest, fail = result["place"], result["rest"], result["fail"]
    writes = ", ".join(f"{name}: {count:.0f}" for name, count in sorted(rest["writes"].items())) or "none"
    runs = [fail, *result["again"]]
    lasts = [each["max_s"] for each in runs]
    costs = [sum(each["electing"]["cpu_s"].values()) for each in runs]
    used = {
        f"{name}_{what}": pair(phase["cpu_s" if what == "cpu" else "peak_mb"], " s" if what == "cpu" else " MB", digits)
        for name, phase in (("place", place), ("rest", rest), ("fail", fail))
        for what, digits in (("cpu", 1), ("mb", 0))
    }
    return TEXT.format(
        **{
            name: result[name]
            for name in ("when", "commit", "machine", "python", "load", "topics", "partitions", "brokers")
        },
        **{name: place[name] for name in ("created_s", "placed_s", "ready_s")},
        **{name: fail[name] for name in ("led", "detected_s", "median_s", "max_s")},
        **used,
        **account(fail["electing"]),
        mb=result["list"]["mb"],
        list_s=result["list"]["s"],
        rest_s=rest["seconds"],
        place_s=place["seconds"],
        fail_s=fail["seconds"],
        writes=writes,
        runs=len(runs),
        lasts=", ".join(f"{last:.2f} s" for last in lasts),
        target=wanted(lasts),
        costs=", ".join(f"{cost:.1f} s" for cost in costs),
        hands=result["hands"],
        take_over_s=result["take_over"]["s"],
    )
