"""What every part of the generator must know about types: sizes, `struct` formats, annotations, defaults."""

from kafkalite_core.protocol.schema.notation import Array, Field, FieldType, Struct

# Primitive -> (struct format, size); one run of these is one pack or unpack.
FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uuid": ("16s", 16),
}
# Types that look the same on the wire as another.
ENCODINGS = {"record_buffers": "records", "sentence": "string"}
NUMBERS = ("int8", "int16", "int32", "int64")
ANNOTATIONS = {
    "bool": "bool",
    "uuid": "UUID",
    "string": "str",
    "sentence": "str",
    "bytes": "bytes",
    "records": "Buffer",
    "record_buffers": "Records",
} | dict.fromkeys(NUMBERS, "int")
ZEROS = {"bool": "False", "uuid": "ZERO_UUID", "bytes": 'b""'} | dict.fromkeys(NUMBERS, "0")
ZEROS |= dict.fromkeys(("string", "sentence"), '""')


def plain_fields(struct: Struct, version: int) -> list[Field]:
    """The fields of a version that are not tagged."""
    return [field for field in struct.fields if version in field.versions and field.tag is None]


def tagged_fields(struct: Struct, version: int) -> list[Field]:
    """The tagged fields of a version, in the order of their tags."""
    tagged = [field for field in struct.fields if version in field.versions and field.tag is not None]
    return sorted(tagged, key=lambda field: field.tag or 0)


def is_nullable(field: Field, version: int) -> bool:
    """Whether null may be sent for the field in a version."""
    return field.nullable is not None and version in field.nullable


def is_fixed(field: Field) -> bool:
    """Whether the field is part of a run that `struct` reads and writes at once."""
    return isinstance(field.type, str) and field.type in FIXED


def may_be_none(field: Field) -> bool:
    """Whether the class's field may be None."""
    return field.nullable is not None or field.default_null or is_tagged_struct(field)


def is_tagged_struct(field: Field) -> bool:
    """Whether absence is the struct's null."""
    return isinstance(field.type, Struct) and field.tag is not None


def annotation(field: Field) -> str:
    """The class field's type."""
    base = element_annotation(field.type)
    return f"{base} | None" if may_be_none(field) else base


def element_annotation(type_: FieldType) -> str:
    """The Python type of a field type."""
    if isinstance(type_, Struct):
        return type_.name
    if isinstance(type_, Array):
        return f"list[{element_annotation(type_.element)}]"
    return ANNOTATIONS[type_]


def default(field: Field) -> str:
    """The default as an expression, also for versions without the field."""
    if field.default_null or is_tagged_struct(field):
        return "None"
    if isinstance(field.type, Array):
        return "[]"
    if isinstance(field.type, Struct):
        return f"{field.type.name}()"
    if field.default is not None:
        return f'"{field.default}"' if isinstance(field.default, str) else str(field.default)
    return ZEROS[field.type]


def size_min(type_: FieldType, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value takes on the wire; never 0, so that a count is always bounded by the bytes left."""
    if isinstance(type_, Struct):
        fields = plain_fields(type_, version)
        size = sum(size_min(field.type, version, flexible=flexible) for field in fields)
        return max(size + int(flexible), 1)
    if isinstance(type_, str) and type_ in FIXED:
        return FIXED[type_][1]
    if flexible:
        return 1
    return 2 if type_ in ("string", "sentence") else 4


def structs_of(root: Struct) -> list[Struct]:
    """The struct and those inside it, inner ones first."""
    found: list[Struct] = []
    for field in root.fields:
        inner = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(inner, Struct):
            found.extend(structs_of(inner))
    return [*found, root]
