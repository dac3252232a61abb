"""What a data directory knows of its last registration, and what that proves when the store has lost it (R9, S2).

The registrations of brokers are in their `KafkaLiteBroker`s, which go with the cluster; the status of topics and the
disks stay. So that the cluster may be made again, every broker writes its registration into its directory, durably,
before anything is reported under it. Invariant of the file, for the directory D that it is in and names:

    the file says (e, t)   =>  D was registered with broker epoch e and trustedSince t, and no entry of an ISR or ELR
                               names a later epoch of this broker unless another directory (or a later state of D,
                               where this is an older copy) was registered with it
    t <= x <= e, and D has lost nothing as far as its recovery can tell
                           =>  everything that D reported as flushed in broker epoch x is still on it

So entries with epochs in [t, e] count (`Registration.adopted`), and those above e do not: nobody knows whose they are.
A directory that is new, that has lost something (it gets another id then), or whose file is missing or unreadable,
adopts nothing: absence of evidence denies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from kafkalite_core.model.cluster import Adopted, Registration
from kafkalite_core.model.foreign_json import parse_json
from kafkalite_core.storage.disk import read_file, replace_file
from kafkalite_core.storage.identity import restart_verdict

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Disk
    from kafkalite_core.storage.identity import DirectoryFindings, RestartVerdict

LAST_REGISTRATION_FILE: Final = "registration"
ADOPTED_MAX: Final = 8
"""So many lost registrations are remembered, the latest ones. Each makes way for the next once its entries are gone."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRegistration:
    """The file's content: of a registration, what says which entries count.

    Attributes:
        directory_id: The directory that was registered.
        incarnation: The process that registered it.
        broker_epoch: As in `Registration`; so are the others.
        trusted_since: Lowest broker epoch since which the directory has lost nothing that it reported.
        clean_since: The same for topics with relaxed flush.
        adopted: What it had adopted itself.
    """

    directory_id: str
    incarnation: str
    broker_epoch: int
    trusted_since: int
    clean_since: int
    adopted: tuple[Adopted, ...] = ()

    @classmethod
    def of(cls, registration: Registration) -> LastRegistration:
        """What is to be written down of a registration."""
        return cls(
            directory_id=registration.directory_id,
            incarnation=registration.incarnation,
            broker_epoch=registration.broker_epoch,
            trusted_since=registration.trusted_since,
            clean_since=registration.clean_since,
            adopted=registration.adopted,
        )

    def as_registration(self) -> Registration:
        """The registration, as far as restarts are judged by it."""
        return Registration(
            broker_epoch=self.broker_epoch,
            incarnation=self.incarnation,
            directory_id=self.directory_id,
            trusted_since=self.trusted_since,
            clean_since=self.clean_since,
            host="",
            port=0,
            adopted=self.adopted,
        )

    def encode(self) -> bytes:
        """The file's content: JSON, and its checksum in a line of its own."""
        content: dict[str, Any] = {
            "version": _VERSION,
            "directoryId": self.directory_id,
            "incarnation": self.incarnation,
            "brokerEpoch": self.broker_epoch,
            "trustedSince": self.trusted_since,
            "cleanSince": self.clean_since,
            "adopted": [[one.broker_epoch, one.trusted_since, one.clean_since] for one in self.adopted],
        }
        line = json.dumps(content, sort_keys=True).encode()
        return line + f"\n{crc32c(line):08x}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> LastRegistration | None:
        """Reads the file; None when anything in it is not as it was written."""
        line, _, checksum = data.partition(b"\n")
        if checksum != f"{crc32c(line):08x}\n".encode():
            return None
        try:
            content = parse_json(line)
            if content["version"] != _VERSION:
                return None
            return cls(
                directory_id=str(content["directoryId"]),
                incarnation=str(content["incarnation"]),
                broker_epoch=int(content["brokerEpoch"]),
                trusted_since=int(content["trustedSince"]),
                clean_since=int(content["cleanSince"]),
                adopted=tuple(
                    Adopted(broker_epoch=int(epoch), trusted_since=int(trusted), clean_since=int(clean))
                    for epoch, trusted, clean in content["adopted"]
                ),
            )
        except (ValueError, KeyError, TypeError):
            return None


def note_registration(disk: Disk, registration: Registration) -> None:
    """Durable before anything is reported under this registration. Raises `StorageError`, `DiskFailure`.

    With no room for it the older file stays: then less is proven, and nothing wrong.
    """
    replace_file(disk, LAST_REGISTRATION_FILE, LastRegistration.of(registration).encode())


def last_registration(disk: Disk) -> LastRegistration | None:
    """What the directory knows of its last registration, whichever id it has by now; None when it knows nothing."""
    data = read_file(disk, LAST_REGISTRATION_FILE)
    return None if data is None else LastRegistration.decode(bytes(data))


def judged_by(
    stored: Registration | None, last: LastRegistration | None, findings: DirectoryFindings
) -> Registration | None:
    """The registration by which a restart is judged: that of the store, or a later one that only the directory knows.

    A store that was restored may show an earlier one of the same directory (S11). What happened to the directory since
    is in its file: that it was closed in order under the later epoch, which else would look like another past, or that
    it was found to be an older copy. No other directory has been registered after the one in the store, or that one
    would be there.
    """
    if stored is None or last is None or stored.directory_id != findings.directory_id:
        return stored
    if last.directory_id != findings.directory_id or last.broker_epoch <= stored.broker_epoch:
        return stored
    return last.as_registration()


def adopted(
    previous: Registration | None,
    findings: DirectoryFindings,
    last: LastRegistration | None,
    verdict: RestartVerdict,
    new_epoch: int,
) -> tuple[Adopted, ...]:
    """The lost registrations whose entries count for the registration with `new_epoch`.

    previous is known      =>  what it had adopted, as long as the directory is trusted (`previous`: see `judged_by`)
    previous is not known  =>  the last one that the directory knows of, and what that had adopted, if a restart after
                               that registration would be trusted (`restart_verdict`)

    For topics with relaxed flush none of them counts after an unclean end: the clean-shutdown marker has to be there.
    """
    if previous is not None:
        found = previous.adopted
    elif last is not None:
        verdict = restart_verdict(last.as_registration(), findings, new_epoch)
        own = Adopted(broker_epoch=last.broker_epoch, trusted_since=last.trusted_since, clean_since=last.clean_since)
        found = (*last.adopted, own)[-ADOPTED_MAX:]
    else:
        return ()
    if verdict.trusted_since == new_epoch:
        return ()
    if verdict.clean_since < new_epoch:
        return found
    return tuple(replace(one, clean_since=one.broker_epoch + 1) for one in found)
