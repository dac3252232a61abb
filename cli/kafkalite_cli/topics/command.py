"""`kafkalite topics list|describe|create|alter|delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkalite_cli.errors import Failure
from kafkalite_cli.options import KubeOptions, kube_options, output_option, pairs, yes_option
from kafkalite_cli.output import confirm, note, print_json, print_table, printable, size_text, stderr_console, warn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkalite_cli.local_mode.progress import Steps
    from kafkalite_cli.topics.objects import Topics

JsonObject = dict[str, Any]
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=30, show_default=True, help="Seconds to wait for the effect."
)


@click.group()
def topics() -> None:
    r"""List, describe, create, alter and delete topics.

    Topics are custom resources: what `kubectl get klt` shows is the same, and a kubeconfig is all that is needed.

    \b
    Examples:
      kafkalite topics create orders --partitions 6 --config min.insync.replicas=2
      kafkalite topics list
      kafkalite topics describe orders
      kafkalite topics alter orders --partitions 12 --config retention.ms=3600000
      kafkalite topics delete orders
    """


def _run(options: KubeOptions, work: Callable[[Topics], Awaitable[JsonObject | None]]) -> JsonObject | None:
    """Run `work` against the API server that was chosen. Raises Failure in plain words."""
    from kafkalite_cli.connection import ask
    from kafkalite_cli.pasting import Commands
    from kafkalite_cli.topics.objects import Topics

    say = Commands.of(options)
    return ask(options, lambda client, space: work(Topics(client, namespace=space, cluster=options.cluster, say=say)))


def _steps() -> Steps:
    from kafkalite_cli.local_mode.progress import Steps

    return Steps(stderr_console())


# --- list ------------------------------------------------------------------------------------------------------------


@topics.command("list")
@kube_options
@click.option("--exclude-internal", is_flag=True, help="Without the brokers' own topics (__consumer_offsets).")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "name"]),
    default="table",
    show_default=True,
    help="name: names alone, one a line.",
)
def list_(options: KubeOptions, exclude_internal: bool, output: str) -> None:
    r"""List topics.

    \b
    Examples:
      kafkalite topics list
      kafkalite topics list -o json | jq -r '.[] | select(.ready | not) | .name'
    """
    from kafkalite_cli.snapshot import topic_name
    from kafkalite_cli.topics import views

    async def work(topics: Topics) -> JsonObject:
        return {"items": await topics.list()}

    found = (_run(options, work) or {})["items"]
    shown = [each for each in found if not (exclude_internal and views.is_internal(topic_name(each)))]
    if output == "json":
        print_json([views.summary(each) for each in shown])
    elif output == "name":
        for each in shown:
            click.echo(topic_name(each))
    else:
        print_table(views.list_rows(shown), empty="no topics")


# --- describe --------------------------------------------------------------------------------------------------------


@topics.command()
@kube_options
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@click.option("--under-replicated", is_flag=True, help="Only partitions with a replica that is not in sync.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option("--under-min-isr", is_flag=True, help="Only partitions below min.insync.replicas.")
@click.option("--all-config", is_flag=True, help="Every key with the value in force and who set it.")
@output_option
def describe(options: KubeOptions, names: tuple[str, ...], all_config: bool, output: str, **problems: bool) -> None:
    r"""Show partitions, leaders, ISR, epochs, sizes, configuration and conditions.

    Without names: of all topics. The size is that of the leader's log, where the broker answers at once.

    \b
    Examples:
      kafkalite topics describe orders
      kafkalite topics describe --under-replicated
      kafkalite topics describe orders --all-config
      kafkalite topics describe orders -o json | jq '.[0].partitions[] | {partition, leader, sizeBytes}'
    """
    from kafkalite_cli.topics import views

    async def work(topics: Topics) -> JsonObject:
        import asyncio

        found = [await topics.find(name) for name in names] if names else await topics.list()
        brokers, clusters = await asyncio.gather(topics.brokers(), topics.clusters())
        return {"topics": found, "brokers": brokers, "clusters": clusters}

    wanted = [name for name in views.PROBLEMS if problems[name.replace("-", "_")]]
    read = _run(options, work) or {}
    documents = _describe(read)
    if wanted:
        for document in documents:
            document["partitions"] = [
                each for each in document["partitions"] if any(views.has_problem(each, problem) for problem in wanted)
            ]
        documents = [document for document in documents if document["partitions"]]
    if output == "json":
        print_json(documents)
        return
    if not documents:
        note(f"no {' or '.join(wanted)} partitions" if wanted else "no topics")
    for position, document in enumerate(documents):
        if position:
            click.echo()
        _print_topic(document, all_config=all_config)


def _describe(read: JsonObject) -> list[JsonObject]:
    from kafkalite_cli.snapshot import topic_name
    from kafkalite_cli.topics import sizes, views
    from kafkalite_cli.topics.objects import cluster_of

    wanted: dict[str, dict[str, list[int]]] = {}
    for topic in read["topics"]:
        numbers = [int(number) for number in (topic.get("status") or {}).get("partitions") or {}]
        wanted.setdefault(cluster_of(topic), {})[topic_name(topic)] = numbers
    by_cluster = {
        cluster: sizes.read_sizes(sizes.addresses_of(read["brokers"], cluster), topics)
        for cluster, topics in wanted.items()
    }
    return [
        views.description(
            topic,
            by_cluster[cluster_of(topic)],
            read["clusters"].get((topic["metadata"].get("namespace"), cluster_of(topic))),
        )
        for topic in read["topics"]
    ]


def _print_topic(document: JsonObject, *, all_config: bool) -> None:
    click.echo(
        click.style(f"topic {document['name']}", bold=True)
        + f"   id {document['topicId'] or '-'}   partitions {document['partitionCount']}"
        + f"   replicas {document['replicas']}   cluster {document['cluster']}"
        + (f"   size {size_text(document['sizeBytes'])}" if document["sizeBytes"] is not None else "")
    )
    rows = [
        {
            "partition": entry["partition"],
            "leader": entry["leader"],
            "leader epoch": entry["leaderEpoch"],
            "replicas": _ids(entry["replicas"]),
            "isr": _ids(entry["isr"]),
            "size": size_text(entry["sizeBytes"]),
        }
        for entry in document["partitions"]
    ]
    print_table(rows, empty="no partitions yet")
    if all_config:
        print_table([{"config": key} | value for key, value in document["effectiveConfig"].items()])
    elif document["config"]:
        click.echo("config  " + "  ".join(f"{key}={printable(value)}" for key, value in document["config"].items()))
    keys = {"type": "condition", "status": "status", "reason": "reason", "message": "message"}
    print_table([{title: each[key] for key, title in keys.items()} for each in document["conditions"]])


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids)) or "-"


# --- create ----------------------------------------------------------------------------------------------------------


def _assignment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[int, list[int]]:
    """`0:1:2,1:2:0` as Kafka writes it: partitions separated by commas, brokers by colons."""
    if value is None:
        return {}
    try:
        return {number: [int(each) for each in part.split(":")] for number, part in enumerate(value.split(","))}
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not of the form 0:1:2,1:2:0 (brokers of partition 0, of 1, …)"
        ) from None


@topics.command()
@kube_options
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", type=click.IntRange(min=1, max=256), help="Default: the cluster's num.partitions.")
@click.option("--replicas", type=click.IntRange(min=1, max=16), help="Default: default.replication.factor.")
@click.option("--config", callback=pairs, multiple=True, metavar="KEY=VALUE", help="A topic key. Repeatable.")
@click.option("--assignment", callback=_assignment, metavar="0:1:2,1:2:0", help="Brokers of each partition, by hand.")
@click.option(
    "--deletion-policy",
    type=click.Choice(["Delete", "Retain"]),
    help="How long its data are kept when it is deleted: an hour, or with Retain 7 days. Default: Delete.",
)
@click.option("--if-not-exists", is_flag=True, help="No error when there is such a topic.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has leaders.")
@timeout_option
def create(
    options: KubeOptions,
    name: str,
    partitions: int | None,
    replicas: int | None,
    config: list[tuple[str, str]],
    assignment: dict[int, list[int]],
    deletion_policy: str | None,
    if_not_exists: bool,
    no_wait: bool,
    timeout: float,
) -> None:
    r"""Create a topic and wait until all its partitions have a leader.

    \b
    Examples:
      kafkalite topics create orders
      kafkalite topics create orders --partitions 6 --replicas 3 --config min.insync.replicas=2
      kafkalite topics create state --config cleanup.policy=compact --if-not-exists
      kafkalite topics create pinned --assignment 0:1:2,1:2:0
    """
    from kafkalite_cli.topics import objects

    wanted = objects.NewTopic(
        name=name,
        partitions=partitions,
        replicas=replicas,
        config=dict(config),
        assignment=assignment,
        deletion_policy=deletion_policy,
    )

    async def work(topics: Topics) -> JsonObject | None:
        try:
            made = await topics.create(wanted)
        except objects.AlreadyExists:
            if if_not_exists:
                return None
            raise
        if no_wait:
            return made
        with _steps() as steps:
            steps.begin(f"topic {name}")
            return await topics.wait(made, objects.waits_for, timeout_s=timeout, tell=steps.waiting)

    made = _run(options, work)
    if made is None:
        click.echo(f"topic {name} exists already")
        return
    spec = made["spec"]
    click.echo(f"topic {name} created ({spec.get('partitions', 1)} partitions, {spec.get('replicas', 3)} replicas)")
    if "." in name and "_" in name:
        warn("Kafka's metrics do not tell names apart that differ only in '.' and '_'")


# --- alter -----------------------------------------------------------------------------------------------------------


@topics.command()
@kube_options
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", type=click.IntRange(min=1, max=256), help="Their number can only grow.")
@click.option("--replicas", type=click.IntRange(min=1, max=16), help="Replicas are added or removed; waits for it.")
@click.option("--config", callback=pairs, multiple=True, metavar="KEY=VALUE", help="Set a topic key. Repeatable.")
@click.option("--delete-config", multiple=True, metavar="KEY", help="Go back to the default. Repeatable.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the operator.")
@timeout_option
def alter(
    options: KubeOptions,
    name: str,
    partitions: int | None,
    replicas: int | None,
    config: list[tuple[str, str]],
    delete_config: tuple[str, ...],
    no_wait: bool,
    timeout: float,
) -> None:
    r"""Change the number of partitions or replicas, or the configuration of a topic.

    Which brokers the replicas are on: `kafkalite reassign`.

    \b
    Examples:
      kafkalite topics alter orders --partitions 12
      kafkalite topics alter orders --replicas 3 --timeout 600
      kafkalite topics alter orders --config retention.ms=3600000 --config segment.bytes=1048576
      kafkalite topics alter orders --delete-config retention.ms
    """
    from kafkalite_cli.topics import objects

    settings: dict[str, str | None] = dict(config)
    if both := sorted(set(settings) & set(delete_config)):
        raise click.UsageError(f"{', '.join(both)}: set or deleted?")
    settings |= dict.fromkeys(delete_config)
    if partitions is None and replicas is None and not settings:
        raise click.UsageError("say what to change: --partitions, --replicas, --config or --delete-config")
    waits_for = objects.waits_for if replicas is None else objects.waits_for_replicas

    async def work(topics: Topics) -> JsonObject:
        topic = await topics.find(name)
        changed = await topics.alter(topic, objects.Change(partitions=partitions, replicas=replicas, config=settings))
        if not no_wait:
            with _steps() as steps:
                steps.begin(f"topic {name}")
                await topics.wait(changed, waits_for, timeout_s=timeout, tell=steps.waiting)
        return {"before": topic["spec"], "after": changed["spec"]}

    specs = _run(options, work) or {}
    if specs["before"] == specs["after"]:
        click.echo(f"topic {name} unchanged")
        return
    click.echo(f"topic {name} altered")
    if specs["before"].get("partitions") != specs["after"].get("partitions"):
        warn("keys may go to other partitions from now on than before")


# --- delete ----------------------------------------------------------------------------------------------------------


@topics.command()
@kube_options
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@yes_option
@click.option("--if-exists", is_flag=True, help="No error when there is no such topic.")
@click.option("--internal", is_flag=True, help="Allow a topic that the brokers made for themselves.")
@timeout_option
def delete(
    options: KubeOptions, names: tuple[str, ...], yes: bool, if_exists: bool, internal: bool, timeout: float
) -> None:
    r"""Delete topics. Asks first, unless told --yes.

    \b
    Examples:
      kafkalite topics delete orders
      kafkalite topics delete orders payments --yes --if-exists
    """
    from kafkalite_cli.snapshot import topic_name
    from kafkalite_cli.topics import views

    if mine := [name for name in names if views.is_internal(name) and not internal]:
        raise Failure(f"{', '.join(mine)} belongs to the brokers: say --internal if you mean it")

    async def find(topics: Topics) -> JsonObject:
        found = {}
        everything = {topic_name(each) for each in await topics.list()}
        for name in names:
            if name in everything or not if_exists:
                found[name] = await topics.find(name)
        return found

    async def work(topics: Topics) -> None:
        for topic in found.values():
            await topics.delete(topic)
        with _steps() as steps:
            for name, topic in found.items():
                steps.begin(f"deleting {name}")
                await topics.wait_gone(topic, timeout_s=timeout)

    found = _run(options, find) or {}
    for name in names:
        if name not in found:
            click.echo(f"topic {name} does not exist")
    if not found:
        return
    if not yes:
        many = f"{len(found)} topics ({', '.join(found)})" if len(found) > 1 else f"topic {next(iter(found))}"
        confirm(f"Delete {many} and all records?")
    _run(options, work)
    for name in found:
        click.echo(f"topic {name} deleted")
