"""Folders behind volumes: ConfigMaps and fields of the pod as files, PersistentVolumeClaims as folders that outlive
their pods.
"""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalite_local.kubelet.pod_spec import LaunchError, field_of
from kafkalite_local.pod_names import claim_key, pod_key
from kafkalite_runtime.home import Home, write_atomically

JsonObject = dict[str, Any]
DELETED = ".deleted"


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """Folders, below `volumes`, of the PersistentVolumeClaims that a pod mounts."""
    volumes = pod["spec"].get("volumes") or []
    names = [str(each["persistentVolumeClaim"]["claimName"]) for each in volumes if "persistentVolumeClaim" in each]
    return [claim_key({"name": name, "namespace": pod["metadata"].get("namespace")}) for name in names]


def config_maps_of(pod: Mapping[str, Any]) -> dict[str, JsonObject]:
    """Volume name to its `configMap` source."""
    volumes = pod["spec"].get("volumes") or []
    return {str(volume["name"]): volume["configMap"] for volume in volumes if "configMap" in volume}


def prepare(pod: JsonObject, home: Home, config_maps: Mapping[tuple[str, str], JsonObject]) -> None:
    """Make every folder that the pod mounts and fill the ConfigMap volumes.

    A ConfigMap that is not known (any more, or because the API server is away) is no reason to hold back a pod
    whose files are still there from its last start.

    Raises:
        LaunchError: a ConfigMap or claim that the pod needs has never been seen.
    """
    folder = home.pods / pod_key(pod["metadata"])
    for claim in claims_of(pod):
        if not owner_of(claim, home):
            raise LaunchError("ContainerCreating", f'persistentvolumeclaim "{claim}" not found')
        (home.volumes / claim).mkdir(parents=True, exist_ok=True)
    for volume in pod["spec"].get("volumes") or []:
        if "emptyDir" in volume:
            (folder / "volumes" / volume["name"]).mkdir(parents=True, exist_ok=True)
    write_fields(pod, home)
    for name in config_maps_of(pod):
        target = folder / "volumes" / name
        source = config_maps_of(pod)[name]
        if not write_config_map(pod, name, home, config_maps) and not source.get("optional") and not target.is_dir():
            raise LaunchError("CreateContainerConfigError", f'configmap "{source["name"]}" not found')


def write_fields(pod: JsonObject, home: Home) -> None:
    """Bring the files of the downward API's volumes up to date. Raises LaunchError for an unknown field."""
    for volume in pod["spec"].get("volumes") or []:
        for item in (volume.get("downwardAPI") or {}).get("items") or []:
            if "fieldRef" not in item:
                message = f"volume {volume['name']}: only fieldRef is implemented"
                raise LaunchError("CreateContainerConfigError", message)
            content = field_of(pod, str(item["fieldRef"]["fieldPath"])).encode()
            path = home.pods / pod_key(pod["metadata"]) / "volumes" / volume["name"] / item["path"]
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content)


def write_config_map(
    pod: JsonObject, volume: str, home: Home, config_maps: Mapping[tuple[str, str], JsonObject]
) -> bool:
    """Bring the files of one ConfigMap volume up to date; False when the ConfigMap is not known."""
    source = config_maps_of(pod)[volume]
    namespace = pod["metadata"].get("namespace") or "default"
    config_map = config_maps.get((namespace, source["name"]))
    if config_map is None:
        return False
    data: dict[str, str] = config_map.get("data") or {}
    wanted = {item["path"]: data[item["key"]] for item in source.get("items") or [] if item["key"] in data}
    files = wanted if source.get("items") else data
    target = home.pods / pod_key(pod["metadata"]) / "volumes" / volume
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = target / name
        content = text.encode()
        if not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
    for path in target.iterdir():
        if path.name not in files and path.is_file() and not path.name.startswith("."):
            path.unlink()
    return True


def provision(claim: JsonObject, home: Home) -> None:
    """Make the folder of a claim. A folder left by an earlier claim of the name is set aside: a new volume is empty.

    Whose it is stands there before the folder does: interrupted in between, a new folder would be set aside as well,
    where the earlier one is already.
    """
    name, uid = claim_key(claim["metadata"]), str(claim["metadata"]["uid"])
    folder, known = home.volumes / name, owner_of(name, home)
    if known and known != uid and folder.is_dir():
        folder.rename(set_aside(name, known, home))
    if known != uid:
        write_atomically(_owner(name, home), uid.encode())
    folder.mkdir(parents=True, exist_ok=True)


def owner_of(name: str, home: Home) -> str:
    """The uid of the claim that a folder was made for, empty when there is no such folder."""
    owner = _owner(name, home)
    return owner.read_text(encoding="ascii") if owner.is_file() else ""


def set_aside(name: str, uid: str, home: Home) -> Path:
    """Where a folder is put whose claim is gone when the next one of its name comes."""
    return home.volumes / f".released-{name}-{uid}"


def note_deleted(name: str, uid: str, home: Home) -> None:
    """Remember over a restart of the kubelet that a claim was deleted, and its folder has to go. As well as it can."""
    with contextlib.suppress(OSError):  # on a full disk the kubelet still has it in its head
        _note(name, uid, home).touch()


def forget_deleted(name: str, uid: str, home: Home) -> None:
    """The opposite: the claim is there."""
    _note(name, uid, home).unlink(missing_ok=True)


def noted_deleted(home: Home) -> set[tuple[str, str]]:
    """Folders and uids of the claims that were deleted and whose folders are still there."""
    found = (path.name.removesuffix(DELETED)[1:].rpartition(".") for path in home.volumes.glob(f".*{DELETED}"))
    return {(name, uid) for name, _, uid in found}


def reclaim(name: str, uid: str, home: Home) -> None:
    """Remove the folder of a deleted claim (reclaim policy Delete), set aside or not; one of a newer claim stays."""
    shutil.rmtree(set_aside(name, uid, home), ignore_errors=True)
    if owner_of(name, home) == uid:
        shutil.rmtree(home.volumes / name, ignore_errors=True)
        _owner(name, home).unlink(missing_ok=True)
    forget_deleted(name, uid, home)


def _owner(name: str, home: Home) -> Path:
    return home.volumes / f".{name}.uid"


def _note(name: str, uid: str, home: Home) -> Path:
    return home.volumes / f".{name}.{uid}{DELETED}"


def remove_pod_folder(pod: Mapping[str, Any], home: Home) -> None:
    """Forget a pod that is gone; claims stay."""
    shutil.rmtree(home.pods / pod_key(pod["metadata"]), ignore_errors=True)


def read_termination_message(path: Path) -> str:
    """The last 4096 bytes of a container's termination message, empty when it wrote none."""
    try:
        return path.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError:
        return ""
