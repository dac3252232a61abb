"""Whose data directory it is, and what a restart proves about it (R9, S2).

trustedSince and cleanSince are broker epochs. Invariant of a registration:

    trustedSince ≤ e ≤ brokerEpoch  =>  everything reported as flushed in broker epoch e is still on this disk
    cleanSince ≤ e                  =>  and so is everything that was only written
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.storage.disk import read_file, remove_file, replace_file, sync_directory
from kafkalite_core.storage.errors import CorruptCheckpoint, ForeignDirectory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kafkalite_core.model.cluster import Registration
    from kafkalite_core.storage.disk import Disk

IDENTITY_FILE: Final = "meta"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity file of a data directory.

    Attributes:
        cluster_id: `status.clusterId` of the cluster.
        broker_id: Broker id.
        directory_id: Random, made with the directory.
    """

    cluster_id: str
    broker_id: int
    directory_id: str

    def encode(self) -> bytes:
        """The file's content."""
        content = {
            "version": _VERSION,
            "clusterId": self.cluster_id,
            "brokerId": self.broker_id,
            "directoryId": self.directory_id,
        }
        return (json.dumps(content, sort_keys=True) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """Reads the file; `CorruptCheckpoint` when it does not parse."""
        try:
            content = json.loads(data)
            if content["version"] != _VERSION:
                raise CorruptCheckpoint(f"{IDENTITY_FILE}: unknown version {content['version']}")
            return cls(str(content["clusterId"]), int(content["brokerId"]), str(content["directoryId"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(f"{IDENTITY_FILE}: {error}") from error


class IdentityFound(NamedTuple):
    """The identity of a directory, and whether it was made just now (nothing in the directory can be trusted)."""

    identity: Identity
    fresh: bool


def establish_identity(disk: Disk, *, cluster_id: str, broker_id: int, new_directory_id: str) -> IdentityFound:
    """Reads the identity file, or writes one with `new_directory_id` where it is missing or unreadable.

    Raises `ForeignDirectory` when the directory belongs to another cluster or broker: a volume in the wrong place is
    left untouched.
    """
    data = read_file(disk, IDENTITY_FILE)
    if data is not None:
        try:
            identity = Identity.decode(data)
        except CorruptCheckpoint:
            identity = None
        if identity is not None:
            if (identity.cluster_id, identity.broker_id) != (cluster_id, broker_id):
                raise ForeignDirectory(
                    f"the data directory belongs to broker {identity.broker_id} of cluster {identity.cluster_id}, "
                    f"not to broker {broker_id} of cluster {cluster_id}; mount the right volume or use an empty one"
                )
            return IdentityFound(identity, fresh=False)
    identity = Identity(cluster_id, broker_id, new_directory_id)
    replace_file(disk, IDENTITY_FILE, identity.encode())
    return IdentityFound(identity, fresh=True)


def write_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    """The very last write of a clean shutdown, durable (KAFKA-15586: it names the broker epoch)."""
    content = {"version": 0, "brokerEpoch": broker_epoch}
    replace_file(disk, CLEAN_SHUTDOWN_FILE, json.dumps(content).encode())


def take_clean_shutdown(disk: Disk) -> int | None:
    """The broker epoch of the marker, or None; the marker is durably gone when this returns."""
    data = read_file(disk, CLEAN_SHUTDOWN_FILE)
    if data is None:
        return None
    remove_file(disk, CLEAN_SHUTDOWN_FILE)
    sync_directory(disk, "")
    try:
        content = json.loads(data)
        epoch = content["brokerEpoch"]
        return epoch if isinstance(epoch, int) and content["version"] == 0 else None
    except (ValueError, KeyError, TypeError):
        return None


class DirectoryFindings(NamedTuple):
    """What opening the data directory brought to light.

    Attributes:
        directory_id: From the identity file.
        fresh: The identity file was missing or unreadable.
        clean_epoch: Broker epoch in the clean-shutdown marker, None without one.
        cut_below_flushed: Recovery of some log ended below its checkpointed flushed end.
        checkpoint_lost: The recovery-point checkpoint is missing or unreadable in a directory that is not fresh, or
            names a log whose directory is gone.
    """

    directory_id: str
    fresh: bool
    clean_epoch: int | None
    cut_below_flushed: bool
    checkpoint_lost: bool

    @property
    def trusted(self) -> bool:
        """As far as the directory itself can tell, it lost nothing that it ever reported (R9)."""
        return not (self.fresh or self.cut_below_flushed or self.checkpoint_lost)


def directory_findings(
    found: IdentityFound,
    clean_epoch: int | None,
    *,
    cut_below_flushed: Iterable[bool],
    flushed_ends_known: bool,
    missing: Collection[object],
) -> DirectoryFindings:
    """What the steps of opening a directory add up to.

    Args:
        found: The identity.
        clean_epoch: Broker epoch in the clean-shutdown marker, None without one.
        cut_below_flushed: By log: its recovery ended below its checkpointed flushed end.
        flushed_ends_known: The recovery-point checkpoint could be read.
        missing: Logs that the checkpoint names and of which there is no directory, not even a stray.
    """
    return DirectoryFindings(
        directory_id=found.identity.directory_id,
        fresh=found.fresh,
        clean_epoch=clean_epoch,
        cut_below_flushed=any(cut_below_flushed),
        checkpoint_lost=not found.fresh and (not flushed_ends_known or bool(missing)),
    )


def settle_identity(
    disk: Disk, identity: Identity, findings: DirectoryFindings, new_directory_id: str
) -> tuple[Identity, DirectoryFindings]:
    """A directory that lost something becomes another one, durably, before anything overwrites what shows the loss.

    Recovery cuts the log, and the next checkpoint says that its end is where it is. Should the process die between
    that and its registration, the next one would find nothing wrong, and be trusted with what is gone (R9).
    """
    if findings.trusted or findings.fresh:
        return identity, findings
    renewed = replace(identity, directory_id=new_directory_id)
    replace_file(disk, IDENTITY_FILE, renewed.encode())
    return renewed, findings._replace(directory_id=new_directory_id)


class RestartVerdict(NamedTuple):
    """What to register.

    Attributes:
        trusted_since: For topics that flush before they acknowledge.
        clean_since: For topics with relaxed flush.
        reason: Why.
    """

    trusted_since: int
    clean_since: int
    reason: str


def restart_verdict(previous: Registration | None, findings: DirectoryFindings, new_epoch: int) -> RestartVerdict:
    """Judges a restart (S2, R9).

    kept(trustedSince) <=> the registered directory is this one, and recovery found everything that was flushed.
    kept(cleanSince)   <=> kept(trustedSince) and the marker names the registered broker epoch.
    Missing data counts against the directory.
    """
    problem = _distrust(previous, findings)
    if problem is not None or previous is None:
        return RestartVerdict(new_epoch, new_epoch, problem or "never registered")
    assert new_epoch > previous.broker_epoch, "broker epochs rise"
    if findings.clean_epoch is None:
        return RestartVerdict(previous.trusted_since, new_epoch, "unclean restart, everything flushed is there")
    return RestartVerdict(previous.trusted_since, previous.clean_since, "clean restart")


def _distrust(previous: Registration | None, findings: DirectoryFindings) -> str | None:
    if findings.fresh:
        return "directory is new, or lost its identity"
    if previous is None:
        return "no earlier registration is known"
    if findings.cut_below_flushed:
        return "recovery cut below the flushed end"
    if findings.checkpoint_lost:
        return "flushed ends are not known: the checkpoint or a log's directory is missing"
    if previous.directory_id != findings.directory_id:
        return f"registered directory is {previous.directory_id}, this one is {findings.directory_id}"
    if findings.clean_epoch is not None and findings.clean_epoch != previous.broker_epoch:
        which = "directory" if findings.clean_epoch < previous.broker_epoch else "store"
        return (
            f"clean-shutdown marker is of broker epoch {findings.clean_epoch}, registered was "
            f"{previous.broker_epoch}: the {which} went back in time"
        )
    return None
