"""Commands that are offered for pasting: they reach the very cluster that the command that offers them looked at."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite_cli.connection import Target, is_plugin
from kafkalite_core.model.topic import DEFAULT_CLUSTER_NAME

if TYPE_CHECKING:
    from kafkalite_cli.options import KubeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """What was said about the place, to be said again; what a command finds by itself is left out.

    Attributes:
        program: How the user calls this one; kubectl's plugin looks at other files than `kafkalite` does.
        place: `--kubeconfig` and `--context` as they were given.
        local: The kubeconfig of the local cluster, which kubectl does not find by itself; else empty.
        everywhere: Whether all namespaces were asked for.
    """

    program: str = "kafkalite"
    place: tuple[str, ...] = ()
    local: str = ""
    namespace: str | None = None
    everywhere: bool = False
    cluster: str | None = None

    @classmethod
    def of(cls, options: KubeOptions, target: Target | None = None) -> Commands:
        """Those that go where `options` go; without `target` they say nothing to kubectl about the local cluster."""
        given = (("--kubeconfig", options.kubeconfig), ("--context", options.context))
        place = tuple(word for name, value in given if value is not None for word in (name, str(value)))
        home = target.home if target is not None and not place else None
        return cls(
            program="kubectl kafkalite" if is_plugin() else "kafkalite",
            place=place,
            local=_shown(home.kubeconfig) if home is not None else "",
            namespace=options.namespace,
            everywhere=options.all_namespaces,
            cluster=options.cluster,
        )

    def about(self, namespace: str, cluster: str, *, several: bool = False) -> Commands:
        """About one cluster: it is named where it would not be the only one that is found."""
        placed = several or self.everywhere or self.namespace is not None
        return dataclasses.replace(
            self,
            namespace=namespace if placed else None,
            everywhere=False,
            cluster=cluster if several or self.cluster is not None else None,
        )

    def making(self, namespace: str, cluster: str, *, usual: str) -> Commands:
        """For making something in one cluster: where nothing is said it goes to the usual namespace and cluster."""
        placed = self.namespace is not None or namespace != usual
        named = self.cluster is not None or cluster != DEFAULT_CLUSTER_NAME
        return dataclasses.replace(
            self, namespace=namespace if placed else None, everywhere=False, cluster=cluster if named else None
        )

    def kubectl(self, namespace: str | None, words: str) -> str:
        """`kubectl --context prod -n kafka …`; namespace None: for what is in no namespace."""
        place = ("--kubeconfig", self.local) if self.local else self.place
        return f"kubectl {_text((*place, *_option('-n', namespace)))}{words}"

    def kafkalite(self, words: str) -> str:
        """`kafkalite … --context prod -n kafka`."""
        everywhere = ("-A",) if self.everywhere else ()
        places = (*self.place, *_option("-n", self.namespace), *everywhere, *_option("--cluster", self.cluster))
        return f"{self.program} {words} {_text(places)}".rstrip()


def _option(name: str, value: str | None) -> tuple[str, ...]:
    return (name, value) if value is not None else ()


def _text(words: tuple[str, ...]) -> str:
    return "".join(f"{shlex.quote(word)} " for word in words)


def _shown(file: Path) -> str:
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
