"""docs/helm.md, docs/monitoring.md, the notes of an install and the refusals speak of values and objects that exist."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import yaml

from kafkalite_core.resources.manifests import DEFAULT_SERVICE_ACCOUNT
from tests.helm.conftest import API, CHART, ROOT, Helm, load
from tests.helm.schemas import problems

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "helm.md").read_text(encoding="utf-8")
PROSE = PAGE[: PAGE.index("<!-- values -->")]
MONITORING = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")


def values() -> dict:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def exists(key: str) -> bool:
    node = values()
    for name in key.split("."):
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return True


def test_values_that_are_mentioned_exist():
    heads = "|".join(re.escape(name) for name in values())
    texts = [
        PROSE,
        MONITORING.replace(".labels.release", ".labels"),
        (CHART / "templates/NOTES.txt").read_text(),
        (CHART / "templates/_helpers.tpl").read_text(),
    ]
    mentioned = {
        key.rstrip(".") for text in texts for key in re.findall(rf"(?<![\w./{{-])(?:{heads})(?:\.[a-zA-Z]+)+", text)
    }
    assert len(mentioned) > 15
    assert [key for key in sorted(mentioned) if not exists(key)] == []
    set_on_the_command_line = re.findall(r"--set[ =]([\w.]+)=", PROSE)
    assert set_on_the_command_line
    assert all(exists(key) for key in set_on_the_command_line)


def test_the_alerts_of_the_page_are_made(helm: Helm):
    """Its commands with their options, and its block of values."""
    upgrade, by_hand, block = re.findall(r"```\n(.*?)```", MONITORING, re.DOTALL)
    options = [word for word in shlex.split(upgrade.replace("\\\n", " ")) if word == "--set" or "=" in word]
    assert Counter(doc["kind"] for doc in helm.template({}, *options)).items() >= {
        "ServiceMonitor": 1, "PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1,
    }.items()  # fmt: skip
    [command, *words] = shlex.split(by_hand.replace("\\\n", " ").replace("helm/kafkalite", str(CHART)))
    assert command == "helm"
    [rule] = [doc for doc in yaml.safe_load_all(helm.run(*words)) if doc]
    assert rule["kind"] == "PrometheusRule"
    monitored = {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}
    changed = helm.template({"metrics": {**monitored, **yaml.safe_load(block)["metrics"]}})
    [lag] = [
        rule
        for doc in changed if doc["kind"] == "PrometheusRule"
        for group in doc["spec"]["groups"]
        for rule in group["rules"]
        if rule["alert"] == "KafkaLiteEventLoopLag"
    ]  # fmt: skip
    assert lag["labels"] == {"severity": "info", "team": "data"}


def test_the_values_of_the_page_are_taken(helm: Helm):
    [block] = [text for text in re.findall(r"```\n(.*?)```", PROSE, re.DOTALL) if text.startswith("cluster:")]
    documents = helm.template(yaml.safe_load(block), API)
    made = Counter(doc["kind"] for doc in documents if doc["kind"].startswith("KafkaLite"))
    assert made == {"KafkaLiteCluster": 1, "KafkaLiteTopic": 1}
    assert [problem for doc in documents for problem in problems(doc)] == []


def test_what_is_removed_by_hand_is_what_stays(helm: Helm):
    kept = [
        (doc["kind"].lower(), doc["metadata"]["name"])
        for doc in helm.template()
        if doc["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    ]
    removal = PROSE[PROSE.index("To remove everything") : PROSE.index("## Security")]
    for kind, name in kept:
        assert name in removal, (kind, name)
    assert f"serviceaccount,role,rolebinding --namespace kafkalite {DEFAULT_SERVICE_ACCOUNT}" in removal


def test_the_notes_say_how_policies_of_admission_go_that_an_upgrade_leaves_behind(helm: Helm, tmp_path: Path):
    """helm keeps them, and they would go on refusing what brokers write."""
    chart = tmp_path / "kafkalite"
    shutil.copytree(CHART, chart)
    text = '{{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}'
    (chart / "templates/notes.yaml").write_text(f"{{kind: Notes, text: {text}}}\n")

    def notes(*, enabled: bool, upgrade: bool = True) -> str:
        words = ["--namespace=kafka", "--show-only=templates/notes.yaml", *(["--is-upgrade"] if upgrade else [])]
        values = {"brokers": {"admissionPolicy": {"enabled": enabled}}}
        [doc] = load(helm.run("template", "release", str(chart), *words, values=values))
        assert not re.search(r"\n\n\n|[ \t]\n", doc["text"]), doc["text"]
        return doc["text"]

    made = helm.template({"brokers": {"admissionPolicy": {"enabled": True}}})
    policies = [doc["metadata"]["name"] for doc in made if doc["kind"] == "ValidatingAdmissionPolicy"]
    [names] = re.findall(r"kubectl delete validatingadmissionpolicy,.* \\\n(.*)", notes(enabled=False))
    assert names.split() == policies
    assert "validatingadmission" not in notes(enabled=True) + notes(enabled=False, upgrade=False)
