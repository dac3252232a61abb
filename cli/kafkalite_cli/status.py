"""`kafkalite status`."""

from typing import Any

import click

from kafkalite_cli import snapshot as views
from kafkalite_cli.connection import choose_target, scope_of, with_client
from kafkalite_cli.local_mode.processes import Process, display_name, list_processes, record_name
from kafkalite_cli.manifests import plain_words
from kafkalite_cli.options import KubeOptions
from kafkalite_cli.output import print_json, print_table, text
from kafkalite_cli.pasting import Commands
from kafkalite_runtime.kube import KubeClient, KubeError, KubeUnavailable

JsonObject = dict[str, Any]
DEADLINE_S = 10.0
PARTITIONS_SHOWN = 100
PROBLEMS_SHOWN = 20


def show(options: KubeOptions, *, as_json: bool, everything: bool = False) -> int:
    """Print the state; exit code 1 when the API server does not answer (the processes are shown all the same)."""
    target = choose_target(options)
    processes = list_processes(target.home) if target.home else None
    problem = ""
    snapshot = views.Snapshot()

    async def read(client: KubeClient) -> views.Snapshot:
        space = scope_of(target, client, options)
        return await views.read_snapshot(client, space, deadline_s=DEADLINE_S, pods=False)

    try:
        snapshot = with_client(target, read)
    except KubeUnavailable as error:
        problem = target.outage(error)
    except KubeError as error:
        problem = plain_words(error)
    document = describe(snapshot, processes)
    if as_json:
        print_json(document)
    else:
        _print(document, snapshot, Commands.of(options), known=not problem, everything=everything)
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
    brokers = sorted(snapshot.brokers, key=lambda each: (*views.place_of(each), int(each["spec"]["brokerId"])))
    document["brokers"] = [views.describe_broker(broker, pids.get(_process(broker))) for broker in brokers]
    topics = _sorted(snapshot.topics)
    document["topics"] = [views.describe_topic(topic) for topic in topics]
    return document


def _process(broker: JsonObject) -> str:
    """Name of the process of a broker on this machine: clusters have brokers of the same ids."""
    return display_name(record_name(broker["metadata"].get("namespace") or "default", broker["metadata"]["name"]))


def _sorted(topics: list[JsonObject]) -> list[JsonObject]:
    return sorted(topics, key=lambda topic: (*views.place_of(topic), views.topic_name(topic)))


def unplaced(snapshot: views.Snapshot, *, several: bool = False) -> list[JsonObject]:
    """Topics without partitions, and why: for people, who need to know what to correct."""
    rows: list[JsonObject] = []
    for topic in _sorted(snapshot.topics):
        if not (topic.get("status") or {}).get("partitions"):
            ready = views.condition(topic, "Ready")
            why = ready.get("message") or "not yet seen by the operator"
            whose = _placed(views.describe_topic(topic), several=several)
            rows.append(whose | {"topic": views.topic_name(topic), "reason": ready.get("reason"), "message": why})
    return rows


def _print(document: JsonObject, snapshot: views.Snapshot, say: Commands, *, known: bool, everything: bool) -> None:
    names = {_name(cluster) for cluster in snapshot.clusters}
    several = len(names | {"/".join(views.place_of(each)) for each in (*snapshot.brokers, *snapshot.topics)}) > 1
    if known:
        heads: list[JsonObject | None] = [*snapshot.clusters]
        for cluster in heads or [None]:
            _head(cluster, several=several)
    _table("processes", document.get("processes", []))
    _table("brokers", [_placed(each, several=several) | table_row(each) for each in document["brokers"]])
    partitions = [
        _placed(topic, several=several)
        | {"topic": topic["name"]}
        | partition
        | {"replicas": _ids(partition["replicas"]), "isr": _ids(partition["isr"])}
        for topic in document["topics"]
        for partition in topic["partitions"]
    ]
    if known and not partitions:
        click.echo("no partitions")
    elif everything or len(partitions) <= PARTITIONS_SHOWN:
        _table("partitions", partitions)
    else:
        _many(document["topics"], partitions, say)
    if without_partitions := unplaced(snapshot, several=several):
        _table("topics without partitions", without_partitions if everything else without_partitions[:PROBLEMS_SHOWN])
        _rest(len(without_partitions), everything=everything)


def _head(cluster: JsonObject | None, *, several: bool) -> None:
    """A cluster's own line, and why it is not healthy; its namespace where there are several."""
    said = views.describe_cluster(cluster)
    name = _name(cluster) if cluster and several else said["cluster"]
    controller = said["controller"]
    click.echo(
        f"cluster {name or '-'}   bootstrap {said['bootstrap'] or '-'}   "
        f"controller {controller['holder'] or '-'} (epoch {text(controller['epoch'])})"
    )
    healthy = views.condition(cluster, "Healthy") if cluster else {}
    if healthy.get("status") == "False":
        click.echo(f"not healthy ({healthy.get('reason')}): {healthy.get('message')}")


def _name(cluster: JsonObject) -> str:
    return f"{cluster['metadata'].get('namespace') or 'default'}/{cluster['metadata']['name']}"


def _placed(entry: JsonObject, *, several: bool) -> JsonObject:
    """The column that says whose a broker or topic of the document is; clusters have ids and names in common."""
    return {"cluster": f"{entry['namespace']}/{entry['cluster']}"} if several else {}


def table_row(broker: JsonObject) -> JsonObject:
    """A broker's line of the table: how far a recovery is stands beside the state."""
    row = {name: value for name, value in broker.items() if name not in {"namespace", "cluster", "recovery"}}
    if broker["recovery"] is not None:
        row["state"] = f"{row['state']} ({text(broker['recovery']['remainingLogs'])} logs left)"
    return row


def _many(topics: list[JsonObject], partitions: list[JsonObject], say: Commands) -> None:
    """Too many to read: what needs somebody, and a line that counts the rest."""
    wanting = [row for row in partitions if row["leader"] < 0 or _members(row["isr"]) < _members(row["replicas"])]
    wanting.sort(key=lambda row: row["leader"] >= 0)
    if wanting:
        _table("partitions that need somebody", wanting[:PROBLEMS_SHOWN])
        _rest(len(wanting))
    offline = sum(row["leader"] < 0 for row in partitions)
    click.echo(
        f"{len(partitions):,} partitions of {len(topics):,} topics: {offline:,} without a leader, "
        f"{len(wanting) - offline:,} under-replicated (--all shows every one, `{say.kafkalite('doctor')}` says why)"
    )


def _rest(total: int, *, everything: bool = False) -> None:
    if total > PROBLEMS_SHOWN and not everything:
        click.echo(f"… and {total - PROBLEMS_SHOWN:,} more")


def _table(title: str, rows: list[JsonObject]) -> None:
    if rows:
        click.echo(click.style(title, italic=True))
        print_table(rows)


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def _members(ids: str) -> int:
    return ids.count(",") + 1 if ids else 0
