"""A Prometheus of our own on loopback, promtool, and what the chart gives to both."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.helm.conftest import built, only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.helm.conftest import Helm

MONITORED: dict[str, Any] = {
    "metrics": {name: {"enabled": True} for name in ("serviceMonitor", "podMonitor", "prometheusRule", "dashboard")}
}
READY_LIMIT_S = 30.0


def rules(helm: Helm, namespace: str = "kafka", **own: Any) -> dict[str, Any]:
    """The `spec` of the PrometheusRule: a file of rules."""
    values = {"metrics": {**MONITORED["metrics"], "prometheusRule": {"enabled": True, **own}}}
    return only(helm.template(values, namespace=namespace), "PrometheusRule")["spec"]


def by_name(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}


def dashboard(helm: Helm) -> dict[str, Any]:
    """The dashboard as the sidecar would find it."""
    document: dict[str, Any] = json.loads(only(helm.template(MONITORED), "ConfigMap")["data"]["kafkalite.json"])
    return document


def targets(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Title and expression of every query of a dashboard."""
    return [(panel["title"], target["expr"]) for panel in document["panels"] for target in panel.get("targets", [])]


def chosen(server: Prometheus, document: dict[str, Any], start: float, end: float) -> dict[str, tuple[str, set[str]]]:
    """For each variable of the dashboard what its queries get, and its options, asked of Prometheus as Grafana would."""
    found: dict[str, tuple[str, set[str]]] = {}
    for variable in document["templating"]["list"]:
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert match is not None, variable["definition"]
        selector, label = match.groups()
        values = {name: value for name, (value, _) in found.items()}
        series = server.get("series", start=start, end=end, **{"match[]": put(values, selector)})
        options = {each[label] for each in series}
        found[variable["name"]] = variable["allValue"] or min(options, default=""), options
    return found


def put(values: dict[str, str], text: str) -> str:
    """An expression with its variables replaced."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], text)


def promtool(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [built("prometheus/fetch.sh") / "promtool", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def get(self, path: str, **parameters: Any) -> Any:
        """`data` of an answer of the HTTP API. AssertionError: it is an error; the message of Prometheus."""
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error

    def instant(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def series(self, expression: str, start: float, end: float) -> list[dict[str, Any]]:
        """The series of an expression that had a number (not NaN) in that time."""
        parameters = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": 1}
        found = self.get("query_range", **parameters)["result"]
        return [each for each in found if any(not math.isnan(float(value)) for _, value in each["values"])]

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        """The alerts that fire now."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    def fired(self, start: float, end: float) -> set[str]:
        """Names of the alerts that fired at any time between."""
        return {each["metric"]["alertname"] for each in self.series('ALERTS{alertstate="firing"}', start, end)}


@contextmanager
def running_prometheus(folder: Path, port: int, config: dict[str, Any]) -> Iterator[Prometheus]:
    """Start a server on loopback, stop it at the end. AssertionError with its log when it does not start."""
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        built("prometheus/fetch.sh") / "prometheus",
        "--config.file=prometheus.yaml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            end = time.monotonic() + READY_LIMIT_S
            while not _ready(server):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.05)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=30)


def _ready(server: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5):
            return True
    except OSError:
        return False
