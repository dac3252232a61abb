"""`kafkalite verify record-metadata`, `check-metadata` and `replicas`: what brokers and operator did to the state."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec
from rich.console import Console
from rich.table import Table

from kafkalite_cli.connection import choose_target, with_client
from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import os_words
from kafkalite_cli.options import KubeOptions, NonEmpty, context_option, kubeconfig_option
from kafkalite_cli.verify.metadata_checker import check_metadata
from kafkalite_cli.verify.replicas import compare_clusters
from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.storage.identity import IDENTITY_FILE
from kafkalite_runtime.home import Home
from kafkalite_runtime.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite_cli.verify.metadata_checker import MetadataReport
    from kafkalite_runtime.kube import KubeClient

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the verdict.",
)

BARE = "no high watermark was written down, all of it was compacted, or one directory alone has it"
"""Why nothing of a partition with records was compared."""


def no_verdict(why: str) -> NoReturn:
    """End with exit code 2."""
    click.echo(f"error: {why}", err=True)
    sys.exit(2)


@click.command("record-metadata")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--duration", type=click.FloatRange(min=0), help="Seconds to record for.  [default: until Ctrl-C]")
@click.option("-n", "--namespace", type=NonEmpty("namespace"), help="Namespace of the cluster.  [default: all]")
@kubeconfig_option
@context_option
def record_metadata(
    file: Path, duration: float | None, namespace: str | None, kubeconfig: Path | None, context: str | None
) -> None:
    r"""Write down every change of topics, brokers and clusters, for `check-metadata`.

    \b
    Examples:
      kafkalite verify record-metadata metadata.jsonl
      kafkalite verify record-metadata metadata.jsonl --duration 60 -n kafka
    """
    from kafkalite_cli.verify.metadata_recorder import record

    configure_logging("recorder", json=False)  # to standard error: why the recording stands still

    async def work(client: KubeClient) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        if duration is not None:
            loop.call_later(duration, stop.set)
        return await record(client, namespace, file, stop, lambda: click.echo(f"recording to {file}", err=True))

    try:
        changes = with_client(choose_target(KubeOptions(kubeconfig=kubeconfig, context=context)), work)
    except Failure as error:
        no_verdict(error.message)
    except KafkaLiteError as error:
        no_verdict(str(error))
    except OSError as error:
        no_verdict(os_words(error))
    if not changes:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        no_verdict(f"nothing was recorded: there is no topic, broker or cluster {where}")
    click.echo(f"{changes} changes recorded", err=True)


@click.command("check-metadata")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--allow", multiple=True, metavar="KIND", help="An anomaly that does not spoil the verdict.")
@output_option
def check_metadata_files(files: tuple[Path, ...], allow: tuple[str, ...], output: str) -> None:
    """Judge recorded changes: epochs, leaders and in-sync replicas.

    Exit code 1: a rule was broken. 2: none was, and a file has no changes, or no brokers to judge them by.
    """
    try:
        reports = {str(path): check_metadata(path, allow) for path in files}
    except KafkaLiteError as error:
        no_verdict(str(error))
    ok = all(report.ok for report in reports.values())
    if ok and (unjudged := [f"{name}: {why}" for name, report in reports.items() if (why := _unjudged(report))]):
        no_verdict("; ".join(unjudged))
    if output == "json":
        sys.stdout.write(msgspec.json.encode(reports).decode() + "\n")
    else:
        for name, report in reports.items():
            _print_metadata(name, report)
    sys.exit(0 if ok else 1)


def _unjudged(report: MetadataReport) -> str:
    """Why a report without anomaly proves nothing; empty when it does."""
    if not report.changes:
        return "no change was recorded"
    if report.partition_changes and not report.brokers:
        return "no broker was recorded, so the rules about who may lead and be in sync were not judged"
    return ""


def _print_metadata(name: str, report: MetadataReport) -> None:
    console = Console()
    if report.examples:
        table = Table("anomaly", "count", "where", "version", "what was seen")
        for example in report.examples:
            counted = str(report.counts[example.kind])
            table.add_row(example.kind, counted, example.name, str(example.version), example.text)
        console.print(table)
    verdict = "BROKEN" if not report.ok else "NO VERDICT" if _unjudged(report) else "OK"
    console.print(
        f"{name}: {verdict}: {report.changes:,} changes, {report.partition_changes:,} of "
        f"partitions, {report.elections:,} elections ({report.unclean_elections} unclean, {report.unjudged} unjudged), "
        f"{report.isr_shrinks:,} shrinks and {report.isr_expands:,} expansions of ISRs, {report.brokers} brokers, "
        f"{report.gaps} gaps, {sum(report.counts.values()):,} anomalies",
        highlight=False,
        soft_wrap=True,
    )


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@output_option
def replicas(directories: tuple[Path, ...], topics: tuple[str, ...], output: str) -> None:
    r"""Compare the brokers' data directories: equal bytes below the high watermarks. Exit code 1: a difference.

    DIRECTORIES are one for each broker; by default those of the local clusters of this directory. Brokers may run.
    Each cluster is compared by itself.

    \b
    Examples:
      kafkalite verify replicas
      kafkalite verify replicas /mnt/broker-0 /mnt/broker-1 /mnt/broker-2 -t orders
    """
    local = Home.from_environment(os.environ).volumes
    folders = directories or tuple(sorted(path.parent for path in local.glob(f"[!.]*/{IDENTITY_FILE}")))
    try:
        if not folders:
            raise KafkaLiteError("no data directories: name them, or start a local cluster")
        report = compare_clusters(folders, topics=set(topics) or None)
    except KafkaLiteError as error:
        no_verdict(str(error))
    if report.ok and not report.partitions:
        no_verdict(f"nothing was compared: {_why_nothing(folders, topics)}")
    if report.ok and report.uncompared and not report.records:
        more = f" and {len(report.uncompared) - 3:,} more" if len(report.uncompared) > 3 else ""
        no_verdict(f"nothing was compared of {', '.join(report.uncompared[:3])}{more} ({BARE})")
    if output == "json":
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        for example in report.examples:
            click.echo(
                f"{example.kind}: {example.topic}-{example.partition} at offset {example.offset}: {example.text}"
            )
        for name in report.uncompared:
            click.echo(f"{name}: nothing to compare ({BARE})")
        verdict = "OK" if report.ok else "BROKEN"
        click.echo(
            f"replicas: {verdict}: {report.partitions:,} partitions, {report.records:,} offsets in {report.batches:,} "
            f"batches ({report.bytes:,} bytes) compared, {sum(report.counts.values()):,} differences"
        )
    sys.exit(0 if report.ok else 1)


def _why_nothing(folders: Sequence[Path], topics: tuple[str, ...]) -> str:
    if len(folders) < 2:
        return "one data directory has nothing to be compared with"
    return f"no two directories have replicas of {' or '.join(topics) or 'a partition'}"
