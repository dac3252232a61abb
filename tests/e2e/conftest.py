"""The chart on a cluster of the user's choice: KUBECONFIG names it, `make kind-up` makes one.

KAFKALITE_E2E_REGISTRY    where the nodes find the three images (empty: they have them, by `make kind-up`)
KAFKALITE_E2E_SPARK       1: the images of `make spark-images` are there, too
KAFKALITE_E2E_PATIENCE    factor for limits of time, for a machine that has something else to do
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import ROOT, Cluster
from tests.e2e.harm import Killer, Nodes
from tests.e2e.images import why_not
from tests.e2e.installation import installed

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST, LAST = "test_first_cluster.py", "test_operator_removed_first.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the module that measures how long it takes from the installation of the chart to the first record.

    Last the one that removes it.
    """
    ours = Path(__file__).parent
    items.sort(key=lambda item: (item.path.parent == ours) * (1 + (item.path.name == LAST) - (item.path.name == FIRST)))


def built(script: str) -> Path:
    """What a script of tools/ has built."""
    done = subprocess.run([ROOT / "tools" / script], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    if not os.environ.get("KUBECONFIG"):
        pytest.fail('KUBECONFIG names no cluster; one to throw away: eval "$(make --silent kind-up)"')
    found = Cluster(built("kubernetes/build.sh") / "kubectl", built("helm/build.sh"), tmp_path_factory.mktemp("home"))
    found.kubectl("get", "--raw=/readyz")
    if why := why_not(found):
        pytest.exit(why, returncode=1)  # once, not as the failure of every test
    return found


@pytest.fixture(scope="session")
def release(cluster: Cluster) -> Iterator[float]:
    """The chart, in a namespace that is gone afterwards. The value is the time at which its installation began."""
    with installed(cluster) as began:
        yield began


@pytest.fixture(scope="session")
def killer(cluster: Cluster, release: float) -> Killer:
    found = Killer(cluster)
    found.install()
    return found


@pytest.fixture(scope="session")
def nodes(cluster: Cluster, release: float) -> Nodes:
    """Skips what needs it on a cluster that is not ours. With CI=true that is a failure."""
    found = Nodes.of(cluster)
    if found is None:
        reason = "the nodes of this cluster are not ours to stop: it was not made by `make kind-up`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return found
