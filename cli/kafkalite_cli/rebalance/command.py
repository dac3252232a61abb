"""`kafkalite rebalance`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kafkalite_cli.errors import Failure
from kafkalite_cli.options import KubeOptions, kube_options, output_option
from kafkalite_cli.output import note, print_json, print_table, size_text, stderr_console
from kafkalite_cli.pasting import Commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_cli.brokers.view import ClusterView, Key
    from kafkalite_cli.reassign.files import Assignment
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
SHOWN_MAX = 40


@click.command()
@kube_options
@click.option("--leaders-only", is_flag=True, help="Only change who is preferred to lead: nothing is copied.")
@click.option("--execute", is_flag=True, help="Do it. Without it nothing is changed.")
@click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES/S", help="Of each broker, while they catch up.")
@click.option("--wait", is_flag=True, help="With --execute: until everything has moved and the leaders lead.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=3600, show_default=True, help="Seconds for --wait.")
@click.option("--all", "everything", is_flag=True, help="Show every move, however many there are.")
@output_option
def rebalance(
    options: KubeOptions,
    leaders_only: bool,
    execute: bool,
    throttle: int | None,
    wait: bool,
    timeout: float,
    everything: bool,
    output: str,
) -> None:
    r"""Even out replicas and leaders over the brokers that run and are not cordoned.

    As few replicas move as it takes, and no partition loses a rack. Without --execute only the moves are shown, and
    what each broker would have; -o json is a plan that `kafkalite reassign execute` takes. Moves that are under way
    are left alone, and so is what is on brokers that are down or cordoned.

    \b
    Examples:
      kafkalite rebalance
      kafkalite rebalance --execute --throttle 10000000 --wait
      kafkalite rebalance --leaders-only --execute
      kafkalite rebalance -o json > plan.json
    """
    from kafkalite_cli.connection import ask

    if (wait or throttle is not None) and not execute:
        raise click.UsageError("--wait and --throttle belong to --execute")
    proposal = ask(options, lambda client, space: _propose(client, space, options.cluster, leaders_only=leaders_only))
    view: ClusterView = proposal["view"]
    say = Commands.of(options).about(view.namespace, view.name)
    _show(proposal, output, say, everything=everything)
    if not proposal["moves"]:
        return
    if not execute:
        note("dry run, nothing was changed: add --execute to do it")
        return
    _carry_out(options, proposal, throttle, say, timeout_s=timeout if wait else None)


async def _propose(client: KubeClient, namespace: str | None, cluster: str | None, *, leaders_only: bool) -> JsonObject:
    import asyncio

    from kafkalite_cli.brokers.view import moving, read_view
    from kafkalite_cli.topics import sizes
    from kafkalite_core.controller.balancing import rebalanced

    view = await read_view(client, namespace, cluster)
    racks = view.taking()
    if not racks:
        states = "; ".join(view.state_of(i) for i in sorted(view.brokers)) or "there is none"
        raise Failure(f"no broker of {view.name} runs without being cordoned: {states}")
    current = view.wishes()
    busy = moving(view, current)
    moves = rebalanced(current, racks, fixed=busy, leaders_only=leaders_only)
    copied: int | None = None
    if added := {key: len(set(ids) - set(current[key])) for key, ids in moves.items() if set(ids) - set(current[key])}:
        wanted: dict[str, list[int]] = {}
        for name, number in added:
            wanted.setdefault(name, []).append(number)
        addresses = sizes.addresses_of(list(view.broker_objects.values()), view.name)
        read = await asyncio.to_thread(sizes.read_sizes, addresses, wanted)
        known = [read.get((*key, view.partitions[key].leader)) for key in added]
        if all(size is not None for size in known):
            copied = sum(size * added[key] for key, size in zip(added, known, strict=True) if size is not None)
    return {
        "view": view,
        "current": current,
        "moves": moves,
        "busy": len(busy),
        "copies": sum(added.values()),
        "copiedBytes": copied,
        "brokers": counts(view, current, {**current, **moves}),
    }


def counts(
    view: ClusterView, before: Mapping[Key, tuple[int, ...]], after: Mapping[Key, tuple[int, ...]]
) -> list[JsonObject]:
    """What each broker has and would have."""
    rows = []
    tallies = [
        (Counter(i for ids in each.values() for i in ids), Counter(ids[0] for ids in each.values() if ids))
        for each in (before, after)
    ]
    (replicas, leads), (replicas_after, leads_after) = tallies
    for i in sorted({*view.brokers, *replicas}):
        broker = view.brokers.get(i)
        state = view.state_of(i).removeprefix(f"broker {i} ")
        rows.append(
            {
                "broker": i,
                "rack": broker.registration.rack if broker and broker.registration else "",
                "state": "runs" if i in view.taking() else state.removeprefix("is "),
                "replicas": replicas[i],
                "replicasAfter": replicas_after[i],
                "preferredLeader": leads[i],
                "preferredLeaderAfter": leads_after[i],
            }
        )
    return rows


def _show(proposal: JsonObject, output: str, say: Commands, *, everything: bool) -> None:
    from kafkalite_cli.reassign.files import document_of

    moves, current = proposal["moves"], proposal["current"]
    if output == "json":
        keys = ("busy", "copies", "copiedBytes", "brokers")
        print_json(document_of(moves) | {key: proposal[key] for key in keys})
        return
    rows = [
        {"topic": key[0], "partition": key[1], "from": _ids(current[key]), "to": _ids(ids)}
        for key, ids in sorted(moves.items())
    ]
    print_table(rows if everything else rows[:SHOWN_MAX], empty="nothing to move: the brokers carry the same")
    if len(rows) > SHOWN_MAX and not everything:
        click.echo(f"… and {len(rows) - SHOWN_MAX:,} more (--all shows them)")
    brokers = proposal["brokers"]
    shown: list[JsonObject] = [
        {
            "broker": each["broker"],
            **({"rack": each["rack"]} if any(row["rack"] for row in brokers) else {}),
            "state": each["state"],
            "replicas": _change(each["replicas"], each["replicasAfter"]),
            "preferred leader of": _change(each["preferredLeader"], each["preferredLeaderAfter"]),
        }
        for each in brokers
    ]
    click.echo()
    print_table(shown)
    if proposal["busy"]:
        note(f"{proposal['busy']} partitions move already and are left alone ({say.kafkalite('reassign status')})")
    if moves:
        size = f", {size_text(proposal['copiedBytes'])}" if proposal["copiedBytes"] is not None else ""
        note(f"{len(moves):,} partitions change, {proposal['copies']:,} replicas are copied{size}")


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def _carry_out(
    options: KubeOptions, proposal: JsonObject, throttle: int | None, say: Commands, *, timeout_s: float | None
) -> None:
    """Write the wishes; with `timeout_s` wait until they are fulfilled, then ask the preferred leaders to lead."""
    from kafkalite_cli.connection import ask
    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.outage import going_on, through_outage
    from kafkalite_cli.reassign.session import Session

    view: ClusterView = proposal["view"]
    moves: Assignment = proposal["moves"]
    led = [key for key, ids in moves.items() if ids[0] != proposal["current"][key][0]]

    async def work(client: KubeClient, _namespace: str | None) -> None:
        session = Session(client, namespace=view.namespace, cluster=view.name)
        await session.execute(moves, throttle)
        if timeout_s is None:
            return
        status = say.kafkalite("reassign status")
        with going_on(f"the moves go on: `{status}` shows how far they are"), Steps(stderr_console()) as steps:
            steps.begin(f"rebalancing {len(moves):,} partitions")
            await session.wait(moves, timeout_s=timeout_s, tell=steps.waiting)
            steps.done(f"{len(moves):,} partitions are where they shall be")
        await through_outage(lambda: session.elect_preferred(led))

    ask(options, work)
    if timeout_s is None:
        status, back = say.kafkalite("reassign status"), say.kafkalite("reassign cancel --all")
        note(f"started; `{status}` shows how far it is, `{back}` goes back")
