"""The image of kind's nodes where no registry offers it: kind's files, Debian's containerd, our build of Kubernetes.

The images of Kubernetes' own pods come with it, so that nothing has to be pulled: one with all its programs under the names
that kubeadm asks for, one with CoreDNS and the agents of tools/addons, one that holds the namespaces of a pod.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind import roots
from tests.cluster.kind.stages import CACHE, ROOT, Aside, build, call, digest, stage
from tests.cluster.processes import StartError

if TYPE_CHECKING:
    from tests.cluster.kind.enclosure import Enclosure

HERE = Path(__file__).parent
ADDONS_IMAGE = "kafkalite.io/addons:1"
KEY_LABEL = "io.kafkalite.made-of"
PROXY_NAMES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
PODS = {
    "kubernetes": "FROM scratch\nADD root.tar /\nCOPY programs/ /usr/local/bin/\nCOPY links/ /usr/sbin/\n",
    "addons": 'FROM scratch\nCOPY addons /\nENTRYPOINT ["/addons", "coredns"]\n',
    "pause": 'FROM scratch\nCOPY pause /\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n',
}


class NodeImage:
    """The node image of one version of Kubernetes, in the Docker of an enclosure."""

    def __init__(self, enclosure: Enclosure) -> None:
        self._docker = enclosure.docker
        self._programs = build("kubernetes/build.sh")
        self.name = f"kafkalite.io/kind-node:{self._programs.name}"

    def ensure(self) -> str:
        """Build it unless Docker has it, made of exactly these parts. Returns its name."""
        # The former computes, the latter waits for the network as much.
        fetching = Aside(fetch_roots)
        with stage("programs of the node"):
            addons, pause = build("addons/build.sh"), build("pause/build.sh")
        node_root, proxy_root = fetching.result()
        sources = [*sorted(path for path in (HERE / "node").rglob("*") if path.is_file()), Path(__file__),
                   HERE / "manifests" / "network.yaml", HERE / "manifests" / "storage.yaml",
                   self._programs / "kubernetes.key", Path(f"{addons}.key"), Path(f"{pause}.key")]  # fmt: skip
        key = digest(sources, [node_root.name, proxy_root.name, (ROOT / "tools" / "kind" / "go.mod").read_text()])
        if self._made_of() == key:
            return self.name
        with stage("node image"), tempfile.TemporaryDirectory(dir=CACHE) as work:
            folder = Path(work)
            archive = self._build_pods(folder, proxy_root, addons, pause)
            self._build_node(folder / "node", node_root, archive, key)
        return self.name

    def _made_of(self) -> str:
        try:
            return json.loads(self._docker("image", "inspect", self.name))[0]["Config"]["Labels"][KEY_LABEL]
        except (StartError, KeyError, TypeError):
            return ""

    def _build_pods(self, folder: Path, root: Path, addons: Path, pause: Path) -> Path:
        """An archive with the images of the pods of kube-system."""
        wanted = self._images_of_kubeadm()
        names = {
            "kubernetes": [name for name in wanted if "coredns" not in name and "pause" not in name],
            "addons": [*(name for name in wanted if "coredns" in name), ADDONS_IMAGE],
            "pause": [self._pause()],
        }
        for image, dockerfile in PODS.items():
            context = folder / image
            context.mkdir()
            (context / "Dockerfile").write_text(dockerfile)
        copy_programs(self._programs, folder / "kubernetes" / "programs")
        os.link(root, folder / "kubernetes" / "root.tar")
        links = folder / "kubernetes" / "links"
        links.mkdir()
        for name in PROXY_NAMES:
            (links / name).symlink_to("xtables-nft-multi")
        shutil.copy(addons, folder / "addons" / "addons")
        shutil.copy(pause, folder / "pause" / "pause")
        for image, tags in names.items():
            self._docker("build", "--quiet", *(f"--tag={tag}" for tag in tags), folder / image)
        archive = folder / "images.tar"
        self._docker("save", "--output", archive, *(tag for tags in names.values() for tag in tags))
        return archive

    def _build_node(self, context: Path, root: Path, archive: Path, key: str) -> None:
        shutil.copytree(HERE / "node" / "files", context / "node")
        manifests = context / "node" / "kind" / "manifests"
        manifests.mkdir()
        shutil.copy(HERE / "manifests" / "network.yaml", manifests / "default-cni.yaml")
        shutil.copy(HERE / "manifests" / "storage.yaml", manifests / "default-storage.yaml")
        shutil.copytree(kind_module() / "images" / "base" / "files", context / "kind")
        for path in [context / "kind", *(context / "kind").rglob("*")]:  # a module has no modes of its own
            program = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if program else 0o644)
        copy_programs(self._programs, context / "programs", "kubeadm", "kubectl", "kubelet")
        os.link(root, context / "root.tar")
        archive.rename(context / "images.tar")
        shutil.copy(HERE / "node" / "Dockerfile", context)
        self._docker("build", "--quiet", "--network=none", f"--build-arg=PAUSE={self._pause()}",
                     f"--label={KEY_LABEL}={key}", f"--tag={self.name}", context)  # fmt: skip
        # its predecessor, but not the stages of other images, which make the next build of those quick
        self._docker("image", "prune", "--force", f"--filter=label={KEY_LABEL}")

    def _images_of_kubeadm(self) -> list[str]:
        return call(
            self._programs / "kubeadm", "config", "images", "list", "--kubernetes-version", self._programs.name
        ).split()

    def _pause(self) -> str:
        return next(name for name in self._images_of_kubeadm() if "/pause:" in name)


def fetch_roots() -> tuple[Path, Path]:
    """The root file systems of the node and of kube-proxy."""
    with stage("root file systems of the node"):
        return roots.NODE.tar(), roots.PROXY.tar()


def copy_programs(source: Path, target: Path, *names: str) -> None:
    """The binary of Kubernetes and links to it (all, or those that are named)."""
    target.mkdir()
    os.link(source / "kubernetes", target / "kubernetes")
    for path in source.iterdir():
        if path.is_symlink() and (not names or path.name in names):
            (target / path.name).symlink_to("kubernetes")


def kind_module() -> Path:
    """The folder of kind's Go module, in the version that tools/kind requires."""
    found = build("kind/module.sh")
    if not (found / "images" / "base" / "files").is_dir():
        raise StartError(f"{found} has no images/base/files: this version of kind is laid out differently")
    return found
