"""A disk that has bytes, and no room for more files of some names."""

import errno

from kafkalite_core.storage.memory_disk import MemoryDisk


class CountedDisk(MemoryDisk):
    """One whose quota of files is used up for names that end so."""

    no_room = ()

    def open(self, path, *, create=False):
        if create and path.endswith(self.no_room or "\0") and not self.exists(path):
            raise OSError(errno.ENOSPC, "injected")
        return super().open(path, create=create)
