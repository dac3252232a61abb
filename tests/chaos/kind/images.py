"""Whether what runs in the pods is the program of this work tree: a line of the ledger says that it was."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.e2e.cluster import OPERATOR_PODS, ROOT, broker_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.e2e.cluster import Cluster

# Done in a pod and here, with the folder of each package or its name.
SCRIPT = """
import hashlib, importlib.util, pathlib, sys
digest = hashlib.sha256()
for name in sys.argv[1:]:
    folder = pathlib.Path(name)
    if not folder.is_absolute():
        folder = pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(b"%s %s %d " % (folder.name.encode(), str(path.relative_to(folder)).encode(), len(content)))
        digest.update(content)
print(digest.hexdigest())
"""
PACKAGES = {
    "kafkalite_core": ROOT / "core" / "kafkalite_core",
    "kafkalite_runtime": ROOT / "runtime" / "kafkalite_runtime",
    "kafkalite_broker": ROOT / "broker_image" / "kafkalite_broker",
    "kafkalite_operator": ROOT / "operator" / "kafkalite_operator",
    "kafkalite_cli": ROOT / "cli" / "kafkalite_cli",
}
SHARED = ("kafkalite_core", "kafkalite_runtime")


def foreign(cluster: Cluster) -> list[str]:
    """Pods whose image was made of other sources; none: all are of this work tree."""
    operators = [pod["metadata"]["name"] for pod in cluster.items("pods", OPERATOR_PODS)]
    pods = {
        broker_pod(0): (*SHARED, "kafkalite_broker"),
        operators[0]: (*SHARED, "kafkalite_operator"),
        "client": (*SHARED, "kafkalite_cli"),
    }
    return [pod for pod, names in pods.items() if there(cluster, pod, names) != here(names)]


def there(cluster: Cluster, pod: str, names: Iterable[str]) -> str:
    """Hash of the modules of these packages in a pod."""
    return cluster.kubectl("exec", pod, "--", "python3", "-c", SCRIPT, *names).strip()


def here(names: Iterable[str]) -> str:
    """The same of the work tree."""
    folders = [str(PACKAGES[name]) for name in names]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *folders], check=True, capture_output=True, text=True)
    return done.stdout.strip()
