"""What commands print: tables and JSON on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kafkalite_cli.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

JsonObject = dict[str, Any]
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def print_json(document: object) -> None:
    """Indented, on standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_table(rows: Sequence[Mapping[str, object]], *, empty: str = "") -> None:
    """Columns named by the keys of the first row; numbers to the right. Lines are never cut or wrapped.

    The width of the terminal plays no part, so that `grep` and `awk` see whole lines.
    """
    if not rows:
        if empty:
            click.echo(empty)
        return
    names = list(rows[0])
    cells = [[text(row[name]) for name in names] for row in rows]
    numeric = [all(_is_number(row[name]) for row in rows) for name in names]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(names)]
    for at, line in enumerate([names, *cells]):
        padded = (_pad(cell, width, right) for cell, width, right in zip(line, widths, numeric, strict=True))
        whole = "  ".join(padded).rstrip()
        click.echo(whole if at else click.style(whole, bold=True))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _pad(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def text(value: object) -> str:
    """As a cell shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def printable(value: str) -> str:
    """Without what could steer a terminal."""
    return value if value.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def size_text(size_bytes: float | None) -> str | None:
    """`12.3 MiB`; None stays None."""
    if size_bytes is None:
        return None
    value, unit = float(size_bytes), UNITS[0]
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def note(message: str) -> None:
    """For people, on standard error."""
    click.echo(message, err=True)


def warn(message: str) -> None:
    """A warning, on standard error."""
    click.secho("Warning: ", fg="yellow", bold=True, nl=False, err=True)
    click.echo(message, err=True)


def confirm(question: str) -> None:
    """Ask on the terminal. Raises click.Abort for a no; without a terminal Failure, which names the way round."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise Failure("nothing was done: nobody said yes; with --yes it is not asked") from None


def on_terminal() -> bool:
    """Whether somebody watches standard error."""
    return sys.stderr.isatty()


def stderr_console() -> Console:
    """For progress: standard output belongs to the result."""
    from rich.console import Console

    return Console(file=sys.stderr, stderr=True)
