"""Collects lines of Python, and the names that they use."""

from collections.abc import Iterator
from contextlib import contextmanager

# Names that a generated function uses itself; a field of that name would overwrite them.
RESERVED = frozenset({"view", "position", "elements", "tags", "message", "out", "buffers"})


class Emitter:
    """Lines of one generated module, with the primitives and `struct` formats that they need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 0
        self.primitives: set[str] = set()
        self.structs: dict[str, str] = {}

    def line(self, text: str) -> None:
        """Append a line at the present indentation."""
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Indent what is written inside."""
        self.indent += 1
        yield
        self.indent -= 1

    def use(self, primitive: str) -> str:
        """Note that a function of `primitives` is needed; return its name."""
        self.primitives.add(primitive)
        return primitive

    def struct(self, action: str, codes: str) -> str:
        """The name of a prepared `pack` or `unpack_from` for `struct` format `codes`."""
        name = f"_{action}_{codes.replace('?', 'o')}"
        method = "unpack_from" if action == "unpack" else "pack"
        self.structs[name] = f'Struct(">{codes}").{method}'
        return name

    def take(self) -> list[str]:
        """Hand the lines over and start afresh."""
        lines, self.lines = self.lines, []
        return lines
