"""Images for Spark on the cluster: Spark itself, our jobs upon it, and the Kubeflow operator that runs them.

Spark is what PyPI has as pyspark, which holds its Java part whole; the connector's jars come by Maven.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind import roots
from tests.cluster.kind.images import VERSION, Builder, copy_sources, pinned
from tests.cluster.kind.machine import install_packages, require_root
from tests.cluster.kind.stages import CACHE, ROOT, build, call, digest, say, stage

if TYPE_CHECKING:
    from tests.cluster.kind.cluster import Docker

SPARK = f"kafkalite-spark:{VERSION}"
OPERATOR = "kafkalite.io/spark-operator:1"
SPARK_BASE = "kafkalite.io/spark-base:1"
PACKAGES = ("pyspark", "py4j")
FOLDER = "tests/cluster/kind/spark"


def build_spark_images(docker: Docker, base: str = "") -> list[str]:
    """Build them; returns their names. `base`: an image of Spark 4.0.0 with its entry point, instead of one made here."""
    builder = Builder(docker)
    with stage("jars of the connector"):
        call(ROOT / "spark_app" / "fetch_jars.sh")
    with stage("spark-operator"):
        operator = build("spark-operator/build.sh")
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        context = Path(work)
        copy_sources(context)
        shutil.copytree(ROOT / ".cache" / "spark-jars", context / ".cache" / "spark-jars")
        shutil.copy2(operator, context / "spark-operator")
        base = base or make_base(builder, context)
        shutil.rmtree(context / "spark", ignore_errors=True)
        for name, dockerfile in ((SPARK, "spark_app/Dockerfile"), (OPERATOR, f"{FOLDER}/operator.Dockerfile")):
            with stage(f"image {name}"):
                builder.docker("build", "--quiet", "--network=none", f"--build-arg=BASE_IMAGE={base}",
                               f"--file={context / dockerfile}", f"--tag={name}", context)  # fmt: skip
            say(f"         {builder.size_mb(name):.0f} MB, of which the base {builder.size_mb(base):.0f} MB")
    return [SPARK, OPERATOR]


def make_base(builder: Builder, context: Path) -> str:
    """Spark with Java and Python of Debian's packages."""
    require_root()
    install_packages()
    with stage("root file system with Java and Python"):
        java = builder.imported("kafkalite.io/java-base", roots.JAVA.tar())
    with stage("Spark from the package pyspark"):
        shutil.copytree(spark_home(), context / "spark", symlinks=True)
    with stage(f"image {SPARK_BASE}"):
        builder.docker("build", "--quiet", "--network=none", f"--build-arg=BASE_IMAGE={java}",
                       f"--file={context / FOLDER / 'base.Dockerfile'}", f"--tag={SPARK_BASE}", context)  # fmt: skip
    return SPARK_BASE


def spark_home() -> Path:
    """A folder as SPARK_HOME is, unpacked once for each version: bin, jars, python."""
    lock = pinned(PACKAGES, "constraints-spark.txt")
    folder = CACHE / f"spark-{digest([], [lock])}"
    if folder.exists():
        return folder
    say("downloading pyspark (once; 434 MB) ...")
    unfinished = folder.with_name(folder.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        place = Path(work)
        (place / "lock.txt").write_text(lock)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
        call(*pip, "--require-hashes", "--no-deps", f"--dest={place}", "-r", place / "lock.txt")
        [source] = place.glob("pyspark-*.tar.gz")
        with tarfile.open(source) as archive:
            archive.extractall(place / "source", filter="data")
        [source] = (place / "source").iterdir()
        (unfinished / "python").mkdir(parents=True)
        for name in ("bin", "jars"):
            (source / "deps" / name).rename(unfinished / name)
        (source / "pyspark").rename(unfinished / "python" / "pyspark")
        [wheel] = place.glob("py4j-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unfinished / "python")
    for script in (unfinished / "bin").iterdir():
        script.chmod(0o755)
    unfinished.rename(folder)
    return folder
