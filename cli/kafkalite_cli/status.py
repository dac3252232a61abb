"""`kafkalite status`."""

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from kafkalite_cli import snapshot as views
from kafkalite_cli.connection import choose_target, with_client
from kafkalite_cli.local_mode.processes import Process, list_processes
from kafkalite_cli.manifests import plain_words
from kafkalite_runtime.kube import KubeError, KubeUnavailable

JsonObject = dict[str, Any]
DEADLINE_S = 3.0


def show(kubeconfig: Path | None, namespace: str | None, *, as_json: bool) -> int:
    """Print the state; exit code 1 when the API server does not answer (the processes are shown all the same)."""
    target = choose_target(kubeconfig)
    processes = list_processes(target.home) if target.home else None
    problem = ""
    snapshot = views.Snapshot()
    try:
        snapshot = with_client(target, lambda client: views.read_snapshot(client, namespace, deadline_s=DEADLINE_S))
    except (KubeError, KubeUnavailable) as error:
        problem = plain_words(error)
    document = describe(snapshot, processes)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        _print(document, unplaced(snapshot), Console(), known=not problem)
    if problem:
        if target.home and not any(process.alive for process in processes or []):
            problem = f"the cluster in {target.home.root} is not running (`kafkalite up` starts it)"
        click.secho(problem, fg="red", err=True)
        return 1
    return 0


def describe(snapshot: views.Snapshot, processes: list[Process] | None) -> JsonObject:
    """The document of `-o json`; without `processes` for clusters that are not on this machine."""
    cluster = snapshot.clusters[0] if snapshot.clusters else None
    pids = {process.name: process.record.pid for process in processes or [] if process.alive}
    document = views.describe_cluster(cluster)
    if processes is not None:
        document["processes"] = [
            {"name": process.name, "pid": process.record.pid if process.alive else None, "state": process.state}
            for process in processes
        ]
    brokers = sorted(snapshot.brokers, key=lambda broker: int(broker["spec"]["brokerId"]))
    document["brokers"] = [
        views.describe_broker(broker, pids.get(f"broker-{broker['spec']['brokerId']}")) for broker in brokers
    ]
    topics = sorted(snapshot.topics, key=views.topic_name)
    document["topics"] = [views.describe_topic(topic) for topic in topics]
    return document


def unplaced(snapshot: views.Snapshot) -> list[JsonObject]:
    """Topics without partitions, and why: for people, who need to know what to correct."""
    rows: list[JsonObject] = []
    for topic in sorted(snapshot.topics, key=views.topic_name):
        if not (topic.get("status") or {}).get("partitions"):
            ready = views.condition(topic, "Ready")
            why = ready.get("message") or "not yet seen by the operator"
            rows.append({"topic": views.topic_name(topic), "reason": ready.get("reason"), "message": why})
    return rows


def _print(document: JsonObject, without_partitions: list[JsonObject], console: Console, *, known: bool) -> None:
    if known:
        controller = document["controller"]
        console.print(
            f"cluster {document['cluster'] or '-'}   bootstrap {document['bootstrap'] or '-'}   "
            f"controller {controller['holder'] or '-'} (epoch {_text(controller['epoch'])})",
            highlight=False,
            soft_wrap=True,
        )
    for title, rows in (("processes", document.get("processes")), ("brokers", document["brokers"])):
        if rows:
            console.print(_table(rows, title))
    partitions = [
        {"topic": topic["name"]} | partition | {"replicas": _ids(partition["replicas"]), "isr": _ids(partition["isr"])}
        for topic in document["topics"]
        for partition in topic["partitions"]
    ]
    if partitions:
        console.print(_table(partitions, "partitions"))
    elif known:
        console.print("no partitions")
    if without_partitions:
        console.print(_table(without_partitions, "topics without partitions"))


def _table(rows: list[JsonObject], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for key in rows[0]:
        numeric = isinstance(rows[0][key], int)
        table.add_column(key, justify="right" if numeric else "left", no_wrap=key != "message", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def _text(value: object) -> str:
    return "-" if value is None else str(value)
