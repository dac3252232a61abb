"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class NonEmpty(click.ParamType[str]):
    """Not empty, which is what an unset variable of the shell looks like: without the option more would be meant."""

    def __init__(self, what: str) -> None:
        self.name, self._what = what.partition(" ")[0], what

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Fails for an empty one."""
        return str(_filled(self, value, self._what, param, ctx))


class FilePath(click.Path):
    """The name of a file: not empty, as for `NonEmpty`."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fails for an empty one."""
        return super().convert(_filled(self, value, "file name", param, ctx), param, ctx)


def _filled(
    type_: click.ParamType[Any], value: Any, what: str, param: click.Parameter | None, ctx: click.Context | None
) -> Any:
    if not str(value).strip():
        type_.fail(f"a {what} is not empty (an unset variable of the shell?)", param, ctx)
    return value


kubeconfig_option = click.option(
    "--kubeconfig",
    type=FilePath(),
    help="Cluster to talk to. Default: the local one of this directory, else kubectl's ($KUBECONFIG, ~/.kube/config).",
)
context_option = click.option(
    "--context", type=NonEmpty("context"), help="Context of the kubeconfig. Default: its current one."
)
namespace_option = click.option(
    "-n", "--namespace", type=NonEmpty("namespace"), help="Default: the context's; of the local cluster all."
)
all_namespaces_option = click.option("-A", "--all-namespaces", is_flag=True, help="Look at all namespaces.")
cluster_option = click.option(
    "--cluster", type=NonEmpty("cluster"), help="Name of the KafkaLiteCluster, when there are several."
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """A callback for options of the form `key=value`, split at the first `=`. Raises click.BadParameter."""
    found = []
    for value in values:
        key, sign, rest = value.partition("=")
        if not sign or not key.strip():
            raise click.BadParameter(f"{value!r} is not of the form key=value")
        found.append((key.strip(), rest))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeOptions:
    """Which API server, and which of its topics and clusters."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Which brokers: addresses, or the API server that knows them; `properties` are librdkafka's."""

    bootstrap: str | None = None
    kube: KubeOptions = field(default_factory=KubeOptions)
    properties: dict[str, str] = field(default_factory=dict)


def place_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds --kubeconfig, --context, --namespace and --all-namespaces; they reach the command as its first argument."""

    @kubeconfig_option
    @context_option
    @namespace_option
    @all_namespaces_option
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        kubeconfig: Path | None,
        context: str | None,
        namespace: str | None,
        all_namespaces: bool,
        **kwargs: Any,
    ) -> None:
        if namespace is not None and all_namespaces:
            raise click.UsageError("--namespace or --all-namespaces: which one?")
        place = KubeOptions(kubeconfig=kubeconfig, context=context, namespace=namespace, all_namespaces=all_namespaces)
        function(place, *args, **kwargs)

    return wrapper


def kube_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds those of `place_options` and --cluster; they reach the command as its first argument."""

    @place_options
    @cluster_option
    @functools.wraps(function)
    def wrapper(place: KubeOptions, *args: Any, cluster: str | None, **kwargs: Any) -> None:
        function(dataclasses.replace(place, cluster=cluster), *args, **kwargs)

    return wrapper


def kafka_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds --bootstrap, -X and what finds a bootstrap; they reach the command as its first argument."""

    @click.option(
        "-b",
        "--bootstrap",
        type=NonEmpty("bootstrap"),
        help="Addresses of brokers. Default: the cluster's own, as the API server knows.",
    )
    @click.option(
        "-X",
        "--property",
        "properties",
        callback=pairs,
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of librdkafka, e.g. security.protocol=SSL. Repeatable.",
    )
    @click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with such settings, key=value a line.",
    )
    @kube_options
    @functools.wraps(function)
    def wrapper(
        kube: KubeOptions,
        *args: Any,
        bootstrap: str | None,
        properties: list[tuple[str, str]],
        command_config: Path | None,
        **kwargs: Any,
    ) -> None:
        settings = (read_properties(command_config) if command_config else {}) | dict(properties)
        if not settings.get("bootstrap.servers", "-").strip():
            raise click.UsageError("bootstrap.servers is empty: name brokers, or leave it out")
        function(KafkaOptions(bootstrap=bootstrap, kube=kube, properties=settings), *args, **kwargs)

    return wrapper  # fmt: skip


def read_properties(path: Path) -> dict[str, str]:
    """`key=value` a line; empty lines and lines that begin with `#` are passed over. Raises click.UsageError."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, sign, value = stripped.partition("=")
        if not sign:  # not shown: it may hold a password
            raise click.UsageError(f"{path}, line {number} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found
