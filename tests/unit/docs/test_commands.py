"""What the documentation tells a reader to type is there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_readme_names_every_make_target_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)`", readme)) == targets
    documents = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for document in documents:
        assert set(re.findall(r"`make ([a-z0-9-]+)`", document.read_text(encoding="utf-8"))) <= targets, document


def test_make_help_has_a_sentence_for_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert len(targets) > 30
    assert [name for name in targets if not re.search(rf"^{name}:.*## \w", makefile, re.MULTILINE)] == []


def instructions() -> list[tuple[str, str]]:
    """Document and text of everything that it sets as code: lines of blocks, and what stands between backquotes."""
    found = []
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for number, part in enumerate(path.read_text(encoding="utf-8").split("```")):
            pieces = part.splitlines() if number % 2 else re.findall(r"`([^`\n]+)`", part)
            found += [(path.name, piece) for piece in pieces]
    return found


def test_what_documents_have_made_is_a_target() -> None:
    targets = set(re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    command = re.compile(r"(?:^\$? ?|\()make (?:--\w+ )?([a-z0-9-]+)")
    named = [(name, match[1]) for name, piece in instructions() if (match := command.search(piece))]
    assert len(named) > 30
    assert [each for each in named if each[1] not in targets] == []


def test_modules_that_documents_run_exist_and_have_their_options() -> None:
    command = re.compile(r"python -m ((?:tests|bench|tools)[\w.]*)([^#]*)")
    run = [(name, match) for name, piece in instructions() if (match := command.search(piece))]
    assert len(run) > 20
    for name, match in run:
        place = ROOT.joinpath(*match[1].split("."))
        sources = [place.with_suffix(".py")] if place.with_suffix(".py").exists() else sorted(place.rglob("*.py"))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), f"{name}: {match[0]}"
        code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
        for option in re.findall(r"--[a-z][a-z-]*", match[2].partition(" -- ")[0]):
            assert f'"{option}"' in code, f"{name}: {match[1]} has no option {option}"


def test_every_file_of_contract_tests_is_documented() -> None:
    there = {path.name for folder in ("contract", "ha") for path in (ROOT / "tests" / folder).glob("test_*.py")}
    page = (ROOT / "docs" / "contract-tests.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(test_\w+\.py)`", page)) == there


def test_jobs_of_spark_run_as_the_account_that_the_page_names() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for name in ("sparkapplication.yaml", "sparkapplication-audit.yaml"):
        manifest = yaml.safe_load((ROOT / "spark_app" / name).read_text(encoding="utf-8"))
        assert f"`{manifest['spec']['driver']['serviceAccount']}`" in page
        assert f"`spark_app/{name}`" in page
