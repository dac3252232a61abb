"""The notation in which KafkaLite writes down the messages of the Kafka protocol.

A message is a struct of fields; a field has a type and the versions that carry it. The tables beside this module are
the only place where a layout is written by hand: `python -m tools.generate_codec` makes the classes and one
straight-line decoder and encoder per layout from them. Names are Apache Kafka's, in snake_case.

Records are decoded as a view. "records" is one buffer; "record_buffers" may be several when encoding, as a log
read returns them. A "sentence" is a string for people, nullable in every version; one that is too long is cut when
encoding, so that an error can be answered whatever it quotes.

Versions are text: "3-10", "9+" (from 9 on), "4" (only 4).
"""

from dataclasses import dataclass
from typing import TypeAlias

_OPEN_END = 32767

# The `flexible` of an API none of whose versions has compact types and tagged fields.
NEVER_FLEXIBLE = _OPEN_END + 1


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Read "3-10", "9+" or "4"."""
        if text.endswith("+"):
            return cls(int(text[:-1]), _OPEN_END)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def numbers(self) -> range:
        """Every version of a closed range."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class Struct:
    """A class of the codec; its fields in the order of the wire."""

    name: str
    fields: "tuple[Field, ...]"


@dataclass(frozen=True, slots=True)
class Array:
    """An array; its elements are a struct or a primitive type's name."""

    element: "Struct | str"


FieldType: TypeAlias = str | Struct | Array


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    Attributes:
        name: Its name in the class.
        type: A primitive (bool, int8 to int64, uuid, string, sentence, bytes, records, record_buffers), a struct or an
            array.
        versions: Those that carry it. In the others it decodes to its default and is left out when encoding.
        nullable: The versions in which it may be null, or None.
        tag: Its number, if it is a tagged field (KIP-482) in all its versions. A tagged struct is null when absent.
        default: The class's default; None stands for the type's zero (0, "", an empty array) unless `default_null`.
        default_null: Whether the default is null.
    """

    name: str
    type: FieldType
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    default: int | str | bool | None = None
    default_null: bool = False


def struct(name: str, *fields: Field) -> Struct:
    """Write a struct down."""
    return Struct(name, fields)


def array(element: Struct | str) -> Array:
    """Write an array type down."""
    return Array(element)


def field(
    name: str,
    type_: FieldType,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: int | str | bool | None = None,
    default_null: bool = False,
) -> Field:
    """Write a field down; see `Field`."""
    return Field(
        name=name,
        type=type_,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable) if nullable else None,
        tag=tag,
        default=default,
        default_null=default_null,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its number, the versions served, and its two messages.

    Attributes:
        key: Kafka's number of the API.
        name: Kafka's name of the API, as in "Produce".
        module: The name of its modules, as in "produce".
        versions: The versions that can be decoded and encoded, both ways.
        flexible: The first version with compact types and tagged fields, or `NEVER_FLEXIBLE`.
        advertised_min: The first version that ApiVersions claims, where it is lower than what is served.
        request: The struct of the request.
        response: The struct of the response.
    """

    key: int
    name: str
    module: str
    versions: Versions
    flexible: int
    advertised_min: int
    request: Struct
    response: Struct


def api(
    key: int,
    name: str,
    module: str,
    versions: str,
    *,
    flexible: int,
    request: Struct,
    response: Struct,
    advertised_min: int | None = None,
) -> Api:
    """Write an API down; see `Api`."""
    served = Versions.parse(versions)
    return Api(
        key=key,
        name=name,
        module=module,
        versions=served,
        flexible=flexible,
        advertised_min=served.first if advertised_min is None else advertised_min,
        request=request,
        response=response,
    )
