"""What a build is sent (.dockerignore): everything that a Dockerfile copies, and none of what lies about."""

from __future__ import annotations

import fnmatch
from pathlib import PurePosixPath

import pytest

from tests.cluster.kind import roots
from tests.cluster.kind.stages import ROOT

FOLDER = "tests/cluster/kind/spark"
DOCKERFILES = [
    "broker_image/Dockerfile",
    "operator/Dockerfile",
    "spark_app/Dockerfile",
    "tests/e2e/client/Dockerfile",
    f"{FOLDER}/base.Dockerfile",
    f"{FOLDER}/operator.Dockerfile",
]


def sent(path: str) -> bool:
    """By Docker's rule: of all lines that fit the path, or a folder above it, the last one decides."""
    places = [str(each) for each in (PurePosixPath(path), *PurePosixPath(path).parents)]
    found = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and any(fits(place, pattern) for place in places):
            found = line.startswith("!")
    return found


def fits(place: str, pattern: str) -> bool:
    parts, wanted = place.split("/"), pattern.split("/")
    if wanted[0] == "**":
        parts, wanted = parts[-1:], wanted[1:]
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def copied(dockerfile: str) -> list[str]:
    lines = [line.split() for line in (ROOT / dockerfile).read_text().splitlines()]
    return [word for words in lines if words[:1] == ["COPY"] and "--from" not in words[1] for word in words[1:-1]]


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_everything_that_is_copied_is_sent(dockerfile):
    assert copied(dockerfile)
    assert [path for path in copied(dockerfile) if not sent(path)] == []


def test_no_dockerfile_is_forgotten():
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*Dockerfile")}
    # that of the node has a folder of its own for a context
    assert found - {"tests/cluster/kind/node/Dockerfile"} == set(DOCKERFILES)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".cache/kind/docker",
        ".kafkalite/volumes",
        "docs/helm.md",
        "tests/cluster/test_kind.py",
        "core/kafkalite_core/__pycache__/a.pyc",
    ],
)
def test_what_lies_about_is_not_sent(path):
    assert not sent(path)


def test_the_base_that_is_made_here_has_neither_compiler_nor_pip():
    """Nor anything beyond this; tests/e2e asks the images themselves."""
    assert roots.PYTHON.packages == ("base-files", "dash", "python3")
    assert roots.PYTHON.variant == "extract", "without what Debian takes for essential"
