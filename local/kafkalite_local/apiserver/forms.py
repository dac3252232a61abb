"""The forms of the built-in kinds, as far as kubelet, collector and printers rely on them.

As in the real server a field that is null is one that is not given, a field of another type is answered with 400, and
one that is required and missing with 422. What is not named here is stored as given.
"""

from __future__ import annotations

from typing import Any, Final

from kafkalite_local.apiserver.errors import FieldError, bad_request, invalid
from kafkalite_local.apiserver.types import Form, ResourceType, Strings

Json = dict[str, Any]
REQUIRED: Final = "!"
"""Ends the name of a field that must be there, and must not be an empty list."""

_WORDS: Final = {str: "a string", int: "a whole number", bool: "true or false", dict: "an object"}
_STRINGS: Final = Strings()

_PROBE: Final[Form] = {
    "httpGet": {"path": str, "port!": (int, str), "host": str, "scheme": str},
    "initialDelaySeconds": int,
    "periodSeconds": int,
    "timeoutSeconds": int,
    "successThreshold": int,
    "failureThreshold": int,
}
_FIELD: Final[Form] = {"fieldPath!": str}
_CONTAINER: Final[Form] = {
    "name!": str,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [{"name!": str, "value": str, "valueFrom": {"fieldRef": _FIELD}}],
    "envFrom": [dict],
    "ports": [{"containerPort!": int, "name": str}],
    "volumeMounts": [{"name!": str, "mountPath!": str, "subPath": str}],
    "terminationMessagePath": str,
    "resources": dict,
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
}
_VOLUME: Final[Form] = {
    "name!": str,
    "persistentVolumeClaim": {"claimName!": str},
    "configMap": {"name!": str, "optional": bool, "items": [{"key!": str, "path!": str}]},
    "emptyDir": dict,
    "downwardAPI": {"items": [{"path!": str, "fieldRef": _FIELD}]},
}
_POD_SPEC: Final[Form] = {
    "containers!": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [_VOLUME],
    "nodeName": str,
    "serviceAccountName": str,
    "hostname": str,
    "subdomain": str,
    "hostNetwork": bool,
    "restartPolicy": str,
    "dnsPolicy": str,
    "schedulerName": str,
    "enableServiceLinks": bool,
    "terminationGracePeriodSeconds": int,
}
_STATE: Final[Form] = {
    "waiting": {"reason": str, "message": str},
    "running": dict,
    "terminated": {"reason": str, "exitCode": int, "signal": int, "finishedAt": str},
}
_CONDITIONS: Final[Form] = [{"type": str, "status": str}]
_SELECTOR: Final[Form] = {"matchLabels": _STRINGS}
_TEMPLATE: Final[Form] = {"metadata": {"labels": _STRINGS, "annotations": _STRINGS}, "spec!": _POD_SPEC}
_CLAIM_SPEC: Final[Form] = {
    "accessModes": [str],
    "resources": {"requests": dict, "limits": dict},
    "volumeMode": str,
    "volumeName": str,
    "storageClassName": str,
}

POD: Final[Form] = {
    "spec": _POD_SPEC,
    "status": {
        "phase": str,
        "reason": str,
        "podIP": str,
        "conditions": _CONDITIONS,
        "containerStatuses": [
            {"name": str, "ready": bool, "restartCount": int, "containerID": str, "state": _STATE, "lastState": _STATE}
        ],
    },
}
CLAIM: Final[Form] = {
    "spec": _CLAIM_SPEC,
    "status": {"phase": str, "accessModes": [str], "capacity": dict},
}
STATEFUL_SET: Final[Form] = {
    "spec": {
        "replicas": int,
        "serviceName": str,
        "podManagementPolicy": str,
        "revisionHistoryLimit": int,
        "selector!": _SELECTOR,
        "template!": _TEMPLATE,
        "updateStrategy": {"type": str},
        "volumeClaimTemplates": [
            {"metadata!": {"name!": str, "labels": _STRINGS, "annotations": _STRINGS}, "spec!": _CLAIM_SPEC}
        ],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": str, "whenScaled": str},
    },
    "status": {"replicas": int, "readyReplicas": int, "currentRevision": str, "updateRevision": str},
}
DEPLOYMENT: Final[Form] = {
    "spec": {"replicas": int, "selector!": _SELECTOR, "template!": _TEMPLATE},
    "status": {"replicas": int, "readyReplicas": int, "updatedReplicas": int, "availableReplicas": int},
}
NAMESPACE: Final[Form] = {"spec": {"finalizers": [str]}, "status": {"phase": str}}
NODE: Final[Form] = {"spec": {"unschedulable": bool}, "status": {"conditions": _CONDITIONS, "nodeInfo": dict}}
SERVICE: Final[Form] = {
    "spec": {
        "type": str,
        "clusterIP": str,
        "sessionAffinity": str,
        "selector": _STRINGS,
        "ports": [{"name": str, "port!": int, "protocol": str}],
    },
    "status": {"loadBalancer": dict},
}
CONFIG_MAP: Final[Form] = {"data": _STRINGS, "binaryData": _STRINGS}
SECRET: Final[Form] = {"type": str, "data": _STRINGS, "stringData": _STRINGS}
BUDGET: Final[Form] = {
    "spec": {"selector": _SELECTOR},
    "status": {"disruptionsAllowed": int, "conditions": _CONDITIONS},
}
LEASE: Final[Form] = {"spec": {"holderIdentity": str}}
EVENT: Final[Form] = {
    "involvedObject": {"kind": str, "namespace": str, "name": str, "uid": str},
    "source": {"component": str},
    "series": {"count": int},
    "count": int,
    "type": str,
    "reason": str,
    "message": str,
}


def conform(resource: ResourceType, value: Json) -> None:
    """Give an object the form of its kind: drop what is null. Raises ApiError 400 or 422."""
    if resource.form is None:
        return
    missing: list[str] = []
    _conform(resource, resource.form, value, "", missing)
    if missing:
        errors = [FieldError(path, "FieldValueRequired", "Required value") for path in missing]
        raise invalid(resource, str(value["metadata"].get("name") or ""), errors)


def _conform(resource: ResourceType, form: Form, value: Any, path: str, missing: list[str]) -> None:
    if isinstance(form, Strings):
        _check(resource, isinstance(value, dict), value, path, "an object of strings")
        for name, item in value.items():
            if item is None:
                value[name] = ""
            else:
                _check(resource, isinstance(item, str), item, f"{path}.{name}", "a string")
    elif isinstance(form, dict):
        _check(resource, isinstance(value, dict), value, path, "an object")
        for key, inner in form.items():
            name = key.removesuffix(REQUIRED)
            where = f"{path}.{name}" if path else name
            if name in value and value[name] is None:
                del value[name]
            if name in value:
                _conform(resource, inner, value[name], where, missing)
            if key != name and value.get(name) in (None, [], ""):
                missing.append(where)
    elif isinstance(form, list):
        _check(resource, isinstance(value, list), value, path, "a list")
        for index, item in enumerate(value):
            _conform(resource, form[0], item, f"{path}[{index}]", missing)
    else:
        kinds = form if isinstance(form, tuple) else (form,)
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        _check(resource, fits, value, path, " or ".join(_WORDS[kind] for kind in kinds))


def _check(resource: ResourceType, fits: bool, value: Any, path: str, wanted: str) -> None:
    if fits:
        return
    found = "null" if value is None else "a list" if isinstance(value, list) else _WORDS.get(type(value), "a number")
    raise bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        f"{path}: expected {wanted}, found {found}"
    )
