"""What the server knows of a kind of object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite_local.apiserver.schema import Schema

Json = dict[str, Any]


class Strings:
    """The form of a map of strings."""


Form: TypeAlias = "dict[str, Form] | list[Form] | tuple[type, ...] | type | Strings"
"""What a value has to be: an object with these fields, a list of these, one of these types."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a Table.

    Attributes:
        name: Header.
        type: `string`, `integer`, `boolean`, `number` or `date`.
        cell: Gives the cell for an object.
        priority: Columns above 0 show with `-o wide` alone.
        format: `name` for the object's name.
        description: Shown to programs.
    """

    name: str
    type: str
    cell: Callable[[Json], Any]
    priority: int = 0
    format: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where `/scale` finds its fields, as lists of keys."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """A kind of object: names, scope and behaviour.

    Attributes:
        group: API group, empty for core.
        stored_as: Plural under which objects are stored, where two groups share them (Events).
        status: Whether `/status` is a subresource of its own.
        generation: Whether `metadata.generation` counts changes of the specification.
        unconditional_update: Whether a PUT may leave out the resource version.
        create_on_update: Whether a PUT creates.
        schema: The structural schema of a custom resource; None for built-in kinds.
        form: What is checked of a built-in kind; the rest of it is stored as given.
        to_storage: Converts a request's object into the stored form.
        from_storage: Converts a stored object into this version's form.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    scale: ScalePaths | None = None
    generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    columns: tuple[Column, ...] = ()
    schema: Schema | None = None
    form: Form | None = None
    custom: bool = False
    stored_as: str = ""
    prepare: Callable[[Json], None] | None = None
    check: Callable[[Json], None] | None = None
    selectable: Callable[[Json], dict[str, str]] | None = None
    to_storage: Callable[[Json], Json] | None = None
    from_storage: Callable[[Json], Json] | None = None
    openapi: Json | None = None

    @property
    def api_version(self) -> str:
        """`group/version`, or `v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """The name under which the store keeps the objects."""
        return self.stored_as or self.qualified

    @property
    def list_kind(self) -> str:
        """Kind of a list of these."""
        return f"{self.kind}List"
