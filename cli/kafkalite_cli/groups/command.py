"""`kafkalite groups list|describe|reset-offsets|delete|delete-offsets`."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kafkalite_cli.errors import Failure
from kafkalite_cli.groups import reset, views
from kafkalite_cli.groups.model import STATES, Group, Partition
from kafkalite_cli.guard import stoppable
from kafkalite_cli.options import KafkaOptions, NonEmpty, kafka_options, output_option, yes_option
from kafkalite_cli.output import confirm, note, on_terminal, print_json, print_table, stderr_console, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite_cli.groups.model import GroupAdmin

JsonObject = dict[str, Any]


@click.group()
def groups() -> None:
    r"""List, describe, reset and delete consumer groups.

    \b
    Examples:
      kafkalite groups list
      kafkalite groups describe billing --watch 2
      kafkalite groups reset-offsets billing --topic orders --to-earliest --execute
      kafkalite groups delete billing
    """


def connect(options: KafkaOptions) -> contextlib.AbstractContextManager[GroupAdmin]:
    """The cluster that was chosen; tests put another in its place. Raises Failure."""
    from kafkalite_cli.groups.admin import ConfluentGroupAdmin
    from kafkalite_cli.kafka import brokers_of

    brokers = brokers_of(options)
    return ConfluentGroupAdmin(brokers.bootstrap, options.properties, brokers.say)


@contextlib.contextmanager
def _asking(options: KafkaOptions) -> Iterator[GroupAdmin]:
    """A connection, with a spinner on a terminal while the brokers are asked."""
    spinner = stderr_console().status("asking the brokers") if on_terminal() else contextlib.nullcontext()
    with spinner, connect(options) as admin:
        yield admin


# --- list, describe --------------------------------------------------------------------------------------------------


@groups.command("list")
@kafka_options
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="Only groups in it: Stable, Empty … Repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "name"]),
    default="table",
    show_default=True,
    help="name: ids alone, one a line.",
)
def list_(options: KafkaOptions, states: tuple[str, ...], output: str) -> None:
    r"""List groups.

    \b
    Examples:
      kafkalite groups list
      kafkalite groups list --state Empty -o name
      kafkalite groups list -b broker-1:9092
    """
    with _asking(options) as admin:
        ids, problems = admin.list_groups()
        found = [] if output == "name" and not states else admin.describe(ids)
    for problem in problems:
        warn(f"a broker did not answer: {problem}")
    wanted = {state.lower() for state in states}
    shown = [each for each in found if not wanted or each.state.lower() in wanted]
    if output == "json":
        print_json(views.listing(shown))
    elif output == "name":
        for group_id in [each.group_id for each in shown] if states else ids:
            click.echo(group_id)
    else:
        print_table(views.listing(shown), empty="no groups")
    if problems:
        sys.exit(1)


@groups.command()
@kafka_options
@click.argument("group_ids", nargs=-1, type=NonEmpty("group id"), metavar="[GROUP]...")
@click.option("--all", "everything", is_flag=True, help="Every group.")
@click.option("--members", is_flag=True, help="A line for each member instead of each partition.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show it again every so many seconds (2), until interrupted.",
)
@output_option
def describe(
    options: KafkaOptions, group_ids: tuple[str, ...], everything: bool, members: bool, watch: float | None, output: str
) -> None:
    r"""Show members, committed offsets, the ends of the logs, and the lag.

    \b
    Examples:
      kafkalite groups describe billing
      kafkalite groups describe billing --watch
      kafkalite groups describe billing --members
      kafkalite groups describe --all -o json | jq '.[] | {group, totalLag}'
    """
    if bool(group_ids) == everything:
        raise click.UsageError("name groups, or say --all")
    if watch is None:
        with _asking(options) as admin:
            documents = _documents(admin, group_ids)
        if output == "json":
            print_json(documents)
        else:
            _print_groups(documents, members=members)
        return
    with stoppable() as stop, connect(options) as admin:
        while not stop.requested:
            documents = _documents(admin, group_ids)
            if output == "json":
                click.echo(msgspec.json.encode(documents).decode())
            else:
                click.clear()
                click.echo(f"{time.strftime('%H:%M:%S')}, again every {watch:g} s; Ctrl-C ends it")
                _print_groups(documents, members=members)
            sys.stdout.flush()
            limit = time.monotonic() + watch
            while not stop.requested and (left := limit - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
    sys.exit(stop.exit_code)


def _documents(admin: GroupAdmin, group_ids: tuple[str, ...]) -> list[JsonObject]:
    ids = list(group_ids) or admin.list_groups()[0]
    found = []
    for group in admin.describe(ids):
        committed = admin.committed(group.group_id)
        if not group.exists and not committed:
            raise Failure(f"group {group.group_id!r} does not exist")
        assigned = {partition for member in group.members for partition in member.partitions}
        found.append(views.description(group, committed, admin.logs(sorted({*committed, *assigned}))))
    return found


def _print_groups(documents: list[JsonObject], *, members: bool) -> None:
    for position, document in enumerate(documents):
        if position:
            click.echo()
        click.echo(click.style(f"group {document['group']}", bold=True) + f"   {views.headline(document)}")
        if members:
            print_table(views.member_rows(document), empty="no members")
        else:
            print_table(views.partition_rows(document), empty="no committed offsets and no members with partitions")
    if not documents:
        click.echo("no groups")


# --- reset-offsets ---------------------------------------------------------------------------------------------------


@groups.command("reset-offsets")
@kafka_options
@click.argument("group_id", type=NonEmpty("group id"), metavar="GROUP")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1,…]", help="Its partitions, or some. Repeatable.")
@click.option("--all-topics", is_flag=True, help="Every partition that has a committed offset.")
@click.option("--to-earliest", is_flag=True, help="Where the log begins.")
@click.option("--to-latest", is_flag=True, help="The end of the log.")
@click.option("--to-current", is_flag=True, help="Where the group is (the log's end where it is nowhere).")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="This one in each partition.")
@click.option("--shift-by", type=int, metavar="N", help="N records further, or back with a minus.")
@click.option("--to-datetime", metavar="TIME", help="2026-01-31T12:00:00.000, UTC unless a zone is given.")
@click.option("--by-duration", metavar="DURATION", help="So long ago: PT1H30M or 1h30m.")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="What -o csv wrote.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done. The default.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="csv: as --from-file reads.",
)
def reset_offsets(
    options: KafkaOptions,
    group_id: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    output: str,
    **ways: Any,
) -> None:
    r"""Set the committed offsets of a group that nobody is in.

    Without --execute nothing is changed: the plan is shown. Offsets outside a log are brought to its begin or end.

    \b
    Examples:
      kafkalite groups reset-offsets billing --topic orders --to-earliest
      kafkalite groups reset-offsets billing --topic orders --to-earliest --execute
      kafkalite groups reset-offsets billing --topic orders:0,2 --shift-by -100 --execute
      kafkalite groups reset-offsets billing --all-topics --by-duration PT2H --execute
      kafkalite groups reset-offsets billing --all-topics --to-current -o csv > plan.csv
      kafkalite groups reset-offsets billing --from-file plan.csv --execute
    """
    wish = _wish(group_id, **ways)
    if dry_run and execute:
        raise click.UsageError("--dry-run or --execute?")
    if sum([bool(topics), all_topics, wish.listed is not None]) != 1:
        raise click.UsageError("say which partitions, in one way: --topic, --all-topics or --from-file")
    with _asking(options) as admin:
        moves = _plan(admin, group_id, wish, topics)
        refused = admin.commit(group_id, {each.partition: each.after for each in moves}) if execute else {}
    if output == "json":
        print_json([each.document() for each in moves])
    elif output == "csv":
        for each in moves:
            click.echo(f'"{each.partition.topic}",{each.partition.number},{each.after}')
    else:
        print_table([_move_row(each) for each in moves])
    for partition, why in sorted(refused.items()):
        click.echo(f"{partition}: not changed: {why}", err=True)
    if refused:
        raise Failure(f"{len(refused)} of {len(moves)} offsets of group {group_id!r} were not changed")
    note(f"{len(moves)} offsets changed" if execute else "dry run, nothing was changed: add --execute to do it")


def _wish(
    group_id: str,
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
) -> reset.Wish:
    ends = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    places = [name for name, chosen in ends.items() if chosen]
    given = [each for each in (*places, to_offset, shift_by, to_datetime, by_duration, from_file) if each is not None]
    if len(given) != 1:
        raise click.UsageError(
            "say where to, in one way: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--to-datetime, --by-duration or --from-file"
        )
    timestamp_ms = None
    if to_datetime is not None:
        timestamp_ms = reset.parse_datetime(to_datetime)
    elif by_duration is not None:
        timestamp_ms = max(0, round(time.time() * 1000) - reset.parse_duration(by_duration))
    listed = None
    if from_file is not None:
        try:
            listed = reset.parse_plan(from_file.read_text(encoding="utf-8"), group_id, str(from_file))
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{from_file}: {error}") from error
    return reset.Wish(
        to=places[0] if places else None, offset=to_offset, shift=shift_by, timestamp_ms=timestamp_ms, listed=listed
    )


def _plan(admin: GroupAdmin, group_id: str, wish: reset.Wish, topics: tuple[str, ...]) -> list[reset.Move]:
    [group] = admin.describe([group_id])
    _must_be_inactive(group)
    committed = admin.committed(group_id)
    if wish.listed is not None:
        partitions = sorted(wish.listed)
    elif topics:
        partitions = _partitions(admin, topics)
    else:
        partitions = sorted(committed)
        if not partitions:
            raise Failure(f"group {group_id!r} has no committed offsets: name topics with --topic")
    at_time = admin.offsets_at(partitions, wish.timestamp_ms) if wish.timestamp_ms is not None else {}
    return reset.plan(wish, partitions, committed=committed, logs=admin.logs(partitions), at_time=at_time)


def _must_be_inactive(group: Group) -> None:
    if not group.inactive:
        raise Failure(
            f"group {group.group_id!r} is {group.state} with {len(group.members)} members: "
            "stop its consumers first, they would commit over it"
        )


def _partitions(admin: GroupAdmin, topics: tuple[str, ...]) -> list[Partition]:
    found: set[Partition] = set()
    for topic, numbers in reset.parse_topics(topics):
        known = admin.partitions_of(topic)
        if strange := [number for number in numbers or [] if number not in known]:
            raise Failure(f"topic {topic!r} has no partition {strange[0]}: it has {known[0]} to {known[-1]}")
        found |= {Partition(topic, number) for number in (known if numbers is None else numbers)}
    return sorted(found)


def _move_row(move: reset.Move) -> JsonObject:
    document = move.document()
    titles = {
        "topic": "topic", "partition": "partition", "before": "before", "after": "after", "logStart": "log start",
        "logEnd": "log end", "lag": "lag", "remark": "remark",
    }  # fmt: skip
    return {title: document[key] for key, title in titles.items()}


# --- delete, delete-offsets ------------------------------------------------------------------------------------------


@groups.command()
@kafka_options
@click.argument("group_ids", nargs=-1, required=True, type=NonEmpty("group id"), metavar="GROUP...")
@yes_option
def delete(options: KafkaOptions, group_ids: tuple[str, ...], yes: bool) -> None:
    r"""Delete groups without members, with all their offsets. Asks first, unless told --yes.

    \b
    Examples:
      kafkalite groups delete billing
      kafkalite groups list --state Empty -o name | xargs kafkalite groups delete --yes
    """
    ids = list(dict.fromkeys(group_ids))
    if not yes:
        confirm(f"Delete {', '.join(ids)} and all committed offsets?")
    with _asking(options) as admin:
        refused = admin.delete_groups(ids)
    for group_id in ids:
        if group_id not in refused:
            click.echo(f"group {group_id} deleted")
    if refused:
        raise Failure("; ".join(f"group {group_id!r}: {why}" for group_id, why in refused.items()))


@groups.command("delete-offsets")
@kafka_options
@click.argument("group_id", type=NonEmpty("group id"), metavar="GROUP")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:0,1,…]",
    help="Its partitions, or some. Repeatable.",
)
@yes_option
def delete_offsets(options: KafkaOptions, group_id: str, topics: tuple[str, ...], yes: bool) -> None:
    r"""Forget the committed offsets of topics that the group no longer consumes. Asks first, unless told --yes.

    \b
    Examples:
      kafkalite groups delete-offsets billing --topic orders
      kafkalite groups delete-offsets billing --topic orders:0,1 --yes
    """
    wanted = reset.parse_topics(topics)
    if not yes:
        confirm(f"Forget the offsets of group {group_id} in {', '.join(topics)}?")
    with _asking(options) as admin:
        committed = admin.committed(group_id)
        partitions = sorted(
            each
            for each in committed
            if any(each.topic == topic and (numbers is None or each.number in numbers) for topic, numbers in wanted)
        )
        if not partitions:
            raise Failure(f"group {group_id!r} has no committed offsets there")
        refused = admin.delete_offsets(group_id, partitions)
    for partition in partitions:
        if partition not in refused:
            click.echo(f"{partition}: offset {committed[partition]} deleted")
    if refused:
        raise Failure("; ".join(f"{partition}: {why}" for partition, why in sorted(refused.items())))
