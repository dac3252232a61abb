"""Objects of which the spec cannot be read: what is known of their status must not stand still for that.

A user writes the spec; epochs, leaders and fences stand in the status. Who stopped listening to an object because of a
word in its spec would not learn of an election. So such an object is read with the last spec of it that could be read,
and with the generation of that one: nobody then tells that the newest spec was acted on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.resources.fields import ResourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

ValueT = TypeVar("ValueT")

PROBLEM_LENGTH_MAX = 1024


class Reading(NamedTuple, Generic[ValueT]):
    """What an object says.

    Attributes:
        value: The parsed object.
        obj: What was parsed: the object, or the object with an earlier spec.
        problem: Why its own spec could not be read; empty when it was.
    """

    value: ValueT
    obj: dict[str, Any]
    problem: str


class ReadableSpecs:
    """The last spec of each object that could be read, by uid. The caller tells which objects are gone."""

    def __init__(self) -> None:
        self._specs: dict[str, tuple[object, object]] = {}

    def read(self, obj: dict[str, Any], parse: Callable[[dict[str, Any]], ValueT]) -> Reading[ValueT]:
        """Parse an object, with an earlier spec of its own if need be. The invariant: what a status says is heard for
        as long as the status itself can be read.

        Raises:
            ResourceError: it cannot be understood with any spec that is known. Whatever `parse` raises becomes this
                error: one object that somebody wrote must not end the process that reads all of them.
        """
        try:
            value = parse(obj)
        except Exception as error:
            earlier = self._with_earlier_spec(obj)
            if earlier is None:
                raise _told(error) from error
            try:
                return Reading(parse(earlier), earlier, str(_told(error)))
            except Exception:
                # The status is what cannot be read, or both: the first error names what is to be mended first.
                raise _told(error) from error
        metadata = obj["metadata"]
        self._specs[str(metadata.get("uid", ""))] = (obj.get("spec"), metadata.get("generation"))
        return Reading(value, obj, "")

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._specs.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Only these objects are there."""
        for uid in self._specs.keys() - set(uids):
            del self._specs[uid]

    def _with_earlier_spec(self, obj: Mapping[str, Any]) -> dict[str, Any] | None:
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        known = self._specs.get(str(metadata.get("uid", ""))) if isinstance(metadata, dict) else None
        if known is None or not isinstance(metadata, dict):
            return None
        spec, generation = known
        changed = {key: value for key, value in metadata.items() if key != "generation"}
        if generation is not None:
            changed["generation"] = generation
        return {**obj, "metadata": changed, "spec": spec}


def without_template(cluster: Mapping[str, Any]) -> dict[str, Any] | None:
    """A cluster without `spec.template`, of the generation that was acted on last; None for one that has no template,
    and for one that nobody has controlled yet: nothing of it waits for an election.
    """
    spec, status = cluster.get("spec"), cluster.get("status")
    if not isinstance(spec, dict) or "template" not in spec:
        return None
    if not isinstance(status, dict) or not status.get("clusterId"):
        return None
    metadata = {**cluster["metadata"], "generation": status.get("observedGeneration", 0)}
    return {**cluster, "metadata": metadata, "spec": {key: spec[key] for key in spec if key != "template"}}


def _told(error: Exception) -> ResourceError:
    if isinstance(error, ResourceError):
        return error
    text = str(error) if isinstance(error, KafkaLiteError) else f"{type(error).__name__}: {error}"
    return ResourceError(text[:PROBLEM_LENGTH_MAX])
