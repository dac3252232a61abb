"""What may never be found in the history of an API server, whoever was killed, stopped or late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_runtime.kube.kinds import CLUSTERS, TOPICS

if TYPE_CHECKING:
    from tests.ha.gate import Write
    from tests.ha.world import World


def judge(world: World) -> None:
    """Epochs only rise, each is one controller's, and each change of a partition has a number of its own."""
    _topics(world.history[TOPICS.plural])
    taken = _clusters(world.history[CLUSTERS.plural])
    _writers(world.gate.writes, taken)


def _versions(history: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for obj in history:
        metadata = obj["metadata"]
        found.setdefault(metadata["uid"], {})[int(metadata["resourceVersion"])] = obj
    return {uid: [version for _, version in sorted(versions.items())] for uid, versions in found.items()}


def _topics(history: list[dict[str, Any]]) -> None:
    for versions in _versions(history).values():
        previous: dict[str, Any] = {}
        for obj in versions:
            status = obj.get("status") or {}
            assert status.get("controllerEpoch", 0) >= previous.get("controllerEpoch", 0), obj
            for number, entry in (status.get("partitions") or {}).items():
                before = (previous.get("partitions") or {}).get(number)
                if before is None or before == entry:
                    continue
                assert entry["partitionEpoch"] == before["partitionEpoch"] + 1, (before, entry)
                changed = entry["leader"] != before["leader"]
                assert entry["leaderEpoch"] >= before["leaderEpoch"] + changed, (before, entry)
            previous = status


def _clusters(history: list[dict[str, Any]]) -> dict[int, int]:
    """Where in the history each epoch begins."""
    taken: dict[int, int] = {}
    for versions in _versions(history).values():
        holders: dict[int, str] = {}
        for obj in versions:
            controller = (obj.get("status") or {}).get("controller")
            if controller is None:
                continue
            number = controller["epoch"]
            assert number >= max(holders, default=0), versions
            assert holders.setdefault(number, controller["holder"]) == controller["holder"], versions
            taken.setdefault(number, int(obj["metadata"]["resourceVersion"]))
    return taken


def _writers(writes: list[Write], taken: dict[int, int]) -> None:
    """Nothing of an epoch was applied to any topic after the next epoch had begun."""
    for write in writes:
        for operation in write.body if isinstance(write.body, list) else ():
            if operation.get("path") == "/status/controllerEpoch" and write.revision:
                later = [begin for number, begin in taken.items() if number > operation["value"]]
                assert write.revision < min(later, default=write.revision + 1), (write, taken)
