"""Members of an ISR or ELR as two lists of one order, `isr` and `isrBrokerEpochs`.

Numbers instead of objects: the API server judges a status with every value in it, and an object costs it several times
what a number does. And `isr` reads as Kafka's own tools print it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources.fields import ResourceError

if TYPE_CHECKING:
    from kafkalite_core.resources.fields import Fields


def read_members(fields: Fields, name: str) -> tuple[IsrEntry, ...]:
    """What `name` and `<name>BrokerEpochs` hold together; empty where neither is there. Raises `ResourceError`."""
    ids, epochs = fields.integers(name), fields.integers(f"{name}BrokerEpochs")
    if len(epochs) != len(ids):
        where = fields.where(f"{name}BrokerEpochs")
        raise ResourceError(f"{where} has not one number for each broker of {name}: {epochs}")
    return tuple(map(IsrEntry, ids, epochs))


def render_members(name: str, members: tuple[IsrEntry, ...]) -> dict[str, list[int]]:
    """The inverse of `read_members`."""
    return {name: [member.id for member in members], f"{name}BrokerEpochs": [member.epoch for member in members]}
