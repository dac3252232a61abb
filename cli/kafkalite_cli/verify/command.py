"""`kafkalite verify`: the group of commands, and those of the history of clients, `run` and `check`."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import os_words
from kafkalite_cli.options import kafka_options
from kafkalite_cli.verify.checker import KINDS, Checker, Report
from kafkalite_cli.verify.history import read_history_parts
from kafkalite_cli.verify.state_command import (
    check_metadata_files,
    no_verdict,
    output_option,
    record_metadata,
    replicas,
)
from kafkalite_core.model.errors import KafkaLiteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite_cli.options import KafkaOptions
    from kafkalite_cli.verify.load import Load

allow_option = click.option(
    "--allow",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help="An anomaly that does not spoil the verdict (what these clients were not promised); may be repeated.",
)


@click.group()
def verify() -> None:
    r"""Prove that a topic loses, repeats and reorders nothing that it acknowledged.

    \b
    Examples:
      kafkalite verify run --topic quickstart --rate 2000 --duration 30
      kafkalite verify run --topic quickstart --count 100000 --rate 0 --history run.jsonl
      kafkalite verify check run.jsonl -o json
      kafkalite verify record-metadata metadata.jsonl
      kafkalite verify check-metadata metadata.jsonl
      kafkalite verify replicas
    """


verify.add_command(record_metadata)
verify.add_command(check_metadata_files)
verify.add_command(replicas)


@verify.command()
@kafka_options
@click.option("-t", "--topic", required=True, help="The topic; it must exist.")
@click.option("--rate", type=click.FloatRange(min=0), default=2000, show_default=True, help="Records/s; 0: no limit.")
@click.option("--duration", type=click.FloatRange(min=0), help="Seconds to produce for.  [default: 10]")
@click.option("--count", type=click.IntRange(min=1), help="Records to produce, instead of --duration.")
@click.option("--keys", type=click.IntRange(min=1, max=100_000), default=60, show_default=True)
@click.option("--producers", type=click.IntRange(min=1, max=64), default=1, show_default=True)
@click.option(
    "--size", type=click.IntRange(min=1, max=1_000_000), default=100, show_default=True, help="Bytes a value."
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the history to this file, once topic and brokers are known.  [default: a temporary one]",
)
@click.option(
    "--observe",
    type=click.FloatRange(min=0),
    default=0.5,
    show_default=True,
    help="Seconds between two rounds of asking for the ends of the partitions, which never go back; 0: not at all.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=60, show_default=True, help="Seconds to wait at the end."
)
@allow_option
@output_option
def run(
    options: KafkaOptions,
    topic: str,
    rate: float,
    duration: float | None,
    count: int | None,
    keys: int,
    producers: int,
    size: int,
    history: Path | None,
    observe: float,
    timeout: float,
    allow: tuple[str, ...],
    output: str,
) -> None:
    """Produce and consume, then judge what the clients saw.

    Exit code 1: something acknowledged was not kept. 2: nothing was acknowledged, or the run could not be made.
    """
    from kafkalite_cli.kafka import brokers_of
    from kafkalite_cli.verify.load import Load

    if count is None and duration is None:
        duration = 10.0
    settings = {name: value for name, value in options.properties.items() if name != "bootstrap.servers"}
    try:
        with _history_file(history) as path:
            brokers = brokers_of(options)
            load = Load(
                brokers.bootstrap,
                topic,
                rate,
                keys=keys,
                size=size,
                count=count,
                producers=producers,
                history=path,
                observe_s=observe,
                producer_config=settings,
                consumer_config=settings,
                say=brokers.say,
            )
            load.start()
            try:
                _watch(load, duration, count)
            finally:
                load.stop(timeout)
            report = load.report(allow)
    except KafkaLiteError as error:
        no_verdict(str(error))
    except Failure as error:
        no_verdict(error.message)
    except OSError as error:
        no_verdict(os_words(error))
    _show(report, load.errors, output)


@contextlib.contextmanager
def _history_file(named: Path | None) -> Iterator[Path]:
    """The file that was asked for, or one that is gone afterwards: a run may be longer than memory is large."""
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="kafkalite-verify-") as folder:
        yield Path(folder) / "history.jsonl"


@verify.command()
@click.argument("histories", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@allow_option
@output_option
def check(histories: tuple[Path, ...], allow: tuple[str, ...], output: str) -> None:
    """Judge histories that earlier runs wrote.

    Exit code 1: at least one of them has an anomaly. 2: none has, and in one of them nothing was acknowledged, or it
    ends before the final read did.
    """
    reports = {}
    try:
        with _progress() as progress:
            for path in histories:
                reports[str(path)] = _check_file(path, allow, progress)
    except KafkaLiteError as error:
        no_verdict(str(error))
    ok = all(report.ok or report.broken_off for report in reports.values())
    if ok and (empty := [name for name, report in reports.items() if not report.acked]):
        no_verdict(f"{', '.join(empty)}: nothing was acknowledged, so there is nothing to judge")
    if ok and (broken_off := [name for name, report in reports.items() if report.broken_off]):
        no_verdict(
            f"{', '.join(broken_off)}: the history ends before its final read did, as of a run that was killed: "
            "what was acknowledged may be there or not"
        )
    if output == "json":
        sys.stdout.write(msgspec.json.encode(reports).decode() + "\n")
    else:
        for name, report in reports.items():
            _print(report, name)
    sys.exit(0 if ok else 1)


def _check_file(path: Path, allow: tuple[str, ...], progress: Progress) -> Report:
    checker = Checker(allow)
    task = progress.add_task(path.name, total=None)
    for events in read_history_parts(path):
        checker.feed(events)
        progress.advance(task, len(events))
    return checker.report()


def _progress() -> Progress:
    """On standard error and only for a terminal: standard output belongs to the verdict."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)


def _watch(load: Load, duration: float | None, count: int | None) -> None:
    """Show progress until the run is over; an interrupt ends it early and the history is judged all the same."""
    limit = None if duration is None else time.monotonic() + duration
    total = count if count is not None else round(load.rate * (duration or 0)) or None
    try:
        with _progress() as progress:
            task = progress.add_task("acknowledged", total=total)
            while limit is None or time.monotonic() < limit:
                step_s = 0.2 if limit is None else min(0.2, max(0.0, limit - time.monotonic()))
                ended = load.wait_produced(step_s)
                progress.update(task, completed=load.acks.count)
                if ended:
                    break
    except KeyboardInterrupt:
        click.echo("interrupted: judging what there is", err=True)


def _show(report: Report, errors: Mapping[str, int], output: str) -> NoReturn:
    """`errors`: what the clients were told, and how often."""
    if report.ok and not report.acked:
        seen = ", ".join(f"{name} {count:,}" for name, count in sorted(errors.items())) or "no error"
        no_verdict(
            f"nothing was acknowledged, so there is nothing to judge: {report.unknown:,} records without an answer, "
            f"{report.failed:,} refused; the clients saw {seen}"
        )
    if output == "json":
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        _print(report, "verdict")
    sys.exit(0 if report.ok else 1)


def _print(report: Report, title: str) -> None:
    console = Console()
    if report.examples:
        table = Table("anomaly", "count", "partition", "offset", "record", "what was seen")
        for example in report.examples:
            counted = str(report.counts[example.kind])
            table.add_row(
                example.kind, counted, str(example.partition), str(example.offset), example.record, example.text
            )
        console.print(table)
    anomalies = sum(report.counts.values())
    nothing = report.broken_off or (report.ok and not report.acked)
    verdict = "NO VERDICT" if nothing else "OK" if report.ok else "BROKEN"
    console.print(
        f"{title}: {verdict}: {report.acked:,} acknowledged, {report.unknown:,} unknown, "
        f"{report.failed:,} refused, {report.read:,} read on {report.partitions} partitions, {anomalies:,} anomalies; "
        f"longest pause between acknowledgements {report.longest_ack_gap_ms:,.0f} ms",
        highlight=False,
        soft_wrap=True,
    )
