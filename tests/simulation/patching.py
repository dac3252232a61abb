"""JSON Patch on objects that are never changed in place, and the CRDs' rules that refuse a result (fences)."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Refused(Exception):
    """A test failed, or a fence refused the result."""


class FenceHelped(Refused):
    """All tests of a patch passed, and the rules of a partition entry refused it all the same.

    Whoever names every input of a decision never gets here: the tests of the entry's epochs fail first.
    """


def pointer(path: str) -> list[str]:
    """RFC 6901."""
    parts = path.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts] if "~" in path else parts


def apply_patch(obj: Json, operations: list[Json]) -> Json:
    """The patched object; everything that was not changed is shared. Raises `Refused`."""
    result = obj
    copied: set[int] = set()
    for operation in operations:
        parts = pointer(operation["path"])
        kind = operation["op"]
        if kind == "test":
            if _get(result, parts) != operation["value"]:
                raise Refused(f"test of {operation['path']} failed")
            continue
        if id(result) not in copied:
            result = dict(result)
            copied.add(id(result))
        node = result
        for part in parts[:-1]:
            child = node.get(part)
            if not isinstance(child, dict):
                raise Refused(f"{operation['path']}: no such member")
            if id(child) not in copied:
                child = dict(child)
                copied.add(id(child))
                node[part] = child
            node = child
        name = parts[-1]
        if kind in {"remove", "replace"} and name not in node:
            raise Refused(f"{operation['path']} does not exist")
        if kind == "remove":
            del node[name]
        else:
            node[name] = operation["value"]
    return result


def _get(obj: Any, parts: list[str]) -> Any:
    for part in parts:
        if not isinstance(obj, dict) or part not in obj:
            raise Refused(f"/{'/'.join(parts)} does not exist")
        obj = obj[part]
    return obj


def check(kind: str, old: Json, new: Json) -> None:
    """The CEL rules of the CRDs; raises `Refused`."""
    before, after = old.get("status"), new.get("status")
    _need(before is None or after is not None, "status never disappears")
    if after is None:
        return
    rule = _RULES.get(kind)
    if rule is not None:
        rule(before or {}, after)


def _need(holds: bool, message: str, refusal: type[Refused] = Refused) -> None:
    if not holds:
        raise refusal(message)


def _never_falls(before: Json, after: Json, name: str) -> None:
    if before.get(name) is not None:
        _need(after.get(name) is not None and after[name] >= before[name], f"{name} never decreases")


def _immutable(before: Json, after: Json, name: str) -> None:
    if before.get(name) is not None:
        _need(after.get(name) == before[name], f"{name} is immutable")


def _topic(before: Json, after: Json) -> None:
    _never_falls(before, after, "controllerEpoch")
    _immutable(before, after, "topicId")
    olds, news = before.get("partitions"), after.get("partitions")
    if olds is news:
        return
    _need(not olds or (news is not None and all(name in news for name in olds)), "a partition never disappears")
    for name, new in (news or {}).items():
        old = (olds or {}).get(name)
        if new is not old:
            _partition(old, new)


def _partition(old: Json | None, new: Json) -> None:
    members = new["isr"]
    _need(new["leader"] == -1 or new["leader"] in members, "the leader must be a member of the ISR", FenceHelped)
    _need(all(member in new["replicas"] for member in members), "the ISR must be a subset of the replicas", FenceHelped)
    if old is None or old == new:
        return
    _need(new["partitionEpoch"] > old["partitionEpoch"], "every change raises partitionEpoch", FenceHelped)
    _need(new["leaderEpoch"] >= old["leaderEpoch"], "leaderEpoch never falls", FenceHelped)
    _need(
        new["leader"] == old["leader"] or new["leaderEpoch"] > old["leaderEpoch"],
        "leaderEpoch rises when the leader changes",
        FenceHelped,
    )


def _broker(before: Json, after: Json) -> None:
    old, new = before.get("registration"), after.get("registration")
    if old is not None:
        _need(new is not None and new["brokerEpoch"] >= old["brokerEpoch"], "registration.brokerEpoch never decreases")
        assert new is not None
        _need(
            new["incarnation"] == old["incarnation"] or new["brokerEpoch"] > old["brokerEpoch"],
            "a new incarnation registers with a greater brokerEpoch",
        )
    fence, later = before.get("fencing"), after.get("fencing")
    if fence is not None:
        _need(later is not None and later["fencedEpoch"] >= fence["fencedEpoch"], "fencedEpoch never decreases")


def _cluster(before: Json, after: Json) -> None:
    _immutable(before, after, "clusterId")
    _never_falls(before, after, "nextBrokerEpoch")
    _never_falls(before, after, "nextProducerId")
    old, new = before.get("controller"), after.get("controller")
    if old is not None:
        _need(new is not None and new["epoch"] >= old["epoch"], "controller.epoch never decreases")
        assert new is not None
        _need(
            new["holder"] == old["holder"] or new["epoch"] > old["epoch"],
            "controller.epoch rises when the controller changes",
        )


_RULES = {"topics": _topic, "brokers": _broker, "clusters": _cluster}
