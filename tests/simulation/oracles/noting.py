"""A checkpoint notes what a broker knows of its partitions: with the store a disk may be all that remembers (S11).

Limits of S11 are excused by what disks have noted (`Ledger.on_disks`), so that they do note it is looked at here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_core.storage.partition_metadata import read_metadata
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

NAME = "a checkpoint notes what is known"
ROOM = 20_000
"""With less on the disk than this, in bytes, a checkpoint may fail."""


def checked(broker: Broker) -> None:
    """A broker has made its checkpoint. Raises `Violation`."""
    disk = broker.host.disk
    if disk.room < ROOM or not broker.serving:  # who is about to end hears no more of the store
        return
    for driver in broker.partitions.drivers.values():
        entry = broker.cache.partition(driver.ref, driver.number)
        if entry is None or driver.log.closed:
            continue
        noted = read_metadata(disk, driver.log.directory)
        seen = driver.replica.seen  # also what it has changed itself, and the watch has yet to show
        known = (max(entry.leader_epoch, seen.leader_epoch), max(entry.partition_epoch, seen.partition_epoch))
        told = noted is not None and noted.leader_epoch >= known[0] and noted.partition_epoch >= known[1]
        if noted is None or not told or noted.isr_epoch < seen.isr_epoch:
            raise Violation(NAME, f"{driver.name} on {broker.host.name}: {known} is known, and {noted} noted")
