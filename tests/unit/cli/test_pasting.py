"""Commands that are offered for pasting: they go where the command went that offers them."""

import json
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kafkalite_cli.connection import Target
from kafkalite_cli.main import main
from kafkalite_cli.options import KubeOptions
from kafkalite_cli.pasting import Commands
from kafkalite_runtime.home import Home
from tests.unit.cli.world import entry


def offered(target=None, **options):
    """(kubectl's, ours) about cluster c in namespace ns."""
    say = Commands.of(KubeOptions(**options), target).about("ns", "c")
    return say.kubectl("ns", "get klt"), say.kafkalite("replace 1")


@pytest.mark.parametrize(
    ("options", "kubectl", "ours"),
    [
        ({}, "kubectl -n ns get klt", "kafkalite replace 1"),
        (
            {"context": "prod eu", "namespace": "ns"},
            "kubectl --context 'prod eu' -n ns get klt",
            "kafkalite replace 1 --context 'prod eu' -n ns",
        ),
        (
            {"kubeconfig": Path("my k"), "cluster": "c"},
            "kubectl --kubeconfig 'my k' -n ns get klt",
            "kafkalite replace 1 --kubeconfig 'my k' --cluster c",
        ),
        ({"all_namespaces": True}, "kubectl -n ns get klt", "kafkalite replace 1 -n ns"),
    ],
)
def test_what_was_said_is_said_again_and_nothing_else(options, kubectl, ours):
    assert offered(**options) == (kubectl, ours)


def test_of_several_clusters_one_is_named():
    say = Commands.of(KubeOptions()).about("ns", "c", several=True)
    assert say.kafkalite("replace 1") == "kafkalite replace 1 -n ns --cluster c"
    assert Commands.of(KubeOptions(all_namespaces=True)).kafkalite("status") == "kafkalite status -A"


def test_kubectl_is_told_where_the_local_cluster_is(tmp_path, monkeypatch):
    home = Home(tmp_path / "my home")
    monkeypatch.chdir(tmp_path)
    local = Target((home.kubeconfig,), home)
    assert offered(local) == ("kubectl --kubeconfig 'my home/kubeconfig' -n ns get klt", "kafkalite replace 1")
    assert offered(Target((home.kubeconfig,), None)) == ("kubectl -n ns get klt", "kafkalite replace 1")
    # The context is one of kubectl's own files, of which the local cluster's may be the first.
    assert offered(local, context="prod")[0] == "kubectl --context prod -n ns get klt"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert offered(local)[0] == f"kubectl --kubeconfig '{home.kubeconfig}' -n ns get klt"


def test_kubectls_plugin_is_called_by_kubectl(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-kafkalite", "doctor"])
    assert offered(namespace="ns")[1] == "kubectl kafkalite replace 1 -n ns"


# --- the commands that offer some ------------------------------------------------------------------------------------


@pytest.fixture
def two_contexts(world, tmp_path, monkeypatch):
    """What kubectl finds by itself; the current context is another cluster's."""
    document = yaml.safe_load(world.kubeconfig.read_text())
    [context] = document["contexts"]
    document["contexts"] = [{**context, "name": "prod"}, {"name": "staging", "context": {"cluster": "elsewhere"}}]
    document["clusters"].append({"name": "elsewhere", "cluster": {"server": "http://elsewhere.invalid:1"}})
    document["current-context"] = "staging"
    path = tmp_path / "two"
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(path))


def run(world, *arguments, code=0):
    result = CliRunner().invoke(main, [*arguments, "--context", "prod", "-n", world.namespace])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_consent_to_a_loss_names_the_context(world, two_contexts):
    world.fence(1)
    world.topic("orders", entry([1], isr=[1], leader=-1))
    found = json.loads(run(world, "doctor", "-o", "json", code=1).stdout)["findings"]
    [consent] = [each["todo"] for each in found if each["code"] == "OfflinePartitions"]
    assert consent.endswith(
        f"kubectl --context prod -n {world.namespace} annotate klt orders kafkalite.io/elect-unclean=all"
    )


def test_of_two_clusters_each_finding_names_its_own(world, two_contexts):
    world.cluster(1, name="second")
    world.fence(1)
    world.topic("orders", entry([0, 1, 2], isr=[0, 2]))
    found = json.loads(run(world, "doctor", "-o", "json", code=1).stdout)["findings"]
    [behind] = [each["todo"] for each in found if each["code"] == "UnderReplicated"]
    assert behind.endswith(f"kafkalite replace 1 --context prod -n {world.namespace} --cluster kafkalite")


def test_what_is_empty_is_taken_away_from_the_same_cluster(world, two_contexts):
    shown = run(world, "decommission", "2", "--yes").stdout
    assert f"kubectl --context prod -n {world.namespace} scale klc kafkalite --replicas=2" in shown
    other = run(world, "decommission", "1", "--yes").stdout
    assert f"(kafkalite decommission 1 --cancel --context prod -n {world.namespace} lets it" in other


def test_the_way_back_goes_back_in_the_same_cluster(world, two_contexts):
    world.topic("orders", entry([0, 1]), entry([0, 1]), entry([0, 1]))
    said = run(world, "rebalance", "--execute").stderr
    assert f"`kafkalite reassign cancel --all --context prod -n {world.namespace}` goes back" in said


def test_the_local_cluster_is_named_to_kubectl_by_every_command(world, monkeypatch):
    home = world.kubeconfig.parent
    monkeypatch.setenv("KAFKALITE_HOME", str(home))
    result = CliRunner().invoke(main, ["decommission", "2", "--yes", "-n", world.namespace])
    assert result.exit_code == 0, result.output
    file = shlex.quote(str(world.kubeconfig))
    assert f"kubectl --kubeconfig {file} -n {world.namespace} scale klc kafkalite --replicas=2" in result.stdout
