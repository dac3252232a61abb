"""One line when something begins to go wrong, one when it is well again."""

import structlog
from structlog.testing import capture_logs

from kafkalite_runtime.complaints import Complaints
from kafkalite_runtime.kube.errors import KubeForbidden, KubeUnavailable


def test_each_trouble_is_told_once_and_its_end():
    with capture_logs() as lines:
        complaints = Complaints(structlog.stdlib.get_logger("test"))
        complaints.well("a", "a is well")  # it never was otherwise
        for attempt in range(50):
            complaints.wrong("a", "a is wrong", KubeUnavailable(f"port {attempt}", ambiguous=False), node=1)
            complaints.wrong("a", "a is wrong", KubeUnavailable("x", ambiguous=False, status=503))
            complaints.wrong("a", "a is wrong", KubeForbidden(403, "Forbidden", "no"))
        complaints.wrong("b", "b is wrong", KubeForbidden(403, "Forbidden", "no"))
        complaints.well("a", "a is well")
        complaints.well("b")
        complaints.wrong("a", "a is wrong", KubeUnavailable("again", ambiguous=False))
    told = [(line["event"], line.get("error")) for line in lines if line["log_level"] != "debug"]
    assert told == [
        ("a is wrong", "port 0"),
        ("a is wrong", "x"),
        ("a is wrong", "403 Forbidden: no"),
        ("b is wrong", "403 Forbidden: no"),
        ("a is well", None),
        ("a is wrong", "again"),
    ]
    assert lines[0]["node"] == 1
    assert sum(line["log_level"] == "debug" for line in lines) == 3 * 49
