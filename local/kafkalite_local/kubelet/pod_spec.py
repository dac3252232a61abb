"""From a pod's object to what is executed: command line, environment, folders."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_local.pod_names import claim_key, pod_key
from kafkalite_runtime.home import Home

POD_IP = "127.0.0.1"
TERMINATION_LOG = "/dev/termination-log"
MARKER = "KAFKALITE_LOCAL_POD"
"""Environment variable of every pod's process: `<home>#<pod key>#<uid>`; finds processes that no record names."""

JsonObject = dict[str, Any]
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)|\$\$")
_MAP_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class LaunchError(KafkaLiteError):
    """The container cannot be started as it is described; `reason` is Kubernetes' word for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to execute, and the folders it expects: `mounts` maps mountPath to the local folder."""

    argv: tuple[str, ...]
    env: dict[str, str]
    mounts: dict[str, Path]


def the_container(pod: Mapping[str, Any]) -> JsonObject:
    """The one container. Raises LaunchError for pods of another shape: the local kubelet runs one process per pod."""
    spec = pod["spec"]
    if spec.get("initContainers") or len(spec.get("containers") or []) != 1:
        raise LaunchError("CreateContainerError", "the local kubelet runs pods of exactly one container")
    container: JsonObject = spec["containers"][0]
    return container


def plan_launch(pod: JsonObject, *, home: Home, search: str, base_env: Mapping[str, str]) -> Launch:
    """Resolve command, environment and mounts of a pod.

    Args:
        pod: the object.
        home: folders of local mode.
        search: where programs are looked for, as in PATH.
        base_env: variables that every process gets.

    Raises:
        LaunchError: a field that is not implemented, a program that is not there.
    """
    container = the_container(pod)
    mounts = _mounts(pod, container, home)
    mapping = {path: str(folder) for path, folder in mounts.items()}
    folder = home.pods / pod_key(pod["metadata"])
    mapping[container.get("terminationMessagePath") or TERMINATION_LOG] = str(folder / "termination-log")
    values = {name: _localise(value, mapping) for name, value in _environment(pod, container).items()}
    env = dict(base_env) | values
    env["KUBECONFIG"] = str(home.kubeconfig)
    env[MARKER] = marker(home, pod)
    command = [*(container.get("command") or []), *(container.get("args") or [])]
    if not container.get("command"):
        raise LaunchError("CreateContainerError", "the container has no command, and local mode has no images")
    argv = [_localise(_expand(part, values), mapping) for part in command]
    program = shutil.which(argv[0], path=search)
    if program is None:
        raise LaunchError("CreateContainerError", f"no program {argv[0]!r} in {search}")
    return Launch(argv=(program, *argv[1:]), env=env, mounts=mounts)


def marker(home: Home, pod: Mapping[str, Any]) -> str:
    """Value of the marker variable of a pod's process."""
    return f"{home.root}#{pod_key(pod['metadata'])}#{pod['metadata']['uid']}"


def _mounts(pod: JsonObject, container: JsonObject, home: Home) -> dict[str, Path]:
    folder = home.pods / pod_key(pod["metadata"]) / "volumes"
    sources: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        if claim := volume.get("persistentVolumeClaim"):
            namespace = pod["metadata"].get("namespace")
            sources[volume["name"]] = home.volumes / claim_key({"name": claim["claimName"], "namespace": namespace})
        elif any(key in volume for key in ("configMap", "emptyDir", "downwardAPI")):
            sources[volume["name"]] = folder / str(volume["name"])
        else:
            kinds = ", ".join(key for key in volume if key != "name")
            raise LaunchError("CreateContainerConfigError", f"volume {volume['name']}: {kinds} is not implemented")
    mounts = {}
    for mount in container.get("volumeMounts") or []:
        if mount["name"] not in sources:
            raise LaunchError("CreateContainerConfigError", f"no volume {mount['name']}")
        mounts[str(mount["mountPath"]).rstrip("/")] = sources[mount["name"]] / str(mount.get("subPath") or "")
    return mounts


def _environment(pod: JsonObject, container: JsonObject) -> dict[str, str]:
    if container.get("envFrom"):
        raise LaunchError("CreateContainerConfigError", "envFrom is not implemented")
    values: dict[str, str] = {}
    for variable in container.get("env") or []:
        if source := variable.get("valueFrom"):
            if "fieldRef" not in source:
                raise LaunchError("CreateContainerConfigError", f"env {variable['name']}: only fieldRef is implemented")
            values[variable["name"]] = field_of(pod, str(source["fieldRef"]["fieldPath"]))
        else:
            values[variable["name"]] = _expand(str(variable.get("value") or ""), values)
    return values


def field_of(pod: JsonObject, path: str) -> str:
    """A field of the pod, as the downward API names it. Raises LaunchError for one that is not implemented."""
    metadata, spec = pod["metadata"], pod["spec"]
    simple = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace") or "default",
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": POD_IP,
        "status.podIPs": POD_IP,
        "status.hostIP": POD_IP,
    }
    if path in simple:
        return str(simple[path] or "")
    if match := _MAP_FIELD.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    raise LaunchError("CreateContainerConfigError", f"fieldPath {path} is not implemented")


def _expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` of a variable defined before; unknown names stay as they are, `$$` is one dollar."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return values.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def _localise(text: str, mapping: Mapping[str, str]) -> str:
    """Rewrite a path that begins with a mount path to the local folder; the longest mount path wins."""
    for mount_path in sorted(mapping, key=len, reverse=True):
        if text == mount_path or text.startswith(mount_path + "/"):
            return mapping[mount_path] + text[len(mount_path) :]
    return text
