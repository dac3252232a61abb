"""The parts of a kind cluster that need no cluster; tests/e2e has what one can be asked for."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

from tests.cluster.control_plane import programs
from tests.cluster.kind import cluster, commands, enclosure, images, machine, node_image, roots
from tests.cluster.kind import runc_within_bounds as runc
from tests.cluster.kind.stages import ROOT, call
from tests.cluster.processes import StartError

ALL_CAPABILITIES = ["CAP_CHOWN", "CAP_NET_ADMIN", "CAP_SYS_RESOURCE"]


@pytest.mark.parametrize("words", [["--bundle", "{0}"], ["-b", "{0}"], ["--bundle={0}"]])
def test_a_privileged_container_gets_what_root_has(tmp_path, words):
    config = tmp_path / "config.json"
    sets = {"bounding": ALL_CAPABILITIES, "effective": ["CAP_SYS_RESOURCE"]}
    config.write_text(json.dumps({"process": {"args": ["sh"], "capabilities": sets}, "hostname": "x"}))
    [place] = runc.documents(["create", *(word.format(tmp_path) for word in words), "id"])
    runc.cut(place, {"CAP_CHOWN", "CAP_NET_ADMIN"})
    assert json.loads(config.read_text()) == {
        "process": {"args": ["sh"], "capabilities": {"bounding": ALL_CAPABILITIES[:2], "effective": []}},
        "hostname": "x",
    }


def test_a_process_in_a_container_gets_no_more(tmp_path):
    file = tmp_path / "process.json"
    file.write_text(json.dumps({"args": ["sh"], "capabilities": {"bounding": ALL_CAPABILITIES}}))
    [place] = runc.documents(["exec", "--process", str(file), "--detach", "id"])
    runc.cut(place, {"CAP_CHOWN"})
    assert json.loads(file.read_text())["capabilities"] == {"bounding": ["CAP_CHOWN"]}


def test_the_names_of_capabilities_are_those_of_the_kernel():
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    assert len(runc.NAMES) == last + 1
    assert (runc.NAMES[0], runc.NAMES[12], runc.NAMES[24]) == ("chown", "net_admin", "sys_resource")


def test_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StartError, match="root is needed"):
        cluster.EnclosedDocker().start()


def test_packages_that_are_missing_are_named_where_there_is_no_apt(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda *_, **__: None)
    with pytest.raises(StartError, match=r"without apt.*install containerd docker.io iproute2"):
        machine.install_packages()


def test_packages_that_were_installed_are_named_at_the_end(tmp_path, monkeypatch, capsys):
    there = {"ip", "unshare", "nsenter", "apt-get", "tini"}
    monkeypatch.setattr(machine, "INSTALLED", tmp_path / "cache" / "packages")
    monkeypatch.setattr(machine, "POLICY", tmp_path / "policy")
    monkeypatch.setattr(machine.shutil, "which", lambda name, **_: name if name in there else None)
    monkeypatch.setattr(machine, "call", lambda *words, **_: there.update(machine.PACKAGES) if "-y" in words else None)
    machine.install_packages()
    machine.install_packages()  # there is nothing left to do
    assert machine.left_installed() == ["containerd", "docker.io", "iptables", "mmdebstrap", "runc"]
    there.discard("mmdebstrap")  # somebody has removed it since
    monkeypatch.setattr(cluster, "KUBECONFIG", tmp_path / "kubeconfig")
    cluster.down(Stopped())
    assert capsys.readouterr().err.endswith(
        "packages that were installed for it stay: apt-get purge --autoremove containerd docker.io iptables runc\n"
    )


class Stopped:
    """A Docker that does not run."""

    def environment(self):
        return {}

    def running(self):
        return False

    def stop(self):
        pass


def test_a_docker_that_cannot_pull_is_not_used(monkeypatch, capsys):
    def no_registry(*command, **_):
        if "pull" in command:
            raise StartError("docker pull: exit code 1\nno such host")
        return ""

    monkeypatch.setattr(cluster, "call", no_registry)
    monkeypatch.setattr(cluster, "default_node_image", lambda: "kindest/node:v1.2.3@sha256:abc")
    monkeypatch.setattr(enclosure.Enclosure, "running", lambda _: None)
    assert isinstance(cluster.choose(), cluster.EnclosedDocker)
    assert "no such host" in capsys.readouterr().err
    monkeypatch.setattr(cluster, "call", lambda *_, **__: "")
    assert isinstance(cluster.choose(), cluster.MachineDocker)
    assert isinstance(cluster.choose(enclosed=True), cluster.EnclosedDocker)


class NetworkedDocker:
    """A Docker of the machine, as the words of its command line show it."""

    def __init__(self, *networks):
        self.networks = set(networks)
        self.in_use = False

    def __call__(self, *command, **_):
        match command:
            case ("docker", "network", "ls", *_):
                return "\n".join(f"id-{name}" for name in self.networks)
            case ("docker", "network", "rm", name):
                if self.in_use:
                    raise StartError("docker network rm: exit code 1\nhas active endpoints")
                self.networks.remove(name)
            case ("docker", "image", "ls", *_):
                return "python:3.12-slim\nkafkalite-broker:0.1.0\nkafkalite.io/addons:1\n"
        return ""


@pytest.mark.parametrize(
    ("before", "in_use", "after"), [((), False, set()), ((), True, {"kind"}), (("kind",), False, {"kind"})]
)
def test_a_docker_of_the_machine_keeps_no_network_that_came_by_us(before, in_use, after, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "CACHE", tmp_path / "kind")
    machine = NetworkedDocker(*before)
    monkeypatch.setattr(cluster, "call", machine)
    cluster.MachineDocker().start()
    machine.networks.add("kind")  # kind has made its cluster
    cluster.MachineDocker().start()  # a second `up` finds it there
    machine.in_use = in_use
    cluster.MachineDocker().stop()
    assert machine.networks == after
    said = capsys.readouterr().err
    assert ("has active endpoints" in said) is in_use
    assert "docker image rm kafkalite-broker:0.1.0 kafkalite.io/addons:1\n" in said
    cluster.MachineDocker().stop()  # a second `down` has nothing to take away
    assert machine.networks == after


def test_a_cluster_of_another_checkout_is_left_alone(tmp_path, monkeypatch):
    place = enclosure.Enclosure(tmp_path)
    monkeypatch.setattr(enclosure, "DEVICE", "lo")  # is there
    with pytest.raises(StartError, match="a cluster of another checkout runs"):
        place.start()
    assert list(tmp_path.iterdir()) == []


def test_every_worker_has_a_zone_and_the_class_can_grow():
    nodes = cluster.configuration(cluster.EnclosedDocker())["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane", "worker", "worker", "worker"]
    assert len({node["labels"]["topology.kubernetes.io/zone"] for node in nodes[1:]}) == 3
    documents = list(yaml.safe_load_all((node_image.HERE / "manifests" / "storage.yaml").read_text()))
    [storage_class] = [doc for doc in documents if doc["kind"] == "StorageClass"]
    assert storage_class["allowVolumeExpansion"] is True
    assert storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
    assert storage_class["provisioner"] in (ROOT / "tools" / "addons" / "volumes.go").read_text()


def test_images_are_pinned_by_lock_files_that_agree():
    pins = {line.split()[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    for image in images.IMAGES:
        lock = (ROOT / image.lock).read_text()
        names = {line.split()[0] for line in lock.splitlines() if "==" in line}
        assert names, image.lock
        assert names <= pins, f"{image.lock} is older than constraints.txt: make lock"
        assert lock.count("--hash=sha256:") >= len(names)
    text = images.pinned(images.CLIENT_PACKAGES)
    assert "\nconfluent-kafka==" in text
    assert "--hash=sha256:" in text
    with pytest.raises(StartError, match="does not pin nothing-like-it"):
        images.pinned(("nothing-like-it",))


def test_the_dockerfiles_that_are_built_install_what_is_locked(tmp_path):
    images.copy_sources(tmp_path)
    for image in images.IMAGES:
        text = (tmp_path / image.dockerfile).read_text()
        assert f"--require-hashes --requirement {image.lock}" in text
        assert "FROM ${BUILD_IMAGE} AS build" in text
        assert "USER 10001:10001" in text
        assert (tmp_path / image.lock).exists()


def test_whoever_is_not_root_gets_the_base_of_the_dockerfiles(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    builder = images.Builder(Stopped())
    assert builder.bases("") == ("python:3.13-slim",) * 2
    assert builder.bases("python:3.12-slim") == ("python:3.12-slim",) * 2
    for image in images.IMAGES:
        assert f"ARG BASE_IMAGE={images.PUBLISHED}\n" in (ROOT / image.dockerfile).read_text()


def test_roots_are_named_after_what_they_are_made_of(tmp_path, monkeypatch):
    made = []

    def bootstrap(*command, **_):
        made.append(command)
        Path(command[-1]).touch()
        return ""

    monkeypatch.setattr(roots, "CACHE", tmp_path)
    monkeypatch.setattr(roots, "program", lambda name: name)
    monkeypatch.setattr(roots, "call", bootstrap)
    first = roots.Root("some", "extract", ("a",)).tar()
    assert roots.Root("some", "extract", ("a",)).tar() == first
    assert len(made) == 1
    assert roots.Root("some", "extract", ("a", "b")).tar() != first
    assert sorted(path.name for path in (tmp_path / "roots").iterdir()) == sorted(
        {first.name, roots.Root("some", "extract", ("a", "b")).tar().name}
    )


def test_a_call_that_fails_says_what_was_said():
    with pytest.raises(StartError, match=r"(?s)sh -c.*exit code 3.*out.*and error"):
        call("sh", "-c", "echo out; echo and error >&2; exit 3")
    with pytest.raises(StartError, match="no-such-program is missing"):
        call("no-such-program")
    with pytest.raises(StartError, match="did not end within 0 s"):
        call("sleep", "5", limit_s=0.05)


def test_scripts_of_the_node_are_executable():
    for path in (node_image.HERE / "node" / "files" / "kind" / "bin").iterdir():
        assert os.access(path, os.X_OK), path
        subprocess.run(["sh", "-n", path], check=True)


def test_a_sysctl_of_the_machine_that_changed_is_set_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "PROC_SYS", tmp_path)
    for name in ("fs/file-max", "kernel/panic"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1\n")
    before = machine.sysctls()
    (tmp_path / "fs" / "file-max").write_text("9\n")
    machine.restore_sysctls(before)
    assert machine.sysctls() == before == {"fs/file-max": "1", "kernel/panic": "1"}
    assert capsys.readouterr().err == "fs.file-max was 1 and is 9: it is set back\n"


def test_nodes_have_files_of_their_own_for_every_sysctl_of_the_machine():
    script = (node_image.HERE / "node" / "files" / "kind" / "bin" / "own-sysctls").read_text()
    names = [line.split()[0] for line in script.split("<<EOF\n")[1].split("EOF")[0].splitlines()]
    assert sorted(names) == sorted(machine.SYSCTLS)


class FakeCluster:
    """Notes what is done to it; `there`: it was before."""

    def __init__(self, monkeypatch, there):
        self.done, self.there = [], there
        monkeypatch.setattr(commands.cluster, "choose", lambda **_: self)
        monkeypatch.setattr(commands.cluster, "clusters", lambda _: [cluster.NAME] if there else [])
        monkeypatch.setattr(commands.cluster, "up", lambda _: self.done.append("up") or Path("/config"))
        monkeypatch.setattr(commands.images, "build_images", lambda *_, **__: ["a:1"])
        monkeypatch.setattr(commands.cluster, "load", lambda _, names: self.done.append(f"images {names}"))
        monkeypatch.setattr(commands.cluster, "down", lambda _: self.done.append("down"))

    def running(self):
        return self.there

    def end_with_us(self):
        self.done.append("end with us")

    def start(self):
        self.done.append("start")


def test_a_command_runs_in_a_cluster_that_is_taken_away_again(monkeypatch, tmp_path):
    fake, said = FakeCluster(monkeypatch, there=False), tmp_path / "said"
    assert commands.run_within(["sh", "-c", f"echo $KUBECONFIG >{said}; exit 3"]) == 3
    assert said.read_text() == "/config\n"
    assert fake.done == ["end with us", "start", "up", "images ['a:1']", "down"]


def test_a_command_is_told_that_the_images_for_spark_are_there_when_they_are(monkeypatch, tmp_path):
    fake, said = FakeCluster(monkeypatch, there=False), tmp_path / "said"
    monkeypatch.setattr(commands.spark_images, "build_spark_images", lambda _: ["spark:1"])
    monkeypatch.delenv("KAFKALITE_E2E_SPARK", raising=False)
    script = f"echo told ${{KAFKALITE_E2E_SPARK-nothing}} >>{said}"
    assert commands.run_within(["sh", "-c", script], spark=True) == 0
    assert fake.done == ["end with us", "start", "up", "images ['a:1', 'spark:1']", "down"]
    assert commands.run_within(["sh", "-c", script]) == 0
    assert said.read_text() == "told 1\ntold nothing\n"


def test_a_cluster_that_was_there_before_stays(monkeypatch):
    fake = FakeCluster(monkeypatch, there=True)
    assert commands.run_within(["true"]) == 0
    assert fake.done == ["end with us", "start", "up", "images ['a:1']"]


def arguments(*words):
    parser = argparse.ArgumentParser()
    commands.add_parser(parser)
    return parser.parse_args(words)


def test_up_gives_a_cluster_with_our_images_unless_told_otherwise(monkeypatch, capsys):
    fake = FakeCluster(monkeypatch, there=False)
    commands.run(arguments("up"))
    assert fake.done == ["start", "up", "images ['a:1']"]
    commands.run(arguments("up", "--no-images"))
    assert fake.done == ["start", "up", "images ['a:1']", "up"]
    assert capsys.readouterr().out == 2 * "export KUBECONFIG=/config\n"


def test_a_cluster_whose_images_cannot_be_made_stays_and_its_kubeconfig_is_not_told(monkeypatch, capsys):
    fake = FakeCluster(monkeypatch, there=False)

    def fail(*_, **__):
        raise StartError("no wheels")

    monkeypatch.setattr(commands.images, "build_images", fail)
    with pytest.raises(StartError, match=r"no wheels\nthe cluster runs, without our images; IMAGES=no leaves them out"):
        commands.run(arguments("up"))
    assert fake.done == ["start", "up"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("ours", [True, False])
def test_images_of_the_tests_are_made_for_our_own_cluster_alone(monkeypatch, capsys, ours):
    fake, made = FakeCluster(monkeypatch, there=True), []
    monkeypatch.setattr(commands.cluster, "is_ours", lambda: ours)
    monkeypatch.setattr(commands.cluster, "used", lambda: fake)
    monkeypatch.setattr(commands.images, "build_images", lambda _, **how: made.append(how) or ["a:1"])
    monkeypatch.delenv("KAFKALITE_E2E_SPARK", raising=False)
    monkeypatch.delenv("KAFKALITE_E2E_REGISTRY", raising=False)
    commands.run(arguments("images", "--base", "python:3.12-slim"))
    assert made == ([{"base": "python:3.12-slim", "client": True}] if ours else [])
    assert fake.done == (["images ['a:1']"] if ours else [])
    monkeypatch.setenv("KAFKALITE_E2E_REGISTRY", "registry/project")
    commands.run(arguments("images"))
    assert len(made) == ours, "who names a registry has pushed them there"
    assert capsys.readouterr().err.endswith("whose nodes take the images from registry/project\n")


def test_our_cluster_is_known_by_its_address(monkeypatch, tmp_path):
    def kubeconfig(name, server):
        (tmp_path / name).write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": server}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": ""}}],
        }))  # fmt: skip
        return tmp_path / name

    monkeypatch.setattr(cluster, "kubectl", lambda: programs() / "kubectl")
    monkeypatch.setattr(cluster, "KUBECONFIG", tmp_path / "ours")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig("copy", "https://169.254.107.2:6443")))
    assert not cluster.is_ours(), "there is none"
    kubeconfig("ours", "https://169.254.107.2:6443")
    assert cluster.is_ours()
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig("other", "https://10.0.0.1:6443")))
    assert not cluster.is_ours()


def test_a_cluster_is_taken_away_when_its_images_cannot_be_made(monkeypatch):
    fake = FakeCluster(monkeypatch, there=False)

    def fail(*_, **__):
        raise StartError("no wheels")

    monkeypatch.setattr(commands.images, "build_images", fail)
    with pytest.raises(StartError, match="no wheels"):
        commands.run_within(["true"])
    assert fake.done == ["end with us", "start", "up", "down"]


def test_images_are_built_while_the_nodes_come_up_and_nobody_waits_for_them_when_these_do_not(monkeypatch):
    fake, down = FakeCluster(monkeypatch, there=False), threading.Event()

    def fail(_):
        raise StartError("no nodes")

    def build(*_, **__):
        assert down.wait(60)  # as a build ends that finds its Docker gone
        fake.done.append("end of the build")
        raise StartError("no Docker")

    monkeypatch.setattr(commands.images, "build_images", build)
    monkeypatch.setattr(commands.cluster, "up", fail)
    monkeypatch.setattr(commands.cluster, "down", lambda _: down.set())
    with pytest.raises(StartError, match="no nodes"):
        commands.run_within(["true"])
    assert fake.done == ["end with us", "start", "end of the build"]


def test_what_could_not_be_started_is_not_taken_away(monkeypatch):
    fake = FakeCluster(monkeypatch, there=False)

    def fail():
        raise StartError("a cluster of another checkout runs")

    monkeypatch.setattr(fake, "start", fail)
    with pytest.raises(StartError, match="another checkout"):
        commands.run_within(["true"])
    assert fake.done == ["end with us"]


def test_a_signal_that_comes_while_a_command_is_started_ends_it(monkeypatch):
    """Another thread may be given the signal, whatever this one blocks."""
    started = []

    def start(*arguments, **more):
        started.append(subprocess_popen(*arguments, **more))
        handler = signal.getsignal(signal.SIGTERM)
        handler(signal.SIGTERM, None)
        return started[0]

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with commands.ended_by_signals() as ending, pytest.raises(SystemExit) as ended:
        commands.call_through(["sleep", "60"], {**os.environ}, ending)
    assert ended.value.code == 128 + signal.SIGTERM
    assert started[0].returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", commands.ENDING)
def test_a_signal_ends_the_command_and_then_the_cluster(monkeypatch, tmp_path, number):
    fake, said, before = FakeCluster(monkeypatch, there=False), tmp_path / "said", signal.getsignal(number)
    script = f"trap 'echo ended >{said}; exit' TERM; kill -{number.value} {os.getpid()}; while :; do sleep 0.05; done"
    with pytest.raises(SystemExit) as ended:
        commands.run_within(["sh", "-c", script])
    assert ended.value.code == 128 + number
    assert said.read_text() == "ended\n"
    assert fake.done == ["end with us", "start", "up", "images ['a:1']", "down"]
    assert signal.getsignal(number) is before
