"""Static pods: manifests in a folder, run without asking anybody, and shown in the API as mirror pods."""

import asyncio
import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kafkalite_runtime.home import NODE_NAME
from kafkalite_runtime.kube import PODS, KubeClient, KubeConflict, KubeError, KubeNotFound, KubeUnavailable
from kafkalite_runtime.logging import get_logger

JsonObject = dict[str, Any]
MIRROR = "kubernetes.io/config.mirror"
POLL_S = 1.0
RETRY_S = 0.5
_log = get_logger(__name__)


def read_manifests(folder: Path) -> dict[str, JsonObject]:
    """Static pods by name; the uid is a digest of the content, so that a changed manifest is another pod.

    A manifest that cannot be read is reported and left out.
    """
    pods: dict[str, JsonObject] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            content = path.read_bytes()
            pod = yaml.safe_load(content)
            if pod["kind"] != "Pod":
                raise ValueError(f"kind {pod['kind']}, expected Pod")
            metadata = pod["metadata"]
            metadata["name"] = f"{metadata['name']}-{NODE_NAME}"
            metadata.setdefault("namespace", "default")
            metadata["uid"] = hashlib.sha256(content).hexdigest()[:32]
            pod["spec"]["nodeName"] = NODE_NAME
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            _log.warning("manifest not usable", path=str(path), error=str(error))
            continue
        pods[metadata["name"]] = pod
    return pods


def mirror_of(pod: JsonObject) -> JsonObject:
    """The object that shows a static pod in the API."""
    mirror = copy.deepcopy(pod)
    uid = mirror["metadata"].pop("uid")
    annotations = mirror["metadata"].get("annotations") or {}
    mirror["metadata"]["annotations"] = annotations | {
        MIRROR: uid,
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.hash": uid,
    }
    return mirror


def is_mirror(pod: JsonObject) -> bool:
    """Whether a pod of the API only shows a static pod."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


class StaticPods:
    """Follows the manifest folder and keeps the mirrors in the API.

    `on_change` gets all static pods by name whenever the folder changed; `on_mirror(name, uid)` the uid of a
    mirror (None when there is none), to which the pod's status is to be written.
    """

    def __init__(
        self,
        client: KubeClient,
        folder: Path,
        on_change: Callable[[dict[str, JsonObject]], None],
        on_mirror: Callable[[str, str | None], None],
    ) -> None:
        self._client = client
        self._folder = folder
        self._on_change = on_change
        self._on_mirror = on_mirror
        self._pods: dict[str, JsonObject] = {}
        self._mirrors: dict[str, JsonObject] = {}
        self._wake = asyncio.Event()

    def load(self) -> None:
        """Read the folder now."""
        pods = read_manifests(self._folder)
        if pods != self._pods:
            self._pods = pods
            self._on_change(pods)
            self._wake.set()

    def seen(self, pod: JsonObject | None, name: str) -> None:
        """The API shows this mirror (None: not any more)."""
        if pod is None:
            self._mirrors.pop(name, None)
        else:
            self._mirrors[name] = pod
        self._wake.set()

    def seen_all(self, mirrors: list[JsonObject]) -> None:
        """The API shows exactly these mirrors."""
        self._mirrors = {mirror["metadata"]["name"]: mirror for mirror in mirrors}
        self._wake.set()

    async def poll(self) -> None:
        """Until cancelled: notice changes of the folder."""
        while True:
            self.load()
            await asyncio.sleep(POLL_S)

    async def run(self) -> None:
        """Until cancelled: make and remove mirrors."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                for name in {*self._pods, *self._mirrors}:
                    await self._settle(name)
            except (KubeError, KubeUnavailable) as error:
                _log.info("mirror pods not settled", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _settle(self, name: str) -> None:
        pod, mirror = self._pods.get(name), self._mirrors.get(name)
        if mirror is not None:
            current = pod is not None and mirror["metadata"]["annotations"][MIRROR] == pod["metadata"]["uid"]
            if current and "deletionTimestamp" not in mirror["metadata"]:
                self._on_mirror(name, mirror["metadata"]["uid"])
                return
            self._on_mirror(name, None)
            metadata = mirror["metadata"]
            try:
                await self._client.delete(PODS, metadata["namespace"], name, uid=metadata["uid"], grace_period_s=0)
            except (KubeNotFound, KubeConflict):
                _log.debug("mirror already gone", name=name)
            self._mirrors.pop(name, None)
        if pod is not None:
            try:
                created = await self._client.create(PODS, pod["metadata"]["namespace"], mirror_of(pod))
            except KubeConflict:
                created = await self._client.get(PODS, pod["metadata"]["namespace"], name)
                if not is_mirror(created):
                    raise
            self._mirrors[name] = created
            self._on_mirror(name, created["metadata"]["uid"])
