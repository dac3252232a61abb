"""Whose data directory it is, and what a restart proves about it (R9, S2).

trustedSince and cleanSince are broker epochs. Invariant of a registration:

    trustedSince ≤ e ≤ brokerEpoch  =>  everything reported as flushed in broker epoch e is still on this disk
    cleanSince ≤ e                  =>  and so is everything that was only written
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite_core.model.errors import StorageError
from kafkalite_core.model.foreign_json import parse_json
from kafkalite_core.storage.disk import disk_errors, read_file, remove_file, replace_file, sync_directory
from kafkalite_core.storage.errors import CorruptCheckpoint, ForeignDirectory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kafkalite_core.model.cluster import Registration
    from kafkalite_core.storage.disk import Disk

IDENTITY_FILE: Final = "meta"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
TAKEN_PREFIX: Final = f"{CLEAN_SHUTDOWN_FILE}.taken"
_TAKERS_MAX: Final = 12
"""So many tags fit into a file name."""
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
            content = parse_json(data)
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
    assert cluster_id, "a directory of no cluster would be a foreign one at the next start"
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


def leave_clean_shutdown(disk: Disk, broker_epoch: int | None, opened: CleanShutdown) -> bool:
    """The marker of a process that ends in order: with its own broker epoch, if it was ever registered.

    False: a full disk has no room for it, and the next start is one after an unclean end.

    One that never was (the API server was away) has written nothing that counts: it leaves the marker that it found,
    or none. A marker of an epoch that is not the registered one would look like another past (S11), and have a sound
    disk distrusted: so there is none without a known epoch (None: a registration with a newer one may be in the store,
    or not). What the incarnation took when it opened the directory tells then whose past that is.
    """
    if broker_epoch is None:
        return True
    epoch = broker_epoch if broker_epoch >= 0 else opened.epoch
    try:
        if epoch is not None:
            write_clean_shutdown(disk, epoch)
    except StorageError:
        return False
    return True


class TakenMarker(NamedTuple):
    """A clean-shutdown marker that is not one any more, until an incarnation that has opened the directory since is
    registered.

    Attributes:
        epoch: The broker epoch in it.
        takers: Tags (`incarnation_tag`) of the incarnations that opened the directory since, this one too.
    """

    epoch: int
    takers: tuple[str, ...]


class CleanShutdown(NamedTuple):
    """What the clean-shutdown marker says.

    Attributes:
        epoch: The broker epoch in it; None without one.
        taken: The same for judging whose past the directory shows; also of a marker that an incarnation before this
            one has taken, and died of something before it was registered.
    """

    epoch: int | None
    taken: TakenMarker | None


def incarnation_tag(incarnation: str) -> str:
    """What stands for an incarnation in a file name."""
    return sha256(incarnation.encode()).hexdigest()[:16]


def take_clean_shutdown(disk: Disk, incarnation: str) -> CleanShutdown:
    """Reads the marker, and durably makes it one that has been taken by `incarnation`: the next start is unclean.

    What it says of the directory's age has to outlive this process, should it die before it is registered: a second
    start on an older copy of the disk would find no marker, and trust it. It is renamed, which needs no room on a full
    disk. `forget_taken` ends it.
    """
    data = read_file(disk, CLEAN_SHUTDOWN_FILE)
    left = _taken(disk)
    clean = data is not None
    before: list[str] = []
    if clean:
        source = CLEAN_SHUTDOWN_FILE
    elif left:
        source = left.pop()
        data = read_file(disk, source)
        before = source.split(".")[3:]
    else:
        return CleanShutdown(None, None)
    takers = (*before, incarnation_tag(incarnation))
    epoch = _marker_epoch(bytes(data or b""))
    forget_taken(disk, left)
    if epoch is None or len(takers) > _TAKERS_MAX:
        remove_file(disk, source)
    else:
        with disk_errors(f"rename {source}"):
            disk.rename(source, ".".join((TAKEN_PREFIX, *takers)))
    sync_directory(disk, "")
    if epoch is None or len(takers) > _TAKERS_MAX:
        return CleanShutdown(None, None)
    return CleanShutdown(epoch if clean else None, TakenMarker(epoch, takers))


def forget_taken(disk: Disk, names: Iterable[str] | None = None) -> None:
    """This process is registered, so the store names an incarnation that opened this directory."""
    for name in _taken(disk) if names is None else names:
        remove_file(disk, name)


def _taken(disk: Disk) -> list[str]:
    with disk_errors("list the data directory"):
        return [name for name in disk.list("") if name.startswith(TAKEN_PREFIX)]


def _marker_epoch(data: bytes) -> int | None:
    try:
        content = parse_json(data)
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
        taken: A marker that was taken before or just now, and no registration followed that this directory knows of.
        cut_below_flushed: Recovery of some log ended below its checkpointed flushed end.
        checkpoint_lost: The recovery-point checkpoint is missing or unreadable in a directory that is not fresh, or
            names a log whose directory is gone.
    """

    directory_id: str
    fresh: bool
    clean_epoch: int | None
    cut_below_flushed: bool
    checkpoint_lost: bool
    taken: TakenMarker | None = None

    @property
    def trusted(self) -> bool:
        """As far as the directory itself can tell, it lost nothing that it ever reported (R9)."""
        return not (self.fresh or self.cut_below_flushed or self.checkpoint_lost)


def directory_findings(
    found: IdentityFound,
    shutdown: CleanShutdown,
    *,
    cut_below_flushed: Iterable[bool],
    flushed_ends_known: bool,
    missing: Collection[object],
) -> DirectoryFindings:
    """What the steps of opening a directory add up to.

    Args:
        found: The identity.
        shutdown: What the clean-shutdown marker says.
        cut_below_flushed: By log: its recovery ended below its checkpointed flushed end.
        flushed_ends_known: The recovery-point checkpoint could be read.
        missing: Logs that the checkpoint names and of which there is no directory, not even a stray.
    """
    return DirectoryFindings(
        directory_id=found.identity.directory_id,
        fresh=found.fresh,
        clean_epoch=shutdown.epoch,
        taken=shutdown.taken,
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
    taken = findings.taken
    if taken is None or taken.epoch == previous.broker_epoch:
        return None
    if incarnation_tag(previous.incarnation) in taken.takers:
        return None
    return (
        f"the directory was closed in broker epoch {taken.epoch}, and incarnation {previous.incarnation}, "
        f"registered with {previous.broker_epoch}, has not opened it since: it is an older copy"
    )
