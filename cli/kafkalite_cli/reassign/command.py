"""`kafkalite reassign plan|execute|verify|status|cancel`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kafkalite_cli.options import KubeOptions, kube_options, output_option
from kafkalite_cli.output import note, print_json, print_table, stderr_console

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Awaitable, Callable

    from kafkalite_cli.reassign.files import Assignment
    from kafkalite_cli.reassign.session import Session

JsonObject = dict[str, Any]


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    names = [each.strip() for each in (value or "").split(",") if each.strip()]
    if value is not None and not names:
        raise click.BadParameter("no topic is named")
    return names


def _ids(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    try:
        found = [int(each) for each in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of broker ids (0,1,2)") from None
    if len(set(found)) != len(found):
        raise click.BadParameter(f"{value!r} names a broker twice")
    return found


timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=3600, show_default=True, help="Seconds to wait with --wait."
)


@click.group()
def reassign() -> None:
    r"""Move replicas between brokers, and watch, verify and cancel moves.

    The files are those of kafka-reassign-partitions, and either tool sees what the other one began. A change of
    `spec.replicas` or `spec.replicaAssignment` with kubectl is the same thing.

    \b
    Examples:
      kafkalite reassign plan --topics orders --brokers 0,1,2,3 -o json > plan.json
      kafkalite reassign execute plan.json --wait
      kafkalite reassign status
      kafkalite reassign cancel --all
    """


def _run(options: KubeOptions, work: Callable[[Session], Awaitable[Any]]) -> Any:
    """Run `work` against the API server that was chosen. Raises Failure in plain words."""
    from kafkalite_cli.connection import ask
    from kafkalite_cli.reassign.session import Session

    return ask(options, lambda client, space: work(Session(client, namespace=space, cluster=options.cluster)))


# --- plan ------------------------------------------------------------------------------------------------------------


@reassign.command()
@kube_options
@click.option("--topics", callback=_names, required=True, metavar="TOPIC,…", help="Whose replicas to place anew.")
@click.option("--brokers", callback=_ids, metavar="ID,…", help="Where to. Default: every registered broker.")
@click.option("--replicas", type=click.IntRange(min=1, max=16), help="Another number of replicas.")
@output_option
def plan(options: KubeOptions, topics: list[str], brokers: list[int] | None, replicas: int | None, output: str) -> None:
    r"""Propose where replicas should be: even, over racks, with little movement. Changes nothing.

    With -o json the proposal alone is printed, for `execute`; else the present assignment as well, to go back to.

    \b
    Examples:
      kafkalite reassign plan --topics orders --brokers 0,1,2,3
      kafkalite reassign plan --topics orders,payments --replicas 3 -o json > plan.json
    """
    from kafkalite_cli.reassign.files import document_of, line_of

    current, proposed = _run(options, lambda session: session.propose(topics, brokers, replicas))
    if output == "json":
        print_json(document_of(proposed))
        return
    moved = [
        {"topic": key[0], "partition": key[1], "from": _text(current[key]), "to": _text(ids)}
        for key, ids in sorted(proposed.items())
        if ids != current[key]
    ]
    print_table(moved, empty="nothing would move")
    click.echo(f"\ncurrent:\n{line_of(current)}\n\nproposed:\n{line_of(proposed)}")


def _text(ids: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, ids)) or "-"


# --- execute ---------------------------------------------------------------------------------------------------------


@reassign.command()
@kube_options
@click.argument("file", metavar="FILE")
@click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES/S", help="Of each broker, while they catch up.")
@click.option("--wait", is_flag=True, help="Wait until everything has moved, then remove the throttle.")
@timeout_option
@output_option
def execute(options: KubeOptions, file: str, throttle: int | None, wait: bool, timeout: float, output: str) -> None:
    r"""Begin the moves of a plan (a file, or - for standard input).

    Prints where the replicas are now: keep it to go back. The throttle stays until `verify` finds no move.

    \b
    Examples:
      kafkalite reassign execute plan.json
      kafkalite reassign execute plan.json --throttle 10000000 --wait
    """
    from kafkalite_cli.pasting import Commands
    from kafkalite_cli.reassign.files import document_of, line_of, read_assignment

    wanted = read_assignment(file)
    known: list[Assignment] = []
    try:
        before = _run(options, lambda session: session.execute(wanted, throttle, tell=known.append))
    except Exception:
        if known:  # some moves may have begun all the same
            status = Commands.of(options).kafkalite("reassign status")
            note(f"before, to go back to:\n{line_of(known[0])}\nwhat has begun goes on: `{status}` shows it")
        raise
    if output == "json":
        print_json({"before": document_of(before), "started": document_of(wanted)})
    else:
        click.echo(f"before, to go back to:\n{line_of(before)}\n\nstarted {_count(len(wanted))}")
    if wait:
        from kafkalite_cli.local_mode.progress import Steps

        async def work(session: Session) -> None:
            with _going_on(options), Steps(stderr_console()) as steps:
                steps.begin(f"moving {_count(len(wanted))}")
                await session.wait(wanted, timeout_s=timeout, tell=steps.waiting)
                steps.done(f"{_count(len(wanted))} moved")

        _run(options, work)


def _going_on(options: KubeOptions) -> contextlib.AbstractContextManager[None]:
    from kafkalite_cli.outage import going_on
    from kafkalite_cli.pasting import Commands

    return going_on(f"the moves go on: `{Commands.of(options).kafkalite('reassign status')}` shows how far they are")


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions != 1 else ''}"


# --- verify ----------------------------------------------------------------------------------------------------------


@reassign.command()
@kube_options
@click.argument("file", metavar="FILE")
@click.option("--keep-throttle", is_flag=True, help="Leave the throttle even when nothing moves.")
@output_option
def verify(options: KubeOptions, file: str, keep_throttle: bool, output: str) -> None:
    r"""Say of each partition of a plan whether it has moved; when none moves any more, remove the throttle.

    Exit code 0: all have moved. 1: some move still, or did not move.

    \b
    Examples:
      kafkalite reassign verify plan.json
      kafkalite reassign verify plan.json -o json | jq -r '.[] | select(.state != "completed")'
    """
    from kafkalite_cli.reassign.files import read_assignment

    wanted = read_assignment(file)
    rows = _run(options, lambda session: session.verify(wanted, keep_throttle=keep_throttle))
    if output == "json":
        print_json(rows)
    else:
        print_table([row | {"wanted": _text(row["wanted"])} for row in rows])
    unfinished = sum(row["state"] != "completed" for row in rows)
    if unfinished:
        note(f"{unfinished} of {_count(len(rows))} not there yet")
        sys.exit(1)


# --- status ----------------------------------------------------------------------------------------------------------


@reassign.command()
@kube_options
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--wait", is_flag=True, help="Until nothing moves.")
@timeout_option
@output_option
def status(options: KubeOptions, topics: tuple[str, ...], wait: bool, timeout: float, output: str) -> None:
    r"""Show what moves, what waits for its turn, and how much has been copied.

    \b
    Examples:
      kafkalite reassign status
      kafkalite reassign status orders -o json | jq '.[] | {partition, copiedPercent}'
      kafkalite reassign status --wait
    """
    if wait:
        from kafkalite_cli.local_mode.progress import Steps

        async def work(session: Session) -> None:
            with _going_on(options), Steps(stderr_console()) as steps:
                steps.begin("moving")
                await session.wait_still(topics, timeout_s=timeout, tell=steps.waiting)

        _run(options, work)
    rows = _run(options, lambda session: session.moves(topics))
    if output == "json":
        print_json(rows)
        return
    shown = [
        {
            "topic": row["topic"],
            "partition": row["partition"],
            "from": _text(row["from"]),
            "to": _text(row["to"]),
            "state": row["state"],
            "not in sync": _text(row["notInSync"]),
            "copied": None if row["copiedPercent"] is None else f"{row['copiedPercent']} %",
        }
        for row in rows
    ]
    print_table(shown, empty="nothing moves")


# --- cancel ----------------------------------------------------------------------------------------------------------


@reassign.command()
@kube_options
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--topics", callback=_names, metavar="TOPIC,…", help="All moves of these topics.")
@click.option("--all", "everything", is_flag=True, help="All moves.")
@output_option
def cancel(options: KubeOptions, file: str | None, topics: list[str], everything: bool, output: str) -> None:
    r"""Cancel moves: the partitions go back to the replicas that they had.

    A replica that is in sync already stays until enough of the old ones are, so no record is lost by it. What the
    moves had throttled is throttled no more.

    \b
    Examples:
      kafkalite reassign cancel plan.json
      kafkalite reassign cancel --topics orders
      kafkalite reassign cancel --all
    """
    from kafkalite_cli.reassign.files import document_of, read_assignment

    if sum((file is not None, bool(topics), everything)) != 1:
        raise click.UsageError("say which: a FILE, --topics or --all")
    wanted = None if file is None else set(read_assignment(file))
    restored = _run(options, lambda session: session.cancel(wanted, topics))
    if output == "json":
        print_json(document_of(restored))
        return
    rows = [{"topic": key[0], "partition": key[1], "back to": _text(ids)} for key, ids in sorted(restored.items())]
    print_table(rows, empty="nothing moves")
