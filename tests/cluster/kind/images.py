"""The project's images: broker, operator, and a client for the tests, by whatever Docker `choose` has found.

A build has no network: pip downloads outside, as it is configured here, what pip installs inside. The base is made of
Debian's packages unless another is named.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind import roots
from tests.cluster.kind.machine import install_packages, require_root
from tests.cluster.kind.stages import CACHE, ROOT, call, digest, say, stage
from tests.cluster.processes import StartError

if TYPE_CHECKING:
    from tests.cluster.kind.cluster import Docker

VERSION = "0.1.0"
BASE = "kafkalite.io/python-base:1"
BUILD = "kafkalite.io/python-build:1"
# What builds the project's wheel, which pip asks for without a hash: pinned here by the lock file of the tests.
BUILD_PACKAGES = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
CLIENT_PACKAGES = ("click", "confluent-kafka", "msgspec")
PUBLISHED = "python:3.13-slim"
PROBE = "import json, sys, sysconfig; print(json.dumps([sys.version_info[:2], sysconfig.get_platform()]))"


@dataclass(frozen=True)
class Image:
    """One image of ours."""

    name: str
    dockerfile: str
    lock: str

    @property
    def tag(self) -> str:
        """Name and version."""
        return f"{self.name}:{VERSION}"


IMAGES = (
    Image("kafkalite-broker", "broker_image/Dockerfile", "constraints-broker.txt"),
    Image("kafkalite-operator", "operator/Dockerfile", "constraints-operator.txt"),
)
CLIENT = Image("kafkalite-e2e-client", "tests/e2e/client/Dockerfile", "constraints.txt")


def build_images(docker: Docker, base: str = "", client: bool = False) -> list[str]:
    """Build them; what Docker has of exactly these files is not built again. Returns their names.

    Args:
        docker: started.
        base: name of an image with Python 3.11 or later; empty: one of Debian's packages.
        client: the client of the e2e tests too.
    """
    builder = Builder(docker)
    base, bench = builder.bases(base)
    wheels = builder.wheels(base)
    builder.build_image(bench, wheels)
    names = []
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        context = Path(work)
        copy_sources(context)
        for image in (*IMAGES, *([CLIENT] if client else [])):
            with stage(f"image {image.tag}"):
                arguments = [f"--build-arg=BASE_IMAGE={base}", f"--build-arg=BUILD_IMAGE={BUILD}"]
                builder.docker("build", "--quiet", "--network=none", *arguments, f"--file={context / image.dockerfile}",
                               f"--tag={image.tag}", context)  # fmt: skip
            say(f"         {builder.size_mb(image.tag):.0f} MB, of which the base {builder.size_mb(base):.0f} MB")
            names.append(image.tag)
    return names


class Builder:
    """What is built with one Docker."""

    def __init__(self, docker: Docker) -> None:
        self._environment = docker.environment()

    def docker(self, *arguments: str | Path) -> str:
        """The standard output of docker."""
        return call("docker", *arguments, environment=self._environment)

    def bases(self, base: str) -> tuple[str, str]:
        """The base of the results, and that of the building: the same image with venv and a shell, or one that has all."""
        if not base and os.geteuid() != 0:
            base = PUBLISHED  # to unpack Debian's packages takes root, and the Docker of somebody who is not can pull
        if base:
            return base, base
        require_root()
        install_packages()
        with stage("root file systems with Python"):
            tars = {BASE: roots.PYTHON.tar(), BUILD: roots.PYTHON_BUILD.tar()}
        names = [self.imported(name.split(":")[0], tar) for name, tar in tars.items()]
        return names[0], names[1]

    def imported(self, name: str, tar: Path) -> str:
        """The image of a root file system, tagged by its contents so that Docker is asked for an import once only."""
        image = f"{name}:{tar.stem.rsplit('-', 1)[1]}"
        if not self.docker("image", "ls", "--quiet", image).strip():
            self.docker("import", '--change=CMD ["python3"]', tar, image)
        return image

    def build_image(self, bench: str, wheels: Path) -> None:
        """The bench with everything that pip may install, and a pip that looks nowhere else."""
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            context = Path(work)
            shutil.copytree(wheels, context / "wheels")
            settings = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
            (context / "Dockerfile").write_text(f"FROM {bench}\nCOPY wheels /wheels\nENV {settings}\n")
            with stage("image to build with"):
                self.docker("build", "--quiet", f"--tag={BUILD}", context)

    def wheels(self, base: str) -> Path:
        """A folder with wheels for the Python of that image, downloaded once for each content of the lock files."""
        said = self.docker("run", "--rm", "--network=none", "--entrypoint=python3", base, "-c", PROBE)
        (major, minor), target = json.loads(said)
        if (major, minor) < (3, 11):
            raise StartError(f"{base} has Python {major}.{minor}: 3.11 or later is needed")
        locks = [(ROOT / image.lock).read_text() for image in IMAGES]
        locks += [pinned(BUILD_PACKAGES), pinned(CLIENT_PACKAGES)]
        folder = CACHE / "wheels" / f"python{major}.{minor}-{digest([], [target, *locks])}"
        if folder.exists():
            return folder
        unfinished = folder.with_name(folder.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        machine = target.rsplit("-", 1)[-1] if target.startswith("linux-") else platform.machine()
        platforms = [f"--platform={tag}_{machine}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
        say(f"downloading wheels for Python {major}.{minor} (once) ...")
        with stage("wheels"):
            for lock in locks:
                download(lock, unfinished, [f"--python-version={major}.{minor}", *platforms])
        unfinished.rename(folder)
        return folder

    def size_mb(self, image: str) -> float:
        """As Docker counts it: unpacked."""
        return int(self.docker("image", "inspect", "--format={{.Size}}", image)) / 1e6


def download(lock: str, folder: Path, target: list[str]) -> None:
    """Wheels of everything that a lock file lists, by the pip of this environment with its user's settings."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lock)
        file.flush()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
        call(*pip, "--require-hashes", "--no-deps", "--only-binary=:all:", *target, f"--dest={folder}", "-r", file.name)


def pinned(names: tuple[str, ...], lock: str = "constraints.txt") -> str:
    """The entries of those packages in a lock file."""
    entries = (ROOT / lock).read_text().replace("\\\n", "\\").splitlines()
    found = {line.split("==")[0]: line.replace("\\", "\\\n") for line in entries if "==" in line}
    if absent := [name for name in names if name not in found]:
        raise StartError(f"{lock} does not pin {', '.join(absent)}")
    return "".join(f"{found[name]}\n" for name in names)


def copy_sources(target: Path) -> None:
    """What git would give to somebody else."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / "client-requirements.txt").write_text(pinned(CLIENT_PACKAGES))
