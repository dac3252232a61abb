"""The kinds that the server serves: the built-in ones and those that CustomResourceDefinitions make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver import builtins, crds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_local.apiserver.store import Attributes
    from kafkalite_local.apiserver.types import ResourceType

Json = dict[str, Any]


class Registry:
    """Finds a kind by group, version and plural."""

    def __init__(self) -> None:
        self._builtin = {(item.group, item.version, item.plural): item for item in builtins.BUILTINS}
        self._custom: dict[str, tuple[ResourceType, ...]] = {}
        self._types = dict(self._builtin)
        self.changes = 0

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The kind, or None."""
        return self._types.get((group, version, plural))

    def all(self) -> Iterable[ResourceType]:
        """Every kind, core first, then by group."""
        return sorted(self._types.values(), key=lambda item: (item.group, item.version, item.plural))

    def custom_storages(self) -> set[str]:
        """Storages of custom resources."""
        return {item.storage for types in self._custom.values() for item in types}

    def define(self, definition: Json) -> None:
        """Serve what a CustomResourceDefinition defines, in place of what it defined before."""
        self._custom[definition["metadata"]["name"]] = crds.load(definition).types
        self._rebuild()

    def forget(self, name: str) -> None:
        """Stop serving the kinds of a definition."""
        if self._custom.pop(name, None) is not None:
            self._rebuild()

    def _rebuild(self) -> None:
        custom = {(item.group, item.version, item.plural): item for types in self._custom.values() for item in types}
        self._types = {**custom, **self._builtin}
        self.changes += 1


def attributes(storage: str, value: Json) -> Attributes:
    """Labels and selectable fields of an object."""
    labels = value["metadata"].get("labels")
    return (dict(labels) if isinstance(labels, dict) else {}, builtins.selectable_fields(storage, value))
