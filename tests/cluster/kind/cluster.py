"""The kind cluster itself: made, filled with images, looked at, and taken away."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING

import yaml

from tests.cluster.kind.enclosure import INSIDE, Enclosure
from tests.cluster.kind.machine import install_packages, left_installed, program, require_root
from tests.cluster.kind.node_image import ADDONS_IMAGE, HERE, NodeImage
from tests.cluster.kind.stages import CACHE, build, call, say, stage
from tests.cluster.processes import StartError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "kafkalite"
ZONES = ("zone-a", "zone-b", "zone-c")
API_PORT = 6443
READY_LIMIT_S = 300
KUBECONFIG = CACHE / "kubeconfig"
NETWORK = "kind"
"""Docker's network that kind makes where there is none, and never takes away."""


class EnclosedDocker:
    """Debian's Docker in namespaces of its own, and the node image that is built here."""

    def __init__(self) -> None:
        self.enclosure = Enclosure()
        self.api_address = INSIDE

    def end_with_us(self) -> None:
        """Have what is started be killed when this process ends, however it ends."""
        self.enclosure.ends_with_us = True

    def start(self) -> None:
        """Install what is missing, and start Docker."""
        require_root()
        install_packages()
        with stage("Docker in namespaces of its own"):
            self.enclosure.start()

    def stop(self) -> None:
        """Nothing is left of it. Raises StartError when something is."""
        self.enclosure.stop()
        if left := self.enclosure.nothing_is_left():
            raise StartError(f"this is left, and should not be: {', '.join(left)}")

    def node_image(self) -> list[str]:
        """Arguments for kind."""
        return [f"--image={NodeImage(self.enclosure).ensure()}"]

    def ensure_addons(self) -> None:
        """They are in the node image."""

    def running(self) -> bool:
        """Whether Docker can be asked."""
        return self.enclosure.running() is not None

    def environment(self) -> dict[str, str]:
        """For docker and kind."""
        return self.enclosure.environment()

    def beside_nodes(self) -> list[str]:
        """Words before a command that has to run in the network of the nodes, outside of the cluster."""
        return [str(program("nsenter")), f"--net=/proc/{self.enclosure.first}/ns/net"]


class MachineDocker:
    """The Docker that runs here, with kind's own node image from the registry."""

    api_address = "127.0.0.1"

    def __init__(self) -> None:
        self._made_network = CACHE / "made-network"

    def end_with_us(self) -> None:
        """It was there before."""

    def start(self) -> None:
        """It runs; note whether kind's network, a bridge with its rules, comes by us."""
        if not call("docker", "network", "ls", "--quiet", f"--filter=name=^{NETWORK}$").strip():
            self._made_network.parent.mkdir(parents=True, exist_ok=True)
            self._made_network.touch()

    def stop(self) -> None:
        """Docker was there before, and goes on without the network that came by us, unless others are in it now."""
        if self._made_network.exists():
            try:
                call("docker", "network", "rm", NETWORK)
            except StartError as error:
                say(f"Docker's network {NETWORK} stays ({str(error).splitlines()[-1]})")
            self._made_network.unlink()
        said = call("docker", "image", "ls", "--format={{.Repository}}:{{.Tag}}").split()
        if images := [image for image in said if image.startswith(("kafkalite-", "kafkalite.io/"))]:
            say(f"images that were built stay in Docker: docker image rm {' '.join(sorted(images))}")

    def node_image(self) -> list[str]:
        """kind's default."""
        return []

    def ensure_addons(self) -> None:
        """Build the image of the agents, of which local-volumes is used, and load it."""
        context = CACHE / "addons-image"
        context.mkdir(parents=True, exist_ok=True)
        (context / "Dockerfile").write_text("FROM scratch\nCOPY addons /\n")
        (context / "addons").write_bytes(build("addons/build.sh").read_bytes())
        (context / "addons").chmod(0o755)
        call("docker", "build", "--quiet", f"--tag={ADDONS_IMAGE}", context)
        call(kind(), "load", "docker-image", f"--name={NAME}", ADDONS_IMAGE)

    def running(self) -> bool:
        """Always."""
        return True

    def environment(self) -> dict[str, str]:
        """The user's own."""
        return {}

    def beside_nodes(self) -> list[str]:
        """The bridge of the nodes is one of this machine."""
        return []


Docker = EnclosedDocker | MachineDocker


def kind() -> Path:
    """The program, built once."""
    return build("kind/build.sh")


def kubectl() -> Path:
    """The program of the same build as the nodes."""
    return build("kubernetes/build.sh") / "kubectl"


def choose(enclosed: bool = False) -> Docker:
    """The Docker that runs here if it can pull kind's node image; otherwise, or when asked for, one of our own."""
    if enclosed or Enclosure().running() is not None:
        return EnclosedDocker()
    try:
        call("docker", "info", "--format", "{{.ServerVersion}}", limit_s=20)
        image = default_node_image()
        if call("docker", "image", "ls", "--quiet", image.split("@")[0]).strip() == "":
            call("docker", "pull", "--quiet", image)
    except StartError as error:
        say(f"Docker cannot be used as it is here, so a cluster is built from packages ({str(error).splitlines()[-1]})")
        return EnclosedDocker()
    return MachineDocker()


def used() -> Docker:
    """The Docker in which a cluster of ours is, or would be found: without one, an enclosure at rest."""
    if Enclosure().running() is None:
        with contextlib.suppress(StartError):
            machine = MachineDocker()
            if NAME in clusters(machine):
                return machine
    return EnclosedDocker()


def default_node_image() -> str:
    """The node image that this version of kind was released with."""
    source = build("kind/module.sh") / "pkg" / "apis" / "config" / "defaults" / "image.go"
    for line in source.read_text().splitlines():
        if line.startswith("const Image = "):
            return line.split('"')[1]
    raise StartError(f"{source} does not name an image")


def up(docker: Docker) -> Path:
    """Start a cluster, or nothing when it runs. Returns the path of its kubeconfig."""
    docker.start()
    program = kind()
    if NAME in clusters(docker):
        with contextlib.suppress(StartError):
            run_kubectl("get", "--raw=/readyz")
            say("the cluster runs already")
            return KUBECONFIG
        say("a broken cluster is there; it is made anew")
        delete(docker)
    try:
        image = docker.node_image()
        with stage("cluster"):
            create = [
                program,
                "create",
                "cluster",
                f"--name={NAME}",
                "--config=-",
                f"--kubeconfig={KUBECONFIG}",
                *image,
            ]
            call(*create, environment=docker.environment(), text=yaml.safe_dump(configuration(docker)))
        docker.ensure_addons()
        with stage("nodes, names, volumes ready"):
            run_kubectl("delete", "storageclass", "standard", "--ignore-not-found")  # cannot grow
            run_kubectl("apply", "-f", str(HERE / "manifests" / "storage.yaml"))
            await_ready()
    except BaseException:
        say("what the cluster had come to:\n" + diagnosis(docker))
        down(docker)
        raise
    return KUBECONFIG


def configuration(docker: Docker) -> dict[str, object]:
    """What kind shall make."""
    workers = [{"role": "worker", "labels": {"topology.kubernetes.io/zone": zone}} for zone in ZONES]
    # A cluster for tests outlives no crash of the machine, so etcd need not flush; the disk belongs to the brokers.
    etcd = "etcd: {local: {extraArgs: {unsafe-no-fsync: 'true'}}}\n"
    # There is one scheduler, one controller manager. As candidates they would end when the API server is away, and be
    # started again by the kubelet later each time, after a minute at last: nobody schedules a pod meanwhile.
    alone = "".join(
        f"{each}: {{extraArgs: {{leader-elect: 'false'}}}}\n" for each in ("controllerManager", "scheduler")
    )
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"apiServerAddress": docker.api_address, "apiServerPort": API_PORT},
        "kubeadmConfigPatches": [f"kind: ClusterConfiguration\n{etcd}{alone}"],
        "nodes": [{"role": "control-plane"}, *workers],
    }


def await_ready() -> None:
    """Until pods can be scheduled, find one another by name, and get volumes."""
    limit = f"--timeout={READY_LIMIT_S}s"
    run_kubectl("wait", "--for=condition=Ready", "nodes", "--all", limit)
    run_kubectl("--namespace=kube-system", "rollout", "status", "daemonset/local-volumes", limit)
    run_kubectl("--namespace=kube-system", "rollout", "status", "deployment/coredns", limit)
    run_kubectl("wait", "--for=create", "serviceaccount/default", limit)


def down(docker: Docker) -> None:
    """Take it away, with everything that it changed outside the cache."""
    if docker.running():
        # a Docker that does not answer is ended all the same
        with stage("nodes removed"), contextlib.suppress(StartError):
            delete(docker)
    with stage("everything stopped"):
        docker.stop()
        KUBECONFIG.unlink(missing_ok=True)
    if packages := left_installed():
        say(f"packages that were installed for it stay: apt-get purge --autoremove {' '.join(packages)}")


def delete(docker: Docker) -> None:
    """The nodes, with their volumes."""
    call(kind(), "delete", "cluster", f"--name={NAME}", f"--kubeconfig={KUBECONFIG}", environment=docker.environment())


def load(docker: Docker, images: list[str]) -> None:
    """Copy images from Docker, or from archives, into every node."""
    archives = [image for image in images if image.endswith(".tar")]
    names = [image for image in images if image not in archives]
    calls = [("docker-image", names)] if names else []  # one call for all: what they share is copied once
    for what, chosen in [*calls, *(("image-archive", [archive]) for archive in archives)]:
        with stage(f"{', '.join(chosen)} on every node"):
            call(kind(), "load", what, f"--name={NAME}", *chosen, environment=docker.environment())


def clusters(docker: Docker) -> list[str]:
    """Names of kind's clusters in that Docker."""
    return call(kind(), "get", "clusters", environment=docker.environment()).split()


def is_ours() -> bool:
    """Whether the KUBECONFIG of the environment, or a copy of it elsewhere, names the cluster of this checkout."""
    if not KUBECONFIG.exists():
        return False
    server = ("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    with contextlib.suppress(StartError):
        return call(kubectl(), *server) == run_kubectl(*server)
    return False


def status(docker: Docker) -> str:
    """Nodes and pods, memory and disk."""
    if not docker.running() or NAME not in clusters(docker):
        return "no cluster runs"
    lines = [run_kubectl("get", "nodes", "--label-columns=topology.kubernetes.io/zone"),
             run_kubectl("get", "pods", "--all-namespaces", "--output=wide"),
             memory(docker), f"export KUBECONFIG={KUBECONFIG}"]  # fmt: skip
    return "\n".join(lines)


def memory(docker: Docker) -> str:
    """Of each node, as Docker counts it."""
    form = '{"node": "{{.Name}}", "memory": "{{.MemUsage}}", "cpu": "{{.CPUPerc}}"}'
    said = call("docker", "stats", "--no-stream", f"--format={form}", environment=docker.environment())
    rows = [json.loads(line) for line in said.splitlines()]
    return "\n".join(
        f"{row['node']:28} {row['memory']:24} {row['cpu']}" for row in sorted(rows, key=lambda r: r["node"])
    )


def run_kubectl(*arguments: str) -> str:
    """As the administrator of the cluster."""
    return call(kubectl(), *arguments, environment={"KUBECONFIG": str(KUBECONFIG)})


def diagnosis(docker: Docker) -> str:
    """What somebody wants to know about a cluster that did not come up."""
    said = []
    if KUBECONFIG.exists():
        for question in (("get", "nodes", "-o", "wide"), ("get", "pods", "-A", "-o", "wide")):
            with contextlib.suppress(StartError):
                said.append(run_kubectl(*question))
    for node in (f"{NAME}-control-plane", f"{NAME}-worker"):
        words = [
            "docker",
            "exec",
            node,
            "journalctl",
            "--no-pager",
            "--lines=25",
            "--unit=kubelet",
            "--unit=containerd",
        ]
        with contextlib.suppress(StartError, subprocess.SubprocessError):
            said.append(f"--- {node}\n{call(*words, environment=docker.environment(), limit_s=20)}")
    return "\n".join(said)
