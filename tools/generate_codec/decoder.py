"""Writes decoders: one straight-line function per message and layout."""

from kafkalite_core.protocol.primitives import TAGS_MAX
from kafkalite_core.protocol.schema.notation import Array, Field, Struct
from tools.generate_codec.emitter import Emitter
from tools.generate_codec.layout import (
    ENCODINGS,
    FIXED,
    NUMBERS,
    default,
    element_annotation,
    is_fixed,
    is_nullable,
    plain_fields,
    size_min,
    tagged_fields,
)


class DecoderWriter:
    """Writes the body of one decoder into an `Emitter`. Values become local variables named by their path."""

    def __init__(self, emitter: Emitter, version: int, *, flexible: bool) -> None:
        self.out = emitter
        self.version = version
        self.flexible = flexible
        self.counts_elements = False

    def write(self, root: Struct) -> list[str]:
        """The lines of the function's body."""
        self.out.indent = 1
        expression = self._struct(root, "")
        self.out.line(f"return {expression}, position")
        head = ["    position = 0"]
        if self.counts_elements:
            head.append("    elements = 0")
        return head + self.out.take()

    def _struct(self, struct: Struct, path: str) -> str:
        self._plain(plain_fields(struct, self.version), path)
        if self.flexible:
            self._tags(struct, path)
        values = []
        for field in struct.fields:
            present = self.version in field.versions
            values.append(_local(path, field) if present else default(field))
        return f"{struct.name}({', '.join(values)})"

    def _plain(self, fields: list[Field], path: str) -> None:
        run: list[Field] = []
        for field in fields:
            if is_fixed(field):
                run.append(field)
                continue
            self._run(run, path)
            run = []
            self._variable(field, path)
        self._run(run, path)

    def _run(self, run: list[Field], path: str) -> None:
        if not run:
            return
        codes = "".join(FIXED[str(field.type)][0] for field in run)
        size = sum(FIXED[str(field.type)][1] for field in run)
        names = [_local(path, field) for field in run]
        target = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
        self.out.line(f"{target} = {self.out.struct('unpack', codes)}(view, position)")
        self.out.line(f"position += {size}")
        for field, name in zip(run, names, strict=True):
            if field.type == "uuid":
                self.out.line(f"{name} = to_uuid({name})")

    def _variable(self, field: Field, path: str) -> None:
        name = _local(path, field)
        if isinstance(field.type, Array):
            self._array(field, field.type, name)
        elif isinstance(field.type, Struct):
            self._inner_struct(field, field.type, name)
        else:
            nullable = is_nullable(field, self.version)
            self.out.line(f"{name}, position = {self._reader(field.type, nullable=nullable)}(view, position)")

    def _reader(self, type_: str, *, nullable: bool) -> str:
        compact = "compact_" if self.flexible else ""
        null = "nullable_" if nullable else ""
        return self.out.use(f"read_{compact}{null}{ENCODINGS.get(type_, type_)}")

    def _inner_struct(self, field: Field, struct: Struct, name: str) -> None:
        if not is_nullable(field, self.version):
            self.out.line(f"{name} = {self._struct(struct, name)}")
            return
        # A nullable struct that is not tagged starts with an int8: negative for null.
        self.out.line(f"{name}: {struct.name} | None = None")
        self.out.line("position += 1")
        self.out.line("if view[position - 1] < 128:")
        with self.out.block():
            self.out.line(f"{name} = {self._struct(struct, name)}")

    def _array(self, field: Field, type_: Array, name: str) -> None:
        self.counts_elements = True
        count = f"{name}_count"
        annotation = element_annotation(type_)
        reader = self.out.use("read_compact_count" if self.flexible else "read_count")
        self.out.line(f"{count}, position = {reader}(view, position)")
        if is_nullable(field, self.version):
            self.out.line(f"{name}: {annotation} | None = None")
            self.out.line(f"if {count} >= 0:")
            with self.out.block():
                self._elements(type_, name, count, f"{name}_list", annotation)
                self.out.line(f"{name} = {name}_list")
        else:
            self._elements(type_, name, count, name, annotation)

    def _elements(self, type_: Array, path: str, count: str, target: str, annotation: str) -> None:
        element = type_.element
        least = size_min(element, self.version, flexible=self.flexible)
        self.out.line(f"elements = {self.out.use('check_count')}({count}, {least}, elements, len(view) - position)")
        if isinstance(element, str) and element in NUMBERS:
            code, size = FIXED[element]
            call = f'{self.out.use("read_numbers")}(view, position, {count}, "{code}", {size})'
            self.out.line(f"{target}, position = {call}")
            return
        self.out.line(f"{target}: {annotation} = []")
        self.out.line(f"for _ in range({count}):")
        with self.out.block():
            if isinstance(element, Struct):
                value = self._struct(element, path)
            elif element == "uuid":
                self.out.line("position += 16")
                value = "to_uuid(bytes(view[position - 16 : position]))"
            else:
                value = f"{path}_element"
                self.out.line(f"{value}, position = {self._reader(element, nullable=False)}(view, position)")
            self.out.line(f"{target}.append({value})")

    def _tags(self, struct: Struct, path: str) -> None:
        tagged = tagged_fields(struct, self.version)
        tags = f"{path}_tags" if path else "tags"
        self.out.line(f"{tags} = view[position]")
        self.out.line("position += 1")
        for field in tagged:
            name = _local(path, field)
            kind = element_annotation(field.type)
            none = " | None" if default(field) == "None" or field.nullable else ""
            self.out.line(f"{name}: {kind}{none} = {default(field)}")
        self.out.line(f"if {tags}:")
        with self.out.block():
            if not tagged:
                self.out.line(f"position = {self.out.use('skip_tags')}(view, position, {tags})")
                return
            self.out.line(f"if {tags} > {TAGS_MAX}:")
            with self.out.block():
                self.out.line(f"{tags}, position = {self.out.use('read_tag_count')}(view, position, {tags})")
            self._tag_loop(tagged, path, tags)

    def _tag_loop(self, tagged: list[Field], path: str, tags: str) -> None:
        self.out.line(f"for _ in range({tags}):")
        with self.out.block():
            self.out.line(f"{tags}_tag, position, {tags}_end = {self.out.use('read_tag')}(view, position)")
            for index, field in enumerate(tagged):
                self.out.line(f"{'elif' if index else 'if'} {tags}_tag == {field.tag}:")
                with self.out.block():
                    self._tag_value(field, path)
                    self.out.line(f"{self.out.use('check_tag_end')}(position, {tags}_end)")
            self.out.line("else:")
            with self.out.block():
                self.out.line(f"position = {tags}_end")

    def _tag_value(self, field: Field, path: str) -> None:
        name = _local(path, field)
        if is_fixed(field):
            self._run([field], path)
        elif isinstance(field.type, Struct):
            self.out.line(f"{name} = {self._struct(field.type, name)}")
        elif isinstance(field.type, Array):
            self.counts_elements = True
            reader = self.out.use("read_compact_count")
            self.out.line(f"{name}_count, position = {reader}(view, position)")
            self._tagged_elements(field.type, name)
        else:
            nullable = is_nullable(field, self.version)
            self.out.line(f"{name}, position = {self._reader(field.type, nullable=nullable)}(view, position)")

    def _tagged_elements(self, type_: Array, name: str) -> None:
        # The list exists already (its annotation too), and a repeated tag replaces what came before.
        self._elements(type_, name, f"{name}_count", f"{name}_list", element_annotation(type_))
        self.out.line(f"{name} = {name}_list")


def _local(path: str, field: Field) -> str:
    return f"{path}__{field.name}" if path else field.name
