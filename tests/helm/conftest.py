"""helm itself, built from its Go module, and what it makes of the chart."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "kafkalite"
API = "--api-versions=kafkalite.io/v1alpha1"


def built(script: str) -> Path:
    """What a script of tools/ prints as its result, which it builds or fetches if need be."""
    done = subprocess.run([ROOT / "tools" / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class Helm:
    """One helm with a home of its own."""

    binary: Path
    home: Path

    def run(self, *arguments: str, values: Any = None, fails: bool = False, kubeconfig: Path | None = None) -> str:
        """Standard output; with `fails` what helm said on standard error."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        environment |= {"HOME": str(self.home), "XDG_CACHE_HOME": str(self.home), "XDG_DATA_HOME": str(self.home)}
        environment["KUBECONFIG"] = str(kubeconfig or self.home / "no-kubeconfig")
        command = [str(self.binary), *arguments, *(["--values=-"] if values is not None else [])]
        done = subprocess.run(
            command,
            input=json.dumps(values) if values is not None else "",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def template(self, values: Any = None, *arguments: str, namespace: str = "kafka") -> list[dict[str, Any]]:
        """The documents that a release named `release` would apply, without those of `helm test`."""
        words = ["template", "release", str(CHART), f"--namespace={namespace}", "--skip-tests", *arguments]
        return load(self.run(*words, values=values or {}))

    def refused(self, values: Any, *arguments: str) -> str:
        """Why the chart refuses these values."""
        return self.run("template", "release", str(CHART), *arguments, values=values, fails=True)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(built("helm/build.sh"), tmp_path_factory.mktemp("helm-home"))


def load(text: str) -> list[dict[str, Any]]:
    """All documents of a YAML text. The definitions are long, and the parser in C is there on every usual platform."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [doc for doc in yaml.load_all(text, Loader=loader) if doc]


def only(documents: list[dict], kind: str, name: str = "") -> dict:
    """The one document of that kind (and name)."""
    found = [doc for doc in documents if doc["kind"] == kind and name in ("", doc["metadata"]["name"])]
    assert len(found) == 1, [(doc["kind"], doc["metadata"]["name"]) for doc in documents]
    return found[0]


def kinds(documents: list[dict]) -> set[str]:
    return {doc["kind"] for doc in documents}


def pod_template(documents: list[dict]) -> dict:
    return only(documents, "Deployment")["spec"]["template"]
