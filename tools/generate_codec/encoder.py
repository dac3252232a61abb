"""Writes encoders: one straight-line function per message and layout."""

from kafkalite_core.protocol.schema.notation import Array, Field, Struct
from tools.generate_codec.emitter import Emitter
from tools.generate_codec.layout import (
    FIXED,
    NUMBERS,
    default,
    is_fixed,
    is_nullable,
    is_tagged_struct,
    may_be_none,
    plain_fields,
    tagged_fields,
)


class EncoderWriter:
    """Writes the body of one encoder: control bytes go to `out`, which `buffers` receives between large records."""

    def __init__(self, emitter: Emitter, version: int, *, flexible: bool) -> None:
        self.out = emitter
        self.version = version
        self.flexible = flexible

    def write(self, root: Struct) -> list[str]:
        """The lines of the function's body."""
        self.out.indent = 1
        self.out.line("out = bytearray()")
        self._struct(root, "message", "", "out")
        self.out.line("buffers.append(out)")
        return self.out.take()

    def _struct(self, struct: Struct, value: str, path: str, sink: str) -> None:
        self._plain(plain_fields(struct, self.version), value, path, sink)
        if self.flexible:
            self._tags(tagged_fields(struct, self.version), value, path, sink)

    def _plain(self, fields: list[Field], value: str, path: str, sink: str) -> None:
        run: list[Field] = []
        for field in fields:
            if is_fixed(field):
                run.append(field)
                continue
            self._run(run, value, sink)
            run = []
            self._variable(field, value, path, sink)
        self._run(run, value, sink)

    def _run(self, run: list[Field], value: str, sink: str) -> None:
        if not run:
            return
        codes = "".join(FIXED[str(field.type)][0] for field in run)
        values = [f"{value}.{field.name}" + (".bytes" if field.type == "uuid" else "") for field in run]
        self.out.line(f"{sink} += {self.out.struct('pack', codes)}({', '.join(values)})")

    def _variable(self, field: Field, value: str, path: str, sink: str) -> None:
        source = f"{value}.{field.name}"
        if isinstance(field.type, Array):
            self._array(field, field.type, source, path, sink)
        elif isinstance(field.type, Struct):
            self._inner_struct(field, field.type, source, path, sink)
        elif field.type in ("records", "record_buffers"):
            # Inside a tag or below it no records exist, so the sink is always the message's own buffer.
            assert sink == "out"
            self.out.line(f"out = {self._writer('records', nullable=True)}(buffers, out, {source})")
        else:
            writer = self._writer(field.type, nullable=is_nullable(field, self.version))
            self.out.line(f"{writer}({sink}, {source})")

    def _writer(self, type_: str, *, nullable: bool) -> str:
        compact = "compact_" if self.flexible else ""
        null = "nullable_" if nullable else ""
        return self.out.use(f"write_{compact}{null}{type_}")

    def _inner_struct(self, field: Field, struct: Struct, source: str, path: str, sink: str) -> None:
        name = _local(path, field)
        self.out.line(f"{name} = {source}")
        if not is_nullable(field, self.version):
            self._struct(struct, name, name, sink)
            return
        self.out.line(f"if {name} is None:")
        with self.out.block():
            self.out.line(f"{sink}.append(255)")
        self.out.line("else:")
        with self.out.block():
            self.out.line(f"{sink}.append(1)")
            self._struct(struct, name, name, sink)

    def _array(self, field: Field, type_: Array, source: str, path: str, sink: str) -> None:
        name = _local(path, field)
        if not may_be_none(field):
            self.out.line(f"{name} = {source}")
            self._elements(type_, name, sink)
        elif not is_nullable(field, self.version):
            self.out.line(f"{name} = {self.out.use('not_null')}({source})")
            self._elements(type_, name, sink)
        else:
            self.out.line(f"{name} = {source}")
            self.out.line(f"if {name} is None:")
            with self.out.block():
                self.out.line(f"{sink}.append(0)" if self.flexible else f'{sink} += b"\\xff\\xff\\xff\\xff"')
            self.out.line("else:")
            with self.out.block():
                self._elements(type_, name, sink)

    def _elements(self, type_: Array, name: str, sink: str) -> None:
        element = type_.element
        if self.flexible:
            self.out.line(f"if len({name}) < 127:")
            with self.out.block():
                self.out.line(f"{sink}.append(len({name}) + 1)")
            self.out.line("else:")
            with self.out.block():
                self.out.line(f"{self.out.use('write_uvarint')}({sink}, len({name}) + 1)")
        else:
            self.out.line(f"{sink} += {self.out.struct('pack', 'i')}(len({name}))")
        if isinstance(element, str) and element in NUMBERS:
            self.out.line(f'{self.out.use("write_numbers")}({sink}, {name}, "{FIXED[element][0]}")')
            return
        item = f"{name}_element"
        self.out.line(f"for {item} in {name}:")
        with self.out.block():
            if isinstance(element, Struct):
                self._struct(element, item, name, sink)
            elif element == "uuid":
                self.out.line(f"{sink} += {item}.bytes")
            else:
                self.out.line(f"{self._writer(element, nullable=False)}({sink}, {item})")

    def _tags(self, tagged: list[Field], value: str, path: str, sink: str) -> None:
        """A tagged field is sent when it differs from its default."""
        if not tagged:
            self.out.line(f"{sink}.append(0)")
            return
        conditions = [f"{value}.{field.name} {_differs(field)}" for field in tagged]
        count = f"{path}__tags" if path else "tags"
        section = f"{path}__section" if path else "section"
        self.out.line(f"if {' or '.join(conditions)}:")
        with self.out.block():
            self.out.line(f"{count} = 0")
            self.out.line(f"{section} = bytearray()")
            for field, condition in zip(tagged, conditions, strict=True):
                self.out.line(f"if {condition}:")
                with self.out.block():
                    self._tag(field, value, path, count, section)
            self.out.line(f"{self.out.use('write_uvarint')}({sink}, {count})")
            self.out.line(f"{sink} += {section}")
        self.out.line("else:")
        with self.out.block():
            self.out.line(f"{sink}.append(0)")

    def _tag(self, field: Field, value: str, path: str, count: str, section: str) -> None:
        self.out.line(f"{count} += 1")
        sink = f"{_local(path, field)}_value"
        self.out.line(f"{sink} = bytearray()")
        if is_tagged_struct(field):
            name = _local(path, field)
            assert isinstance(field.type, Struct)
            self.out.line(f"{name} = {self.out.use('not_null')}({value}.{field.name})")
            self._struct(field.type, name, name, sink)
        else:
            self._plain([field], value, path, sink)
        self.out.line(f"{self.out.use('write_tag')}({section}, {field.tag}, {sink})")


def _differs(field: Field) -> str:
    absent = default(field)
    if absent == "None":
        return "is not None"
    return f"!= {absent}"


def _local(path: str, field: Field) -> str:
    return f"{path}__{field.name}" if path else field.name
