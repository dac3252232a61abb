"""`kafkalite doctor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kafkalite_cli.options import KubeOptions, kube_options
from kafkalite_cli.output import print_json, printable

if TYPE_CHECKING:
    from kafkalite_cli.doctor.model import Finding
    from kafkalite_cli.pasting import Commands
    from kafkalite_runtime.kube import Kind, KubeClient

JsonObject = dict[str, Any]
SHOWN_MAX = 30
ITEMS_SHOWN = 200


@click.command()
@kube_options
@click.option("--all", "everything", is_flag=True, help="Every finding, with everything that it is about.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: each finding with a code.",
)
def doctor(options: KubeOptions, everything: bool, output: str) -> None:
    r"""Say what is wrong with a cluster, why, and what to do.

    Reads the custom resources, Leases, pods, the StatefulSet, volume claims and Events; changes nothing.
    Exit code 0: nothing is wrong. 1: something is. 2: it could not be asked.

    \b
    Examples:
      kafkalite doctor
      kubectl kafkalite doctor -n kafka --context prod
      kafkalite doctor -o json | jq -r '.findings[] | select(.severity == "problem") | .what'
    """
    from kafkalite_cli.connection import ask, choose_target
    from kafkalite_cli.doctor.gather import CannotAsk
    from kafkalite_cli.errors import Failure
    from kafkalite_cli.pasting import Commands

    try:
        say = Commands.of(options, choose_target(options))
        document, findings = ask(options, lambda client, space: _examine(client, space, options.cluster, say))
    except CannotAsk:
        raise
    except Failure as error:
        raise CannotAsk(error.message) from error
    problems = [each for each in findings if each.severity == "problem"]
    if output == "json":
        print_json(
            document | {"healthy": not problems, "findings": [_entry(each, everything=everything) for each in findings]}
        )
    else:
        _print(document, findings, everything=everything)
    sys.exit(1 if problems else 0)


async def _examine(
    client: KubeClient, namespace: str | None, cluster: str | None, say: Commands
) -> tuple[JsonObject, list[Finding]]:
    from kafkalite_cli.doctor import definitions, gather, topics
    from kafkalite_runtime.kube import BROKERS, CLUSTERS, TOPICS

    reader = gather.Reader(client, namespace)
    found = await gather.read_main(reader)
    findings = list(definitions.missing([kind.plural for kind, items in found.items() if items is None], say))
    served = await reader.wanted(gather.DEFINITIONS)
    findings += definitions.check(served or [], say)
    everything = found[CLUSTERS] or []
    chosen = [each for each in everything if cluster in {None, each["metadata"]["name"]}]
    for each in chosen:
        place = say.about(each["metadata"]["namespace"], each["metadata"]["name"], several=len(chosen) > 1)
        findings += await _examine_one(reader, each, found, place)
    if cluster is None and found[CLUSTERS] is not None:
        places = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in everything}
        findings += topics.orphans(found[TOPICS] or [], places, found[BROKERS] or [], say)
    if not chosen and found[CLUSTERS] is not None:
        findings.append(_nothing_here(namespace, cluster))
    findings += [each for at, each in enumerate(reader.notes) if each not in reader.notes[:at]]
    findings.sort(key=lambda each: each.severity != "problem")
    names = [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in chosen]
    return {"clusters": names, "topics": len(found[TOPICS] or []), "brokers": len(found[BROKERS] or [])}, findings


async def _examine_one(
    reader: Any,
    cluster: JsonObject,
    found: dict[Kind, list[JsonObject] | None],
    say: Commands,
) -> list[Finding]:
    from kafkalite_cli.doctor import brokers, operators, partitions, told, topics
    from kafkalite_cli.doctor.gather import read_evidence

    evidence = await read_evidence(reader, cluster, found, say)
    return [each for part in (operators, told, brokers, partitions, topics) for each in part.check(evidence)]


def _nothing_here(namespace: str | None, cluster: str | None) -> Finding:
    from kafkalite_cli.doctor.model import Finding

    where = f"namespace {namespace}" if namespace else "any namespace"
    return Finding(
        code="NoCluster",
        about="kafkalitecluster",
        what=f"there is no KafkaLiteCluster{f' {cluster!r}' if cluster else ''} in {where}",
        why="none was made, or it is somewhere else",
        todo="name the place with -n, --cluster or --context (-A looks everywhere), or make a cluster",
    )


def _entry(finding: Finding, *, everything: bool) -> JsonObject:
    items = list(finding.items)
    return {
        "severity": finding.severity,
        "code": finding.code,
        "about": finding.about,
        "what": finding.what,
        "why": finding.why,
        "todo": finding.todo,
        "itemCount": len(items),
        "items": items if everything else items[:ITEMS_SHOWN],
    }


def _print(document: JsonObject, findings: list[Finding], *, everything: bool) -> None:
    problems = [each for each in findings if each.severity == "problem"]
    notes = [each for each in findings if each.severity != "problem"]
    shown = findings if everything else findings[:SHOWN_MAX]
    for finding in shown:
        bad = finding.severity == "problem"
        click.echo(click.style("✗ " if bad else "· ", fg="red" if bad else None) + printable(finding.what))
        for word, text in (("why ", finding.why), ("do  ", finding.todo)):
            if text:
                click.echo(f"    {word} {printable(text)}")
        if everything and len(finding.items) > 5:
            for item in finding.items:
                click.echo(f"         {printable(item)}")
    if len(findings) > len(shown):
        click.echo(f"… and {len(findings) - len(shown):,} more (--all shows them)")
    where = ", ".join(document["clusters"]) or "no cluster"
    sizes = f"{document['brokers']} brokers, {document['topics']:,} topics"
    verdict = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}" if problems else "nothing is wrong"
    more = f", {len(notes)} note{'s' if len(notes) != 1 else ''}" if notes else ""
    click.echo(click.style(f"{where}: {verdict}{more} ({sizes})", bold=True))
