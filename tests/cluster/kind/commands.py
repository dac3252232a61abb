"""The commands of `python -m tests.cluster kind`."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

from tests.cluster.kind import cluster, images
from tests.cluster.kind.stages import CACHE

if TYPE_CHECKING:
    import argparse


def add_parser(parser: argparse.ArgumentParser) -> None:
    """The arguments behind `kind`."""
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="start it; prints the KUBECONFIG to export")
    up.add_argument("--enclosed", action="store_true", help="with a Docker of its own, even where one runs")
    actions.add_parser("down", help="stop it and restore the machine; packages and the cache stay")
    actions.add_parser("status", help="nodes, pods, memory")
    load = actions.add_parser("load", help="copy images from Docker, or archives that end with .tar, to its nodes")
    load.add_argument("image", nargs="+")


def add_images_parser(parser: argparse.ArgumentParser) -> None:
    """The arguments behind `images`."""
    parser.add_argument("--base", default="", help="an image with Python 3.11 or later, as python:3.12-slim")
    parser.add_argument("--client", action="store_true", help="the client of tests/e2e too")
    parser.add_argument("--enclosed", action="store_true", help="with a Docker of its own, even where one runs")


def run_images(arguments: argparse.Namespace) -> None:
    """Build the images, and load them when a cluster runs. Raises StartError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        docker = cluster.choose(enclosed=arguments.enclosed)
        ran = docker.running()
        docker.start()
        try:
            names = images.build_images(docker, base=arguments.base, client=arguments.client)
            if cluster.NAME in cluster.clusters(docker):
                cluster.load(docker, names)
        finally:
            if not ran:
                docker.stop()


def run(arguments: argparse.Namespace) -> None:
    """Do what was asked. Raises StartError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one after another
        if arguments.action == "up":
            docker = cluster.choose(enclosed=arguments.enclosed)
            print(f"export KUBECONFIG={cluster.up(docker)}")
            return
        docker = cluster.used()
        if arguments.action == "down":
            cluster.down(docker)
        elif arguments.action == "load":
            cluster.load(docker, arguments.image)
        else:
            print(cluster.status(docker))
