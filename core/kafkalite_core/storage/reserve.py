"""A preallocated file that is given up when the disk is full, so that recovery has room to work in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite_core.model.errors import StorageError
from kafkalite_core.storage.disk import append_all, disk_errors, remove_file, sync_directory, sync_file

if TYPE_CHECKING:
    from kafkalite_core.storage.disk import Disk

FILE_NAME: Final = ".reserve"
_CHUNK = bytes(1 << 20)


class Reserve:
    """The reserve of one data directory.

    Args:
        disk: The data directory.
        size: Bytes held back.
    """

    __slots__ = ("_disk", "held", "size")

    def __init__(self, disk: Disk, size: int) -> None:
        self._disk = disk
        self.size = size
        self.held = False

    def ensure(self) -> bool:
        """Takes the reserve where twice its size is free (or finds it whole); whether it is held now."""
        if self.held or not self.size:
            return self.held
        try:
            with disk_errors(f"reserve {self.size} bytes"):
                if not self._disk.exists(FILE_NAME) and self._disk.free_bytes() < 2 * self.size:
                    return False
                self._fill()
        except StorageError:  # also where there are bytes, and no room for one more file
            remove_file(self._disk, FILE_NAME)
            return False
        self.held = True
        return True

    def _fill(self) -> None:
        file = self._disk.open(FILE_NAME, create=True)
        try:
            have = file.size()
            while have < self.size:
                chunk = memoryview(_CHUNK)[: self.size - have]
                append_all(file, chunk, have, FILE_NAME)
                have += len(chunk)
            sync_file(file, FILE_NAME)
        finally:
            file.close()

    def lend(self) -> bool:
        """Gives the space back where less than that is free; whether it did.

        At a start, which has indexes and checkpoints to write: who was killed on a full disk held it to the end. And
        at a clean stop, whose marker needs room as well.
        """
        return self._disk.free_bytes() < self.size and self.release()

    def release(self) -> bool:
        """Gives the space back to the disk; False when there was none to give."""
        if not self._disk.exists(FILE_NAME):
            return False
        remove_file(self._disk, FILE_NAME)
        sync_directory(self._disk, "")
        self.held = False
        return True
