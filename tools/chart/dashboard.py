"""Grafana's JSON of the dashboard, from the panels that tools/chart/dashboard.yaml lists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

PANELS = Path(__file__).with_name("dashboard.yaml")
COLUMNS = 24
HEIGHTS = {"stat": 4, "timeseries": 8}
SCHEMA_VERSION = 39
"""Of Grafana 10.4: newer ones migrate it themselves."""
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}

SERIES = {
    "$brokers": 'namespace=~"$namespace", kafkalite_io_cluster=~"$cluster", pod=~"$broker"',
    "$operator": 'namespace=~"$operator_namespace", job=~"$operator"',
}
_CLUSTERS = 'kafka_server_replicamanager_partitioncount{kafkalite_io_cluster!=""}'
_OF_CLUSTER = '{namespace=~"$namespace", kafkalite_io_cluster=~"$cluster"}'
_OPERATORS = "kafkalite_operator_reconcile_last_success_timestamp_seconds"


def dashboard() -> str:
    """The file."""
    rows = yaml.safe_load(PANELS.read_text(encoding="utf-8"))
    document = {
        "uid": "kafkalite",
        "title": "KafkaLite",
        "description": "Brokers and operator of KafkaLite. What each panel means is behind its i.",
        "tags": ["kafka", "kafkalite"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": placed(rows),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def variables() -> list[dict[str, Any]]:
    """What the user chooses above the panels."""
    source = {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "regex": "",
        "multi": False, "includeAll": False, "hide": 0, "refresh": 1, "options": [], "current": {},
    }  # fmt: skip
    return [
        source,
        _variable("namespace", "Namespace", f"label_values({_CLUSTERS}, namespace)"),
        _variable(
            "cluster", "Cluster",
            f'label_values({_CLUSTERS[:-1]}, namespace=~"$namespace"}}, kafkalite_io_cluster)',
        ),
        _variable(
            "broker", "Broker", f"label_values(kafka_server_replicamanager_partitioncount{_OF_CLUSTER}, pod)", all_=".+"
        ),
        _variable("topic", "Topic", f"label_values(kafka_log_log_size{_OF_CLUSTER}, topic)", all_=".+"),
        _variable("operator_namespace", "Operator's namespace", f"label_values({_OPERATORS}, namespace)"),
        _variable("operator", "Operator", f'label_values({_OPERATORS}{{namespace=~"$operator_namespace"}}, job)'),
    ]  # fmt: skip


def _variable(name: str, label: str, query: str, *, all_: str = "") -> dict[str, Any]:
    """One that Prometheus is asked for; with `all_`, a pattern for all of its values, several can be chosen."""
    several = bool(all_)
    return {
        "name": name, "label": label, "type": "query", "datasource": PROMETHEUS, "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"}, "regex": "", "sort": 1, "refresh": 2, "hide": 0,
        "multi": several, "includeAll": several, "allValue": all_ or None, "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
    }  # fmt: skip


def placed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All panels with ids and places: rows from top to bottom, panels from left to right."""
    found: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        header = {"id": len(found) + 1, "type": "row", "title": row["row"], "collapsed": False, "gridPos": place}
        found.append(header | {"panels": []})
        top += 1
        left = height = 0
        for panel in row["panels"]:
            if left + panel["width"] > COLUMNS:
                top, left, height = top + height, 0, 0
            kind = panel.get("kind", "timeseries")
            place = {"h": HEIGHTS[kind], "w": panel["width"], "x": left, "y": top}
            left, height = left + panel["width"], max(height, HEIGHTS[kind])
            found.append({"id": len(found) + 1, "type": kind, "gridPos": place, **_panel(kind, panel)})
        top += height
    return found


def _panel(kind: str, panel: dict[str, Any]) -> dict[str, Any]:
    stat = kind == "stat"
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": PROMETHEUS,
            "editorMode": "code",
            "expr": expression(query["expr"]),
            "legendFormat": query.get("legend", panel["title"]),
            "instant": stat,
            "range": not stat,
        }
        for number, query in enumerate(panel["queries"])
    ]
    return {
        "title": panel["title"],
        "description": panel["description"],
        "datasource": PROMETHEUS,
        "targets": targets,
        "fieldConfig": {"defaults": _stat_field(panel) if stat else _series_field(panel), "overrides": []},
        "options": _STAT_OPTIONS if stat else _SERIES_OPTIONS,
    }


def expression(text: str) -> str:
    """In one line, with the labels that the variables choose."""
    result = re.sub(r"\$(?:brokers|operator)\b", lambda match: SERIES[match[0]], " ".join(text.split()))
    return re.sub(r"\(\s+", "(", result)


_STAT_OPTIONS = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "colorMode": "background", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "value",
}  # fmt: skip
_SERIES_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


def _stat_field(panel: dict[str, Any]) -> dict[str, Any]:
    green, red = {"color": "green", "value": None}, {"color": "red"}
    if "alarm" in panel:
        steps = [green, red | {"value": panel["alarm"]}]
    elif "exactly" in panel:
        right = panel["exactly"]
        steps = [red | {"value": None}, {"color": "green", "value": right}, red | {"value": right + 1}]
    else:
        steps = [{"color": "blue", "value": None}]
    return {
        "unit": panel.get("unit", "short"),
        "noValue": panel.get("missing", "no data"),
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": [],
    }


def _series_field(panel: dict[str, Any]) -> dict[str, Any]:
    stack = panel.get("stack", False)
    custom = {
        "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 30 if stack else 5,
        "showPoints": "never", "spanNulls": False, "stacking": {"mode": "normal" if stack else "none", "group": "A"},
    }  # fmt: skip
    return {
        "unit": panel.get("unit", "short"),
        "min": panel.get("min", 0),
        **({"max": panel["max"]} if "max" in panel else {}),
        "color": {"mode": "palette-classic"},
        "custom": custom,
        "mappings": [],
    }
