"""What is written from the chart, and what is written into it: see `generate`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tools.chart import alerts
from tools.chart.dashboard import dashboard
from tools.chart.schema import definition

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "kafkalite"
MANIFESTS = ROOT / "helm" / "manifests"
PAGE = ROOT / "docs" / "helm.md"
MONITORING_PAGE = ROOT / "docs" / "monitoring.md"
DASHBOARD = CHART / "files" / "dashboards" / "kafkalite.json"
NAME = "kafkalite"
"""Release and namespace of the plain manifests."""

SPECS = {"clusterSpec": "kafkaliteclusters", "topicSpec": "kafkalitetopics"}
HEADER = "# Written from helm/kafkalite by `make chart`; do not edit.\n"
_HELM_ONLY = re.compile(r"^\s*(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE)


def helm(*arguments: str) -> str:
    """Standard output of helm, which is built if need be. Raises CalledProcessError after showing what it said."""
    built = subprocess.run([ROOT / "tools/helm/build.sh"], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    # Neither plugins nor repositories of the user have a say.
    away = dict.fromkeys(("HELM_PLUGINS", "HELM_REPOSITORY_CONFIG", "HELM_REGISTRY_CONFIG"), "/dev/null")
    command = [built.stdout.strip(), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | away).stdout  # noqa: S603


def without_helm() -> dict[Path, str]:
    """The files that are written without helm: definitions, schema, dashboard, documentation."""
    crds = {CHART / "files/crds" / path.name: path.read_text(encoding="utf-8") for path in definitions()}
    values_schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    for name, plural in SPECS.items():
        [version] = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text(encoding="utf-8"))["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        values_schema["definitions"][name] = definition(spec)
    values_schema["definitions"]["alerts"] = alerts.schema()
    table = values_table(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")), values_schema)
    return crds | {
        CHART / "values.schema.json": json.dumps(values_schema, indent=2, ensure_ascii=False) + "\n",
        DASHBOARD: dashboard(),
        PAGE: with_block(PAGE.read_text(encoding="utf-8"), "values", table),
        MONITORING_PAGE: with_block(MONITORING_PAGE.read_text(encoding="utf-8"), "alerts", alerts.page()),
    }


def with_block(page: str, name: str, text: str) -> str:
    """A page with another text between its two marks of that name."""
    return re.sub(rf"(?<=<!-- {name} -->\n).*(?=<!-- /{name} -->)", lambda _: text, page, flags=re.DOTALL)


def definitions() -> list[Path]:
    """The custom resource definitions: the one truth."""
    return sorted((ROOT / "crds").glob("*.yaml"))


def manifests() -> dict[Path, str]:
    """The plain manifests: what the chart's default values make, and beside it what racks need."""
    template = ("template", NAME, str(CHART), f"--namespace={NAME}")
    rendered = helm(*template, "--set=crds.enabled=false", "--skip-tests")
    nodes = helm(*template, "--set=rbac.readNodes=true", "--show-only=templates/nodes-rbac.yaml")
    return {
        MANIFESTS / "operator.yaml": HEADER + _HELM_ONLY.sub("", rendered),
        MANIFESTS / "nodes" / "rbac.yaml": HEADER + _HELM_ONLY.sub("", nodes),
    }


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The keys of values.yaml that hold no other keys; specs, probes, resources, contexts and labels count as one."""
    whole = ("spec", "Probe", "resources", "ecurityContext", "labels")
    if not isinstance(value, dict) or not value or path.endswith(whole):
        return {path: value}
    found: dict[str, Any] = {}
    for name, child in value.items():
        found |= leaves(child, f"{path}.{name}".lstrip("."))
    return found


def description(schema: dict[str, Any], path: str) -> str:
    """What the schema says about a key. Raises KeyError when it does not know the key."""
    node = schema
    for name in path.split("."):
        node = node["properties"][name]
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]] | node
    return str(node["description"])


def values_table(values: dict[str, Any], schema: dict[str, Any]) -> str:
    """The table of values for the documentation."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for path, default in leaves(values).items():
        shown = json.dumps(default, ensure_ascii=False)
        lines.append(f"| `{path}` | `{shown}` | {' '.join(description(schema, path).split())} |")
    return "\n".join(lines) + "\n"
