"""The real disk: descriptors, the lock of a directory, syncs of a whole volume."""

import errno
import os
import subprocess
import sys

import pytest

from kafkalite_broker.log import volume_sync
from kafkalite_broker.log.disk import DirectoryLocked, LocalDisk, LockedDirectory
from kafkalite_core.storage.errors import ReadInterrupted


def test_local_disk(tmp_path):
    disk = LocalDisk(tmp_path)
    disk.makedirs("a/b")
    with pytest.raises(FileNotFoundError):
        disk.open("a/b/x")
    file = disk.open("a/b/x", create=True)
    assert file.append(b"hello") == 5
    file.truncate(2)
    file.append(memoryview(b"llo"))
    file.sync()
    file.drop_cached(0)
    assert (file.pread(99, 0), file.pread(2, 1), file.size()) == (b"hello", b"el", 5)
    os.utime(tmp_path / "a/b/x", ns=(0, 1_700_000_000_123_456_789))
    assert file.modified_ms() == 1_700_000_000_123
    disk.sync_directory("a/b")
    disk.rename("a/b/x", "a/b/y")
    assert disk.list("a/b") == ["y"]
    assert disk.list("") == ["a"]
    file.close()
    file.close()
    with pytest.raises(ReadInterrupted):
        file.pread(1, 0)
    with pytest.raises(ReadInterrupted):
        file.sync()
    disk.remove("a/b/y")
    disk.remove("a/b")
    assert disk.exists("a")
    assert not disk.exists("a/b")
    assert disk.free_bytes() > 0


def test_descriptors_are_bounded_and_files_with_unsynced_bytes_keep_theirs(tmp_path):
    disk = LocalDisk(tmp_path, open_files_max=3)
    dirty = disk.open("dirty", create=True)
    dirty.append(b"x")
    descriptor = dirty._fd
    files = [disk.open(f"f{n}", create=True) for n in range(10)]
    assert disk.open_files <= 3
    assert dirty._fd == descriptor
    for n, file in enumerate(files):
        file.append(bytes([n]))
        file.sync()
    assert [file.pread(1, 0)[0] for file in files] == list(range(10))
    assert disk.open_files <= 3
    dirty.sync()
    disk.open("one more", create=True)
    for file in [dirty, *files]:
        file.close()
    assert disk.open_files <= 1


def test_a_sync_of_the_volume_lets_descriptors_go(tmp_path):
    disk = LocalDisk(tmp_path, open_files_max=3)
    files = [disk.open(f"f{n}", create=True) for n in range(9)]
    for file in files:
        file.append(b"x")
    assert disk.open_files == 9
    number = disk.sync_begins()
    files[0].append(b"written while it runs")
    disk.sync_ended(number)
    disk.open("another", create=True)
    assert disk.open_files == 3
    assert files[0]._fd >= 0, "the sync that has ended does not surely have its last bytes"
    disk.sync_ended(disk.sync_begins())
    for name in ("one more", "and one", "and the last"):
        disk.open(name, create=True)
    assert (disk.open_files, files[0]._fd) == (3, -1)
    assert [file.pread(1, 0) for file in files] == [b"x"] * 9


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_process_without_descriptors_takes_them_from_files_at_rest(tmp_path, monkeypatch, code):
    disk = LocalDisk(tmp_path)
    resting = [disk.open(f"f{n}", create=True) for n in range(4)]
    opening = os.open

    def short(path, flags, *mode):
        if any(file._fd >= 0 for file in resting):
            raise OSError(code, os.strerror(code))
        return opening(path, flags, *mode)

    monkeypatch.setattr(os, "open", short)
    file = disk.open("wanted", create=True)
    file.append(b"here")
    assert file.pread(4, 0) == b"here"
    assert [file._fd for file in resting] == [-1] * 4

    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(code, os.strerror(code))))
    with pytest.raises(OSError, match=os.strerror(code)):
        disk.open("one more", create=True)  # the only other one has bytes that were not synced


def test_only_one_process_holds_a_directory(tmp_path):
    code = (
        "import sys, pathlib; from kafkalite_broker.log.disk import LockedDirectory, DirectoryLocked\n"
        "try: LockedDirectory(pathlib.Path(sys.argv[1]))\n"
        "except DirectoryLocked: sys.exit(3)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with LockedDirectory(tmp_path):
        assert subprocess.run(command, check=False).returncode == 3
        with pytest.raises(DirectoryLocked):
            LockedDirectory(tmp_path)
    assert subprocess.run(command, check=False).returncode == 0


def test_when_a_volume_may_be_synced_as_a_whole(tmp_path, monkeypatch):
    mounts = "none / overlay rw 0 0\n/dev/sdb /data ext4 rw 0 0\n/dev/sdc /my\\040disk xfs rw 0 0\n"
    assert volume_sync.file_system_at(mounts, "/data") == "ext4"
    assert volume_sync.file_system_at(mounts, "/my disk") == "xfs"
    assert volume_sync.file_system_at(mounts, "/other") == ""
    assert volume_sync.kernel_version("5.17.0-rc1") == (5, 17)
    assert volume_sync.kernel_version("strange") == (0, 0)
    disk = LocalDisk(tmp_path)
    assert volume_sync.volume_sync_for(disk) is None  # shares its file system with its parent
    sync = volume_sync.VolumeSync(disk)
    sync.run()
    assert disk.syncs_done == 1
    sync.close()
    with pytest.raises(OSError, match="syncfs"):
        sync.run()
    assert disk.syncs_done == 1
