"""The commands of `python -m tests.cluster kind`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from typing import TYPE_CHECKING, NoReturn

from tests.cluster.kind import cluster, images, spark_images
from tests.cluster.kind.stages import CACHE, ROOT, Aside, say, stage
from tests.cluster.processes import StartError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

BUILD_END_LIMIT_S = 60.0
BASE_HELP = "of the images: one with Python 3.11 or later, as python:3.12-slim"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_parser(parser: argparse.ArgumentParser) -> None:
    """The arguments behind `kind`."""
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="start it, with our images; prints the KUBECONFIG to export")
    up.add_argument("--enclosed", action="store_true", help="with a Docker of its own, even where one runs")
    up.add_argument("--no-images", action="store_true", help="the cluster alone: nothing is built, nothing copied")
    up.add_argument("--base", default="", help=BASE_HELP)
    actions.add_parser("down", help="stop it and restore the machine; packages and the cache stay")
    actions.add_parser("status", help="nodes, pods, memory")
    within = actions.add_parser(
        "run", help="start it, build and load the images, run a command there, take it away again"
    )
    within.add_argument("--enclosed", action="store_true", help="with a Docker of its own, even where one runs")
    within.add_argument("--spark", action="store_true", help="the images for Spark too; KAFKALITE_E2E_SPARK=1 tells it")
    within.add_argument("argument", nargs="+", metavar="COMMAND", help="KUBECONFIG is in its environment")
    images_here = actions.add_parser(
        "images",
        help="build and load the images of the e2e tests if KUBECONFIG names this cluster, else say where from",
    )
    images_here.add_argument("--base", default="", help=BASE_HELP)
    load = actions.add_parser("load", help="copy images from Docker, or archives that end with .tar, to its nodes")
    load.add_argument("image", nargs="+")


def add_images_parser(parser: argparse.ArgumentParser) -> None:
    """The arguments behind `images`."""
    parser.add_argument("--base", default="", help=BASE_HELP)
    parser.add_argument("--client", action="store_true", help="the client of tests/e2e too")
    parser.add_argument(
        "--spark", action="store_true", help="our jobs for Spark and the spark-operator, and nothing else"
    )
    parser.add_argument("--enclosed", action="store_true", help="with a Docker of its own, even where one runs")


def run_images(arguments: argparse.Namespace) -> None:
    """Build the images, and load them when a cluster runs. Raises StartError."""
    with locked():
        docker = cluster.choose(enclosed=arguments.enclosed)
        ran = docker.running()
        docker.start()
        try:
            if arguments.spark:
                load_where_one_runs(docker, spark_images.build_spark_images(docker, base=arguments.base))
            else:
                make_images(docker, base=arguments.base, client=arguments.client)
        finally:
            if not ran:
                docker.stop()


def make_images(docker: cluster.Docker, *, base: str = "", client: bool = False) -> None:
    """Build them, and load them when a cluster runs."""
    load_where_one_runs(docker, images.build_images(docker, base=base, client=client))


def load_where_one_runs(docker: cluster.Docker, names: list[str]) -> None:
    """Copy images to the nodes, if there are nodes."""
    if cluster.NAME in cluster.clusters(docker):
        cluster.load(docker, names)


def run(arguments: argparse.Namespace) -> None:
    """Do what was asked. Raises StartError, and SystemExit with the code of a command that was run."""
    if arguments.action == "run":
        raise SystemExit(run_within(arguments.argument, enclosed=arguments.enclosed, spark=arguments.spark))
    with locked():
        if arguments.action == "up":
            docker = cluster.choose(enclosed=arguments.enclosed)
            kubeconfig = cluster.up(docker) if arguments.no_images else up_with_images(docker, base=arguments.base)
            print(f"export KUBECONFIG={kubeconfig}")
            return
        if arguments.action == "images":
            images_for_tests(base=arguments.base)
            return
        docker = cluster.used()
        if arguments.action == "down":
            cluster.down(docker)
        elif arguments.action == "load":
            cluster.load(docker, arguments.image)
        else:
            print(cluster.status(docker))


def up_with_images(docker: cluster.Docker, *, base: str = "") -> Path:
    """A cluster that has our images: what is there already is neither made nor copied again. Returns its kubeconfig.

    Raises:
        StartError: there is no cluster; or there is one, and the images could not be made.
    """
    docker.start()
    building = Aside(lambda: images.build_images(docker, base=base, client=True))
    try:
        kubeconfig = cluster.up(docker)
        try:
            cluster.load(docker, building.result())
        except StartError as error:
            raise StartError(f"{error}\nthe cluster runs, without our images; IMAGES=no leaves them out") from error
    finally:
        building.end(BUILD_END_LIMIT_S)
    return kubeconfig


def images_for_tests(*, base: str = "") -> None:
    """Build the images and load them, when KUBECONFIG names our own cluster: else old ones would be tested, or none."""
    registry = os.environ.get("KAFKALITE_E2E_REGISTRY", "")
    if registry or not cluster.is_ours():
        say(f"KUBECONFIG names a cluster whose nodes take the images from {registry or 'what they have'}")
        return
    docker = cluster.used()
    spark = os.environ.get("KAFKALITE_E2E_SPARK") == "1"
    cluster.load(docker, build_all(docker, base=base, spark=spark))


def run_within(command: list[str], *, enclosed: bool = False, spark: bool = False) -> int:
    """Run a command in a cluster with our images, which is taken away afterwards, unless it was there before.

    A signal that ends us ends the command, then the cluster. Returns the exit code of the command. With `spark` there
    are the images of `make spark-images` too, and KAFKALITE_E2E_SPARK=1 tells the command.

    Raises:
        StartError: the cluster or the images could not be made, or something of it is left.
    """
    with locked():
        docker = cluster.choose(enclosed=enclosed)
        ran = docker.running() and cluster.NAME in cluster.clusters(docker)
        docker.end_with_us()
    with ended_by_signals() as ending:
        with locked():
            docker.start()  # cleans up behind itself when it fails, as it does beside a cluster of another checkout
        building = None
        try:
            with locked():
                # Most of the time in which the nodes come up they wait, for one another and for the network.
                building = Aside(lambda: build_all(docker, spark=spark))
                kubeconfig = cluster.up(docker)
                cluster.load(docker, building.result())
            environment = {
                **os.environ,
                "KUBECONFIG": str(kubeconfig),
                **({"KAFKALITE_E2E_SPARK": "1"} if spark else {}),
            }
            with stage("the command"):
                return call_through(command, environment, ending)
        finally:
            if ran:
                say("the cluster was there before, and stays")
            else:
                with locked():
                    cluster.down(docker)
            if building is not None:
                building.end(BUILD_END_LIMIT_S)


def build_all(docker: cluster.Docker, *, spark: bool, base: str = "") -> list[str]:
    """The images that the tests need; returns their names. `base` is not that of the images for Spark."""
    names = images.build_images(docker, base=base, client=True)
    return [*names, *spark_images.build_spark_images(docker)] if spark else names


def call_through(command: list[str], environment: dict[str, str], ending: Ending) -> int:
    """Run a command with our own input and output; when a signal ends us, it is ended and waited for."""
    ending.hold()  # a signal must find the process known that it is to end
    try:
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
    except BaseException:
        ending.let_go()
        raise
    try:
        ending.let_go()
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


class Ending:
    """A signal raises SystemExit once, so that what is to be done at the end is done; later ones do not disturb that.

    To block signals would not hold them back: another thread may be given them, and Python handles them in this one.
    """

    def __init__(self) -> None:
        self._held = False
        self._came = 0

    def hold(self) -> None:
        """Raise nothing until `let_go`, which then does."""
        self._held = True

    def let_go(self) -> None:
        """Raises SystemExit when a signal came meanwhile."""
        self._held = False
        if self._came:
            self._end()

    def signal_came(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        self._came = number
        if not self._held:
            self._end()

    def _end(self) -> NoReturn:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + self._came)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """Signals end the body by SystemExit."""
    ending = Ending()
    before = {number: signal.signal(number, ending.signal_came) for number in ENDING}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One call after another."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
