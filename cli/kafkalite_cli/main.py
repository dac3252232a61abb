"""`kafkalite`: also installed as `kubectl-kafkalite`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from kafkalite_cli.guard import ending_in_plain_words, tolerate_encoding
from kafkalite_cli.options import (
    KubeOptions,
    NonEmpty,
    context_option,
    kubeconfig_option,
    output_option,
    place_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite_runtime.home import Home

LAZY = {
    "topics": ("kafkalite_cli.topics.command", "topics"),
    "groups": ("kafkalite_cli.groups.command", "groups"),
    "reassign": ("kafkalite_cli.reassign.command", "reassign"),
    "rebalance": ("kafkalite_cli.rebalance.command", "rebalance"),
    "restart": ("kafkalite_cli.brokers.command", "restart"),
    "decommission": ("kafkalite_cli.brokers.command", "decommission"),
    "replace": ("kafkalite_cli.brokers.command", "replace"),
    "doctor": ("kafkalite_cli.doctor.command", "doctor"),
    "produce": ("kafkalite_cli.records.command", "produce"),
    "consume": ("kafkalite_cli.records.command", "consume"),
    "verify": ("kafkalite_cli.verify.command", "verify"),
}


def with_examples(command: click.Command) -> click.Command:
    r"""Let click see its mark for preformatted text (`\b`), which raw docstrings spell with two characters."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        with_examples(each)
    return command


class LazyGroup(click.Group):
    """Imports commands when they are asked for: a Kafka client takes a while. None of them ends in a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of a first visit."""
        return [*super().list_commands(ctx), *LAZY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Look a command up."""
        if cmd_name in LAZY:
            module, name = LAZY[cmd_name]
            return with_examples(getattr(importlib.import_module(module), name))
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments and run the command."""
        tolerate_encoding()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with ending_in_plain_words():
            return super().invoke(ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafkalite")
def main() -> None:
    r"""A replicated log that speaks the Kafka protocol and keeps its state in Kubernetes.

    \b
    Examples:
      kafkalite up                      start three brokers on 127.0.0.1:9092, 9093, 9094
      kafkalite status                  who leads what
      kafkalite topics create orders    a topic
      kafkalite produce orders          a record for each line of standard input
      kafkalite consume orders -g mine  read them in a consumer group
      kafkalite groups describe mine    its members and its lag
      kafkalite kill 1                  kill a broker and see what happens
      kafkalite down                    stop; the data stays
    """


def _home() -> Home:
    from kafkalite_runtime.home import Home

    return Home.from_environment(os.environ)


@main.command()
@click.option("-f", "--filename", "files", multiple=True, help="Manifests to apply as well (file, folder or -).")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=60, show_default=True, help="Seconds until it has to be ready."
)
def up(files: tuple[str, ...], timeout: float) -> None:
    r"""Start the local cluster and wait until every topic is ready.

    State is kept in .kafkalite of this directory ($KAFKALITE_HOME); $KAFKALITE_PORT moves all ports.
    A new cluster has the topic quickstart, which is yours to change or delete.

    \b
    Examples:
      kafkalite up
      kafkalite up -f my-topics.yaml
      KAFKALITE_PORT=19092 kafkalite up
    """
    from rich.console import Console

    from kafkalite_cli.errors import Failure
    from kafkalite_cli.local_mode import start
    from kafkalite_runtime.home import Ports

    try:
        ports = Ports.from_environment(os.environ)
    except ValueError as error:
        raise Failure(str(error)) from error
    start.up(_home(), ports, files, timeout_s=timeout, console=Console())


@main.command()
@click.option("--timeout", type=click.FloatRange(min=1), default=45, show_default=True, help="Seconds before killing.")
def down(timeout: float) -> None:
    r"""Stop the local cluster and keep its data.

    \b
    Examples:
      kafkalite down
      kafkalite down --timeout 5
    """
    from kafkalite_cli.local_mode.folder import check_ours
    from kafkalite_cli.local_mode.stop import stop_all

    home = _home()
    if not home.root.exists():
        click.echo(f"nothing to stop: {home.root} does not exist")
        return
    check_ours(home)
    killed = stop_all(home, timeout_s=timeout)
    click.echo(f"stopped; the data is kept in {home.root}" + (f" (killed: {', '.join(killed)})" if killed else ""))


@main.command()
def clean() -> None:
    r"""Stop the local cluster and remove it: every topic, record, log file and setting, without asking.

    \b
    Removes from .kafkalite of this directory ($KAFKALITE_HOME) what local mode makes there:
      volumes/  run/  pods/  manifests/  logs/   with all that is in them
      control-plane.db  kubeconfig  port-base  up.lock  local-cluster
    and then the folder, unless something else is in it: that stays, and is named.
    A folder that `kafkalite up` did not make is not touched.

    \b
    Examples:
      kafkalite clean
      KAFKALITE_HOME=/tmp/other kafkalite clean
    """
    from kafkalite_cli.local_mode import folder
    from kafkalite_cli.local_mode.stop import kept_stopped

    home = _home()
    if not home.root.exists():
        click.echo(f"nothing to remove: {home.root} does not exist")
        return
    folder.check_removable(home)
    with kept_stopped(home, timeout_s=10):
        click.echo(folder.remove(home))


@main.command()
@place_options
@click.option("--all", "everything", is_flag=True, help="Every partition, however many there are.")
@output_option
def status(options: KubeOptions, everything: bool, output: str) -> None:
    r"""Show processes, brokers and who leads which partition.

    Of more than 100 partitions only those are shown that need somebody, above a line that counts all.

    \b
    Examples:
      kafkalite status
      kafkalite status -o json | jq '.topics[].partitions[] | {partition, leader}'
      kafkalite status --kubeconfig ~/.kube/config --context prod -n kafka
    """
    from kafkalite_cli import status as command

    sys.exit(command.show(options, as_json=output == "json", everything=everything))


@main.command()
@click.argument("name", metavar="0|1|2|operator|apiserver|kubelet|supervisor")
@click.option(
    "--signal",
    "signal_name",
    type=click.Choice(["KILL", "TERM", "STOP", "CONT"], case_sensitive=False),
    default="KILL",
    show_default=True,
    help="KILL ends it at once, TERM in order; STOP freezes it until CONT.",
)
def kill(name: str, signal_name: str) -> None:
    r"""Send a signal to a process of the local cluster, and see what the cluster makes of it.

    A process of another local cluster has the name that `kafkalite status` shows.

    \b
    Examples:
      kafkalite kill 0                  power failure of broker 0; it is restarted at once
      kafkalite kill 1 --signal STOP    freeze broker 1 (wake it with CONT)
      kafkalite kill operator
    """
    from kafkalite_cli.errors import Failure
    from kafkalite_cli.local_mode import processes

    home = _home()
    wanted = f"broker-{name}" if name.isdigit() else name
    process = processes.find(home, wanted)
    if process is None:
        known = [each.name.removeprefix("broker-") for each in processes.list_processes(home)]
        raise Failure(f"no process {name} in {home.root}" + (f"; there are: {', '.join(known)}" if known else ""))
    if not process.record.signal(signal.Signals[f"SIG{signal_name.upper()}"]):
        raise Failure(f"{wanted} does not run just now (its last pid was {process.record.pid})")
    click.echo(f"sent SIG{signal_name.upper()} to {wanted} (pid {process.record.pid})")


@main.command()
@click.argument("name", metavar="NAME")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True, help="How many to show.")
def logs(name: str, follow: bool, lines: int) -> None:
    r"""Show the log of a process of the local cluster: supervisor, apiserver, kubelet, operator, broker-0 (or 0) …

    A process of another local cluster has the name that `kafkalite status` shows.

    \b
    Examples:
      kafkalite logs 0 -f
      kafkalite logs operator -n 1000
    """
    from kafkalite_cli.errors import Failure
    from kafkalite_cli.local_mode import logs as command

    home = _home()
    path = home.log(f"broker-{name}" if name.isdigit() else name)
    if not path.is_file() or path.parent != home.logs:
        known = sorted(each.stem for each in home.logs.glob("*.log"))
        raise Failure(f"no log {name} in {home.logs}" + (f"; there are: {', '.join(known)}" if known else ""))
    size = path.stat().st_size
    for line in command.last_lines(path, lines):
        click.echo(line)
    if follow:
        for text in command.follow(path, size):
            click.echo(text, nl=False)


@main.command()
@kubeconfig_option
@context_option
@click.option(
    "-n", "--namespace", type=NonEmpty("namespace"), help="Of objects that name none. Default: the context's."
)
@click.option("-f", "--filename", "files", multiple=True, required=True, help="File, folder, or - for standard input.")
def apply(kubeconfig: Path | None, context: str | None, namespace: str | None, files: tuple[str, ...]) -> None:
    r"""Create or change topics, clusters and brokers from manifests.

    \b
    Examples:
      kafkalite apply -f examples/flights/topic.yaml
      cat topic.yaml | kafkalite apply -f -
    """
    from kafkalite_cli import connection, manifests
    from kafkalite_cli.errors import Failure

    objects = [obj for file in files for obj in manifests.read_manifests(file)]
    if not objects:
        raise Failure(f"no objects in {', '.join('standard input' if file == '-' else file for file in files)}")
    target = connection.choose_target(KubeOptions(kubeconfig=kubeconfig, context=context))
    try:
        lines = connection.with_client(target, lambda client: manifests.apply(client, objects, namespace))
    except manifests.Unanswered as error:
        if target.home is None:
            raise Failure(f"{error.label}: {target.outage(error.unavailable)}") from error
        raise Failure(f"the cluster in {target.home.root} is not running (start it with `kafkalite up`)") from error
    for line in lines:
        click.echo(line)


with_examples(main)

if __name__ == "__main__":
    main()
