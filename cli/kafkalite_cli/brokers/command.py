"""`kafkalite restart`, `kafkalite decommission` and `kafkalite replace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkalite_cli.options import KubeOptions, kube_options, yes_option
from kafkalite_cli.output import confirm, note, print_table, stderr_console

if TYPE_CHECKING:
    from kafkalite_cli.brokers.decommission import Plan
    from kafkalite_cli.brokers.view import ClusterView
    from kafkalite_cli.pasting import Commands
    from kafkalite_runtime.kube import KubeClient

JsonObject = dict[str, Any]
SHOWN_MAX = 40


@click.command()
@kube_options
@click.argument("brokers", nargs=-1, type=click.IntRange(min=0), metavar="[BROKER]...")
@click.option("--all", "everything", is_flag=True, help="Every broker of the cluster.")
@click.option("--force", is_flag=True, help="Even if partitions drop below min.insync.replicas meanwhile.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=600, show_default=True, help="Seconds for each broker."
)
@yes_option
def restart(
    options: KubeOptions, brokers: tuple[int, ...], everything: bool, force: bool, timeout: float, yes: bool
) -> None:
    r"""Restart brokers, one after the other: each is back in all its ISRs before the next one goes.

    The pod is deleted in order: the broker hands its leaderships over and flushes. What would take a partition below
    min.insync.replicas is refused. The order is that of the arguments. A restart that was broken off can be begun
    again with the brokers that are left.

    \b
    Examples:
      kafkalite restart 1
      kafkalite restart --all --yes
      kafkalite restart 0 2 -n kafka --cluster events
    """
    from kafkalite_cli.brokers.restart import Restarts
    from kafkalite_cli.brokers.view import read_view
    from kafkalite_cli.connection import ask
    from kafkalite_cli.errors import Failure
    from kafkalite_cli.local_mode.progress import Steps

    if bool(brokers) == everything:
        raise click.UsageError("say which: broker ids, or --all")
    if len(set(brokers)) != len(brokers):
        raise click.UsageError("a broker is named twice")

    say = _commands(options)

    # Asked outside of the event loop, which would keep Ctrl-C for later.
    seen = ask(options, lambda client, namespace: read_view(client, namespace, options.cluster))
    ids = [i for i in sorted(seen.brokers) if not seen.scaled_away(i)] if everything else list(brokers)
    if not ids:
        here = say.about(seen.namespace, seen.name).kafkalite("doctor")
        raise Failure(f"cluster {seen.name} has no brokers, nothing was restarted; `{here}` says why")
    if not yes:
        which = f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))}"
        confirm(f"Restart {which} of cluster {seen.name}?")

    async def work(client: KubeClient, _namespace: str | None) -> None:
        view = await read_view(client, seen.namespace, seen.name)
        with Steps(stderr_console()) as steps:
            here = say.about(view.namespace, view.name)
            await Restarts(client, view, steps, here, force=force, timeout_s=timeout).run(view, ids)

    ask(options, work)
    click.echo(f"restarted {', '.join(map(str, ids))}")


@click.command()
@kube_options
@click.argument("broker", type=click.IntRange(min=0))
@click.option("--cancel", is_flag=True, help="Let it take replicas again; moves that are not over are taken back.")
@click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing.")
@click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES/S", help="Of each broker, while they catch up.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=3600, show_default=True, help="Seconds to wait.")
@yes_option
def decommission(
    options: KubeOptions, broker: int, cancel: bool, dry_run: bool, throttle: int | None, timeout: float, yes: bool
) -> None:
    r"""Empty a broker: no new replicas come (it is cordoned), and those that it has move to the others.

    Waits until nothing is left, then says how to remove it. What was broken off goes on when it is begun again. The
    broker with the highest id needs none of it: lower spec.replicas of the cluster, and the operator empties and
    removes it; then this command waits for that.

    \b
    Examples:
      kafkalite decommission 3 --dry-run
      kafkalite decommission 3 --throttle 10000000
      kafkalite decommission 3 --cancel
    """
    from kafkalite_cli.brokers import decommission as work_on
    from kafkalite_cli.brokers.view import read_view
    from kafkalite_cli.connection import ask

    if cancel and (dry_run or throttle is not None):
        raise click.UsageError("--cancel takes neither --dry-run nor --throttle")

    say = _commands(options)

    # Asked outside of the event loop, which would keep Ctrl-C for later.
    seen = ask(options, lambda client, namespace: read_view(client, namespace, options.cluster))
    here = say.about(seen.namespace, seen.name)
    if cancel:
        restored = ask(options, lambda client, _namespace: work_on.cancel(client, seen, broker, here))
        _tell_restored(broker, restored, here)
        return
    if broker in seen.brokers and broker >= seen.wanted and not dry_run:
        ask(options, lambda client, _namespace: _follow(client, seen, broker, timeout_s=timeout))
        click.echo(f"broker {broker} is removed: spec.replicas of {seen.name} is {seen.wanted}")
        return
    wanted = work_on.plan(seen, broker, here)
    if dry_run:
        _show(seen, broker, wanted)
        note("dry run, nothing was changed")
        return
    if wanted.moves and not yes:
        confirm(f"Move {len(wanted.moves):,} replicas away from broker {broker}?")
    view = ask(
        options, lambda client, _namespace: _empty(client, seen, broker, here, throttle=throttle, timeout_s=timeout)
    )
    click.echo(f"broker {broker} is empty; {work_on.how_to_shrink(view, broker, here)}")


async def _follow(client: KubeClient, view: ClusterView, broker: int, *, timeout_s: float) -> None:
    from kafkalite_cli.brokers import decommission as work_on
    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.outage import going_on

    with going_on("the operator goes on with it"), Steps(stderr_console()) as steps:
        steps.begin(f"broker {broker} leaves")
        await work_on.follow(client, view, broker, steps, timeout_s=timeout_s)
        steps.done(f"broker {broker} has left")


async def _empty(
    client: KubeClient, seen: ClusterView, broker: int, say: Commands, *, throttle: int | None, timeout_s: float
) -> ClusterView:
    """The cluster afterwards."""
    from kafkalite_cli.brokers import decommission as work_on
    from kafkalite_cli.brokers.view import read_again, read_view
    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.outage import going_on

    view = await read_view(client, seen.namespace, seen.name)
    work_on.plan(view, broker, say)
    again = say.kafkalite(f"decommission {broker}")
    with going_on(f"what moves goes on moving: `{again}` waits for it"), Steps(stderr_console()) as steps:
        steps.begin(f"broker {broker}")
        await work_on.cordon(client, view, broker, cordoned=True)
        steps.done(f"broker {broker} is cordoned: it takes no new replicas")
        steps.begin(f"emptying broker {broker}")
        view = await read_again(client, view, steps.waiting)
        await work_on.empty(client, view, broker, steps, say, throttle=throttle, timeout_s=timeout_s)
        steps.done(f"broker {broker} holds no replica")
        return await read_again(client, view, steps.waiting)


@click.command()
@kube_options
@click.argument("broker", type=click.IntRange(min=0))
@click.option("--cancel", is_flag=True, help="Take it back, if nothing has been deleted yet.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=3600, show_default=True, help="Seconds to wait.")
@click.option("-y", "--yes", is_flag=True, help="Do it. Without it nothing is changed.")
def replace(options: KubeOptions, broker: int, cancel: bool, timeout: float, yes: bool) -> None:
    r"""Declare a broker's node or volume gone for good: it gets a new pod and a new, empty volume, on any node.

    Says what is deleted and what would have to wait; with --yes the operator is asked to do it, and it is waited for.
    Nothing is deleted while some partition would lose its last copy, or fall below min.insync.replicas. Waiting that
    was broken off goes on when it is begun again.

    \b
    Examples:
      kafkalite replace 1
      kafkalite replace 1 --yes
      kafkalite replace 1 --cancel
    """
    from kafkalite_cli.brokers import replace as work_on
    from kafkalite_cli.brokers.view import read_view
    from kafkalite_cli.connection import ask
    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.outage import going_on

    if cancel and yes:
        raise click.UsageError("--cancel or --yes, not both")

    say = _commands(options)

    async def work(client: KubeClient, namespace: str | None) -> None:
        view = await read_view(client, namespace, options.cluster)
        if cancel:
            work_on.known(view, broker)
            await work_on.declare(client, view, broker, gone=False)
            note(f"broker {broker} is not declared gone any more; what has begun goes on")
            return
        here = say.about(view.namespace, view.name)
        found = work_on.loss(view, broker)
        rebuilt = work_on.rebuilding(view, broker, here)
        for sentence in rebuilt or found.sentences(view, broker):
            click.echo(sentence, err=yes)
        if not yes:
            done = "it is waited for" if rebuilt else "the broker's node or volume is declared gone for good"
            note(f"nothing was changed; with --yes {done}")
            return
        with Steps(stderr_console()) as steps:
            steps.begin(f"broker {broker} is replaced")
            if not rebuilt:
                await work_on.declare(client, view, broker, gone=True)
            with going_on("the operator goes on with it"):
                await work_on.follow(client, view, broker, steps, here, timeout_s=timeout)
            steps.done(f"broker {broker} is back in all ISRs")
        click.echo(f"broker {broker} has a new volume, and its replicas are in sync")

    ask(options, work)


def _commands(options: KubeOptions) -> Commands:
    """Raises Failure when there is no cluster."""
    from kafkalite_cli.connection import choose_target
    from kafkalite_cli.pasting import Commands

    return Commands.of(options, choose_target(options))


def _tell_restored(broker: int, restored: JsonObject | Any, say: Commands) -> None:
    rows = [{"topic": key[0], "partition": key[1], "back to": _ids(ids)} for key, ids in sorted(restored.items())]
    if rows:
        print_table(rows[:SHOWN_MAX])
    note(
        f"broker {broker} takes replicas again"
        + (f"; {len(rows):,} moves are taken back" if rows else "; what has moved stays where it is")
        + f" (`{say.kafkalite('rebalance')}` evens out)"
    )


def _show(view: ClusterView, broker: int, plan: Plan) -> None:
    from kafkalite_cli.rebalance.command import counts

    rows = [
        {"topic": key[0], "partition": key[1], "from": _ids(plan.current[key]), "to": _ids(ids)}
        for key, ids in sorted(plan.moves.items())
    ]
    print_table(rows[:SHOWN_MAX], empty=f"no replica of broker {broker} is left to be moved")
    if len(rows) > SHOWN_MAX:
        click.echo(f"… and {len(rows) - SHOWN_MAX:,} more")
    click.echo()
    shown = [
        {"broker": each["broker"], "state": each["state"], "replicas": f"{each['replicas']} -> {each['replicasAfter']}"}
        for each in counts(view, plan.current, {**plan.current, **plan.moves})
    ]
    print_table(shown)


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"
