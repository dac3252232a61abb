"""Random messages of any API and version, made from the schema, and plain trees to compare codecs by."""

import datetime as dt
import importlib
from uuid import UUID

from hypothesis import strategies as st

from kafkalite_core.protocol.errors import ErrorCode
from kafkalite_core.protocol.primitives import records_view
from kafkalite_core.protocol.schema import APIS
from kafkalite_core.protocol.schema.notation import Array, Struct

DIRECTIONS = ("request", "response")
CASES = [(api, version, kind) for api in APIS for version in api.versions.numbers() for kind in DIRECTIONS]
CASE_IDS = [f"{api.name}-{version}-{kind}" for api, version, kind in CASES]
# One case per layout family is enough for garbage: the last version of each API and the last one that is not flexible.
FUZZED = [
    (api, version, kind)
    for api in APIS
    for version in sorted({api.versions.last, max(min(api.flexible - 1, api.versions.last), api.versions.first)})
    for kind in DIRECTIONS
]
FUZZED_IDS = [f"{api.name}-{version}-{kind}" for api, version, kind in FUZZED]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NO_TIME = -1


def struct_of(api, kind):
    return api.request if kind == "request" else api.response


def module_of(api):
    return importlib.import_module(f"kafkalite_core.protocol.{api.module}")


def encode(api, kind, message, version):
    return b"".join(getattr(module_of(api), f"encode_{kind}")(message, version))


def decode(api, kind, data, version):
    return getattr(module_of(api), f"decode_{kind}")(memoryview(data), version)


def primitive(name, type_, nullable):
    if name.endswith("error_code"):
        base = st.sampled_from([int(code) for code in ErrorCode])
    elif name == "log_append_time_ms":
        base = st.one_of(st.just(NO_TIME), st.integers(0, 2**42))
    elif name == "retention_time_ms":
        base = st.integers(-1, 2**46)  # kio reads it as a timedelta, which cannot hold every int64
    elif type_ in BITS:
        half = 1 << (BITS[type_] - 1)
        base = st.integers(-half, half - 1)
    else:
        base = {
            "bool": st.booleans(),
            "uuid": st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
            "string": st.text(max_size=20) | st.integers(126, 130).map(lambda size: "x" * size),
            "sentence": st.text(max_size=20) | st.integers(126, 130).map(lambda size: "x" * size),
            "bytes": st.binary(max_size=30),
            "records": st.binary(max_size=200) | st.integers(500, 600).map(bytes),
            "record_buffers": st.binary(max_size=200) | st.integers(500, 600).map(bytes),
        }[type_]
    return st.none() | base if nullable else base


def value(api, field, version):
    nullable = field.nullable is not None and version in field.nullable
    if isinstance(field.type, Struct):
        inner = message(api, field.type, version)
        return st.none() | inner if nullable or field.tag is not None else inner
    if isinstance(field.type, Array):
        element = field.type.element
        inner = message(api, element, version) if isinstance(element, Struct) else primitive("", element, False)
        values = st.lists(inner, max_size=3)
        return st.none() | values if nullable else values
    return primitive(field.name, field.type, nullable)


def message(api, struct, version):
    """Instances of the struct's class with every field of the version set; the others keep their defaults."""
    fields = {field.name: value(api, field, version) for field in struct.fields if version in field.versions}
    return st.builds(getattr(module_of(api), struct.name), **fields)


def tree(struct, instance, version):
    """A message of either codec as nested dicts of plain values; absent tagged structs become their defaults."""
    result = {}
    for field in struct.fields:
        if version not in field.versions:
            continue
        name = field.name if hasattr(instance, field.name) else field.name.removesuffix("_ms")
        result[field.name] = plain(field, getattr(instance, name), version)
    return result


def plain(field, found, version):
    if isinstance(field.type, Struct):
        if found is None:
            return {inner.name: inner.default for inner in field.type.fields} if field.tag is not None else None
        return tree(field.type, found, version)
    if isinstance(field.type, Array):
        if found is None:
            return None
        element = field.type.element
        return [tree(element, item, version) if isinstance(element, Struct) else scalar(item) for item in found]
    if field.type == "uuid" and found is None:
        return UUID(int=0)
    if field.name == "log_append_time_ms" and found is None:
        return NO_TIME
    return scalar(found)


def scalar(found):
    if isinstance(found, dt.timedelta):
        return found // dt.timedelta(milliseconds=1)
    if isinstance(found, dt.datetime):
        return (found - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
    if isinstance(found, list | memoryview | bytearray):
        return bytes(records_view(found))
    if isinstance(found, bool):
        return found
    return int(found) if isinstance(found, int) else found
