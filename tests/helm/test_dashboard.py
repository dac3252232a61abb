"""The dashboard has the shape that Grafana imports, asks for metrics that exist, and leaves none out."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from tests.helm.conftest import Helm, kinds, only
from tests.helm.prometheus import MONITORED, by_name, dashboard, rules, targets
from tests.unit.docs.test_drift import documented_metrics
from tools.chart.dashboard import COLUMNS

FOREIGN = {"up", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}
PROCESS = {
    f"process_{name}"
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds")
}
BUILT_IN = {"__rate_interval"}
UNITS = {
    "short", "none", "s", "ms", "ops", "cps", "reqps", "Bps", "bytes", "percent", "percentunit",
}  # fmt: skip


@pytest.fixture(scope="module")
def document(helm: Helm) -> dict[str, Any]:
    return dashboard(helm)


@pytest.fixture(scope="module")
def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for child in value.values() for text in strings(child)]
    if isinstance(value, list):
        return [text for child in value for text in strings(child)]
    return [value] if isinstance(value, str) else []


def test_it_comes_when_asked_for_and_where_the_sidecar_looks(helm: Helm):
    assert "ConfigMap" not in kinds(helm.template())
    made = only(helm.template(MONITORED), "ConfigMap")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    own = {
        "enabled": True,
        "labels": {"grafana_dashboard": None, "find": "me"},
        "annotations": {"grafana_folder": "Kafka"},
    }
    made = only(helm.template({"metrics": {"dashboard": own}}), "ConfigMap")
    assert made["metadata"]["labels"]["find"] == "me"
    assert "grafana_dashboard" not in made["metadata"]["labels"]
    assert made["metadata"]["annotations"] == {"grafana_folder": "Kafka"}


def test_what_kubectl_has_to_remember_of_it_fits_into_an_annotation(helm: Helm):
    """kubectl apply keeps the whole object in one, which may have 256 KiB."""
    assert len(json.dumps(only(helm.template(MONITORED), "ConfigMap"))) < 200_000


def test_ids_titles_and_places(document: dict[str, Any], panels: list[dict[str, Any]]):
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["title"] and panel["description"].endswith(".") for panel in panels)
    used: dict[tuple[int, int], str] = {}
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in used, f"{panel['title']} lies over {used[cell]}"
            used[cell] = panel["title"]


def test_the_panel_of_requests_in_memory_says_what_is_counted(panels: list[dict[str, Any]]):
    """Frames that are not whole yet are no requests, and what waits has given its batches to the log."""
    [panel] = [each for each in panels if "kafkalite_requests_in_flight_bytes" in each["targets"][0]["expr"]]
    for words in ("frames, whole or not", "A batch that was appended is not counted", "queued.max.request.bytes"):
        assert words in panel["description"]


def test_no_row_has_a_hole(document: dict[str, Any]):
    """Panels fill the whole width, so that none is alone on its line by mistake."""
    width: dict[int, int] = {}
    for panel in document["panels"]:
        width[panel["gridPos"]["y"]] = width.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert {top: total for top, total in width.items() if total != COLUMNS} == {}


def test_every_query_asks_the_chosen_data_source(document: dict[str, Any], panels: list[dict[str, Any]]):
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    variables = [each for each in document["templating"]["list"] if each["type"] == "query"]
    assert all(each["datasource"] == wanted for each in [*panels, *variables])
    for panel in panels:
        assert panel["targets"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        assert all(target["datasource"] == wanted and target["legendFormat"] for target in panel["targets"])


def test_variables_are_defined_before_they_are_used_and_used(document: dict[str, Any]):
    known: set[str] = set()
    used: set[str] = set()
    for variable in document["templating"]["list"]:
        mentioned = names([text for key in ("query", "datasource") for text in strings(variable.get(key, ""))])
        assert mentioned <= known, variable["name"]
        used |= mentioned
        assert variable["name"] not in known
        known.add(variable["name"])
    mentioned = names(strings(document["panels"]))
    assert mentioned <= known | BUILT_IN
    assert (used | mentioned) - BUILT_IN == known, "a variable that nothing uses"


def names(texts: list[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"\$\{?(\w+)\}?", text)}


def test_every_query_is_narrowed_to_what_was_chosen(document: dict[str, Any]):
    for title, expression in targets(document):
        for selector in re.findall(r"\{([^}]*)\}", expression):
            assert 'namespace=~"$' in selector, (title, expression)
            assert re.search(r'"\$cluster"|"\$operator"|\$cluster-', selector), (title, expression)
        assert len(re.findall(r"\{", expression)) == len(metrics(expression)), (title, "a metric without a selector")


def test_units_and_legends(panels: list[dict[str, Any]]):
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["type"] in {"stat", "timeseries"}
        legends = [target["legendFormat"] for target in panel["targets"]]
        plain = [legend for legend in legends if "{{" not in legend]
        assert len(set(plain)) == len(plain), f"{panel['title']}: two lines of one name"
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            if grouped := re.match(r"(?:sum|max) by \(([\w, ]+)\)", target["expr"]):
                assert labels == set(grouped[1].split(", ")), panel["title"]


# --- metrics -------------------------------------------------------------------------------------------------------------


def metrics(expression: str) -> list[str]:
    """Names of metrics in an expression, each time that one occurs."""
    bare = re.sub(r"\{[^}]*\}|\b(?:by|on) \([^)]*\)", "", expression)
    return re.findall(r"\b(?:kafka|kafkalite|process|kubelet)_\w+|\bup\b", bare)


def exported() -> set[str]:
    found: set[str] = set()
    for whose in ("broker", "operator"):
        for name, kind in documented_metrics(whose).items():
            found |= {f"{name}_{part}" for part in ("bucket", "count", "sum")} if kind == "histogram" else {name}
    return found


def test_every_metric_that_is_asked_for_is_exported(helm: Helm, document: dict[str, Any]):
    expressions = [expression for _, expression in targets(document)]
    expressions += [rule["expr"] for rule in by_name(rules(helm)).values()]
    asked = {name for expression in expressions for name in metrics(expression)}
    assert len(asked) > 60
    assert asked - exported() == FOREIGN | PROCESS


def test_every_metric_is_on_the_dashboard(document: dict[str, Any]):
    shown = {re.sub(r"_(?:bucket|count|sum)$", "", name) for _, text in targets(document) for name in metrics(text)}
    shown |= {name for _, text in targets(document) for name in metrics(text)}
    assert {name for whose in ("broker", "operator") for name in documented_metrics(whose)} - shown == set()
