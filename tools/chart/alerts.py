"""What is written from the alerts of the chart: the schema of their values, and their part of docs/monitoring.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).resolve().parents[2] / "helm/kafkalite/files/alerts.yaml"
PLACES = {
    "namespace": "NAMESPACE", "kafkalite_io_cluster": "CLUSTER", "pod": "POD", "topic": "TOPIC", "action": "ACTION",
    "persistentvolumeclaim": "CLAIM",
}  # fmt: skip
"""How the page writes a label of a summary."""


def alerts() -> list[dict[str, Any]]:
    """All of them, in order."""
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def schema() -> dict[str, Any]:
    """Of the values of single alerts. A name that no alert has is refused, and a threshold where there is none."""
    own = {
        "enabled": {"type": "boolean"},
        "for": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$"},
        "severity": {"type": "string", "minLength": 1, "maxLength": 63},
    }
    # helm's --set makes a string of a fraction.
    number = {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$"}
    kinds = {
        True: {"type": "object", "additionalProperties": False, "properties": own | {"threshold": number}},
        False: {"type": "object", "additionalProperties": False, "properties": own},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {
            f"^{rule['alert']}$": kinds["threshold" in rule]
            for rule in sorted(alerts(), key=lambda rule: rule["alert"])
        },
    }


def page() -> str:
    """A table of all alerts, and what to do for each."""
    lines = ["| alert | severity | for | threshold | says |", "|---|---|---|---|---|"]
    for rule in alerts():
        name = f"[{rule['alert']}](#{rule['alert'].lower()})"
        threshold = json.dumps(rule["threshold"]) if "threshold" in rule else "-"
        lines.append(f"| {name} | {rule['severity']} | {rule['for']} | {threshold} | {said(rule['summary'])} |")
    for rule in alerts():
        lines += ["", f"### {rule['alert']}", "", linked(" ".join(rule["description"].split()))]
    return "\n".join(lines) + "\n"


def said(summary: str) -> str:
    """A summary with words where Prometheus puts labels and values."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: PLACES[match[1]], summary)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", text)


def sections(description: str) -> list[str]:
    """The sections of docs/operations.md that a description names."""
    named = re.search(r'See (".*") in docs/operations\.md\.$|: (".*") in docs/operations\.md\.$', description)
    return re.findall(r'"([^"]+)"', named[1] or named[2]) if named else []


def linked(description: str) -> str:
    """A description whose sections of docs/operations.md are links from its folder."""
    for title in sections(description):
        description = description.replace(f'"{title}"', f"[{title}](operations.md#{title.lower().replace(' ', '-')})")
    return description.replace(" in docs/operations.md.", " in operations.md.")
