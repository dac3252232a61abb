"""Command lines of `kafkalite` that documentation and `--help` show: each of their options is there."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import click
import pytest

from kafkalite_cli.main import main

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
CALL = re.compile(r"(?:^ *|\| |&& |kubectl |bin/|=\S+ )kafkalite (?=[a-z-])(.*)")
ENDS = {"|", ">", ">>", "&&", "||", ";", "&", "…"}


def leaves(command: click.Command, name: str = "") -> dict[str, click.Command]:
    """Every command that does something, by its words."""
    if not isinstance(command, click.Group):
        return {name: command}
    context = click.Context(command)
    children = {child: command.get_command(context, child) for child in command.list_commands(context)}
    return {
        words: leaf
        for child, found in children.items()
        if found is not None
        for words, leaf in leaves(found, f"{name} {child}".strip()).items()
    }


COMMANDS = leaves(main)


def shown_in_pages() -> list[tuple[str, str]]:
    """Place and arguments of each call in a code block, or in backquotes with an option."""
    found = []
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                fenced = not fenced
                continue
            texts = [line.removeprefix("$ ")] if fenced and line.startswith(("$ ", "kafkalite ")) else []
            texts += [] if fenced else re.findall(r"`([^`]*kafkalite [^`]* -[^`]*)`", line)
            found += [(f"{page.name}:{number}", call[1]) for text in texts if (call := CALL.search(text))]
    return found


def shown_in_help() -> list[tuple[str, str]]:
    return [
        (f"kafkalite {name} --help", call[1])
        for name, command in COMMANDS.items()
        for line in (command.help or "").partition("Examples:")[2].splitlines()
        if (call := CALL.search(line))
    ]


def arguments(text: str) -> list[str]:
    """Up to where the shell goes on with something else, or the explanation beside an example begins."""
    words = shlex.split(re.split(r"\s{3,}|\s#\s", text)[0].replace(">/dev/null", "> /dev/null"))
    end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
    return words[:end]


@pytest.mark.parametrize(("place", "call"), [*shown_in_pages(), *shown_in_help()])
def test_a_shown_command_line_is_understood(place: str, call: str) -> None:
    words = [word for word in arguments(call) if not word.startswith("[")]
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
    if name is None:
        assert words[0] in {"--help", *(each.split()[0] for each in COMMANDS)}, place
        return
    command = COMMANDS[name]
    context = click.Context(command)
    with contextlib.suppress(click.BadOptionUsage):  # a sentence may name an option without its value
        command.make_parser(context).parse_args(words[len(name.split()) :])


def test_calls_are_found() -> None:
    assert len(shown_in_pages()) > 40
    assert len(shown_in_help()) > 60


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("verify ")])
def test_help_explains_every_option_and_shows_examples(name: str) -> None:
    """Those of `verify` have a page of their own."""
    command = COMMANDS[name]
    assert "Examples:" in (command.help or "")
    assert not [each.opts for each in command.params if isinstance(each, click.Option) and not each.help]
