import errno
from types import SimpleNamespace

import pytest

from kafkalite_local.apiserver.kubeconfig import write_kubeconfig
from kafkalite_local.kubelet import agent, volumes
from kafkalite_local.kubelet.log_rotation import rotate
from kafkalite_local.kubelet.pod_spec import LaunchError
from kafkalite_local.kubelet.static_pods import MIRROR, mirror_of, read_manifests
from kafkalite_runtime.home import Home

POD = {
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {
        "volumes": [
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "tmp", "emptyDir": {}},
        ]
    },
}


def claim(uid):
    return {"metadata": {"name": "d", "namespace": "default", "uid": uid}}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.create()
    return home


def config_maps(**data):
    return {("default", "c"): {"data": {key.replace("_", "."): text for key, text in data.items()}}}


def test_folders_and_files(home):
    volumes.provision(claim("u"), home)
    volumes.prepare(POD, home, config_maps(broker_json="{}", old="x"))
    config = home.pods / "a" / "volumes" / "config"
    assert (config / "broker.json").read_text() == "{}"
    assert (home.volumes / "d").is_dir()
    assert (home.pods / "a" / "volumes" / "tmp").is_dir()
    volumes.write_config_map(POD, "config", home, config_maps(broker_json="[]"))
    assert (config / "broker.json").read_text() == "[]"
    assert [path.name for path in config.iterdir()] == ["broker.json"]


def test_what_is_missing_holds_the_pod_back_at_its_first_start_only(home):
    with pytest.raises(LaunchError, match='persistentvolumeclaim "d" not found'):
        volumes.prepare(POD, home, config_maps())
    volumes.provision(claim("u"), home)
    with pytest.raises(LaunchError, match='configmap "c" not found'):
        volumes.prepare(POD, home, {})
    volumes.prepare(POD, home, config_maps(a="1"))
    volumes.prepare(POD, home, {})
    assert (home.pods / "a" / "volumes" / "config" / "a").read_text() == "1"


def test_a_new_claim_is_an_empty_volume_and_the_old_data_is_set_aside(home):
    volumes.provision(claim("one"), home)
    (home.volumes / "d" / "data").write_text("precious")
    volumes.provision(claim("one"), home)
    assert (home.volumes / "d" / "data").exists()
    volumes.provision(claim("two"), home)
    assert list((home.volumes / "d").iterdir()) == []
    assert (home.volumes / ".released-d-one" / "data").read_text() == "precious"


def test_a_new_claim_that_finds_the_disk_full_is_provided_for_later(home, monkeypatch):
    volumes.provision(claim("one"), home)
    write_data(home, "precious")

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(volumes, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            volumes.provision(claim("two"), home)
    volumes.provision(claim("two"), home)
    assert (volumes.owner_of("d", home), list((home.volumes / "d").iterdir())) == ("two", [])
    assert (home.volumes / ".released-d-one" / "data").read_text() == "precious"


def test_reclaiming_spares_a_newer_claim(home):
    volumes.provision(claim("one"), home)
    volumes.provision(claim("two"), home)
    volumes.reclaim("d", "one", home)
    assert (home.volumes / "d").is_dir()
    volumes.reclaim("d", "two", home)
    assert not (home.volumes / "d").exists()


class Kubelet(agent.Kubelet):
    """Without an API server; `use` has a pod's process run on the folder of the claim as it is."""

    def __init__(self, home):
        write_kubeconfig(home.kubeconfig, "http://127.0.0.1:1", "t")
        super().__init__(home)
        self._resume()

    def use(self):
        worker = SimpleNamespace(pod=POD, volumes={("d", volumes.owner_of("d", self.home))})
        self._workers["a"] = worker

    def end(self):
        self._workers.clear()
        self._release_claims()

    def tell(self, type_, uid):
        self._on_claim(type_, claim(uid) | {"spec": {}, "status": {"phase": "Bound", "capacity": {}}})


def data_of(home):
    return sorted(path.read_text() for path in home.volumes.glob("*/data"))


def write_data(home, text):
    (home.volumes / "d" / "data").write_text(text)


async def test_a_deleted_claim_frees_its_disk_when_nobody_uses_it(home):
    kubelet = Kubelet(home)
    kubelet.tell("ADDED", "one")
    write_data(home, "one")
    kubelet.use()
    kubelet.tell("DELETED", "one")
    assert data_of(home) == ["one"]
    kubelet.end()
    assert list(home.volumes.iterdir()) == []


@pytest.mark.parametrize("late", [True, False])
async def test_a_folder_that_was_set_aside_goes_with_its_claim(home, late):
    """The next claim of the name may be seen before the end of the last one, or of its pod."""
    kubelet = Kubelet(home)
    kubelet.tell("ADDED", "one")
    write_data(home, "one")
    kubelet.use()
    if not late:
        kubelet.tell("DELETED", "one")
    kubelet.tell("ADDED", "two")
    write_data(home, "two")
    assert data_of(home) == ["one", "two"], "the process of the old pod may still write"
    if late:
        kubelet.use()  # a new one
        kubelet.tell("DELETED", "one")
    else:
        kubelet.end()
    assert data_of(home) == ["two"]
    assert not [path for path in home.volumes.iterdir() if "one" in path.name]


async def test_a_restarted_kubelet_frees_what_its_predecessor_had_to_keep(home):
    kubelet = Kubelet(home)
    kubelet.tell("ADDED", "one")
    write_data(home, "one")
    kubelet.use()
    kubelet.tell("DELETED", "one")
    kubelet = Kubelet(home)
    assert data_of(home) == ["one"]
    kubelet._on_claims([])
    assert list(home.volumes.iterdir()) == []


async def test_a_claim_that_was_only_missing_in_an_older_list_keeps_its_data(home):
    kubelet = Kubelet(home)
    kubelet.tell("ADDED", "one")
    write_data(home, "one")
    kubelet.use()
    kubelet._on_claims([])
    kubelet.tell("ADDED", "one")
    kubelet.end()
    assert data_of(home) == ["one"]
    kubelet = Kubelet(home)
    kubelet._on_claims([])
    assert data_of(home) == ["one"], "that nobody knows a claim does not say that it was deleted"


def test_termination_message_is_bounded(tmp_path):
    assert volumes.read_termination_message(tmp_path / "absent") == ""
    (tmp_path / "log").write_text("x" * 5000 + "end")
    text = volumes.read_termination_message(tmp_path / "log")
    assert len(text) == 4096
    assert text.endswith("end")


def test_log_rotation_keeps_the_file_that_the_writer_holds(tmp_path):
    with (tmp_path / "a.log").open("a") as writer:
        writer.write("x" * 100)
        writer.flush()
        assert rotate(tmp_path, 99) == [tmp_path / "a.log"]
        writer.write("after")
        writer.flush()
    assert (tmp_path / "a.log").read_text() == "after"
    assert (tmp_path / "a.log.1").read_text() == "x" * 100
    assert rotate(tmp_path, 99) == []


def test_manifests(tmp_path):
    good = "kind: Pod\nmetadata: {name: op}\nspec: {containers: [{name: c}]}\n"
    (tmp_path / "a.yaml").write_text(good)
    (tmp_path / "b.yaml").write_text("{")
    (tmp_path / "c.yaml").write_text("kind: Service\nmetadata: {name: s}\n")
    (pod,) = read_manifests(tmp_path).values()
    assert (pod["metadata"]["name"], pod["spec"]["nodeName"]) == ("op-local", "local")
    mirror = mirror_of(pod)
    assert mirror["metadata"]["annotations"][MIRROR] == pod["metadata"]["uid"]
    assert "uid" not in mirror["metadata"]
    (tmp_path / "a.yaml").write_text(good + "# changed\n")
    assert read_manifests(tmp_path)["op-local"]["metadata"]["uid"] != pod["metadata"]["uid"]


def test_fields_of_the_pod_are_files_that_follow_it(home):
    items = [
        {"path": "label", "fieldRef": {"fieldPath": "metadata.labels['zone']"}},
        {"path": "annotation", "fieldRef": {"fieldPath": "metadata.annotations['kafkalite.io/rack']"}},
    ]
    metadata = {"name": "a", "namespace": "default", "labels": {"zone": "z"}}
    pod = {"metadata": metadata, "spec": {"volumes": [{"name": "rack", "downwardAPI": {"items": items}}]}}
    volumes.prepare(pod, home, {})
    folder = home.pods / "a" / "volumes" / "rack"
    assert [(folder / name).read_text() for name in ("label", "annotation")] == ["z", ""]
    metadata["annotations"] = {"kafkalite.io/rack": "r"}
    volumes.write_fields(pod, home)
    assert (folder / "annotation").read_text() == "r"
    items.append({"path": "memory", "resourceFieldRef": {"resource": "limits.memory"}})
    with pytest.raises(LaunchError, match="volume rack: only fieldRef is implemented"):
        volumes.prepare(pod, home, {})
