"""fdatasync by the kernel's own threads, announced on the event loop (Linux AIO, `IOCB_CMD_FDSYNC`, Linux ≥ 4.18).

A flush on a thread of ours costs two hand-overs of the interpreter's lock and two of the processor, which on a busy
broker is more than the flush itself. Here it costs a system call to begin and a readable eventfd to end.
"""

from __future__ import annotations

import ctypes
import os
import platform
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

IN_FLIGHT_MAX: Final = 256
"""Files under way at once; the system allows all processes together 65,536 (fs.aio-max-nr)."""

# include/uapi/asm-generic/unistd.h and arch/x86/entry/syscalls/syscall_64.tbl: setup, destroy, submit, getevents.
_SYSTEM_CALLS: Final = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_FDSYNC: Final = 3
_RESULT_TO_EVENTFD: Final = 1
# struct iocb: data, key, rw_flags, opcode, priority, descriptor, buffer, bytes, offset, reserved, flags, eventfd.
_CONTROL_BLOCK: Final = Struct("<QIIHhIQQqQII")
# struct io_event: data, control block, result, second result.
_EVENT: Final = Struct("<QQqq")


class KernelSync:
    """Syncs files without threads. Everything happens on the loop's thread.

    Raises `OSError` when the system does not offer it (no Linux, another architecture, forbidden, no room).

    Args:
        loop: Told of the ends.
        in_flight_max: Files under way at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        numbers = _SYSTEM_CALLS.get(platform.machine())
        if numbers is None or platform.system() != "Linux":
            raise OSError(f"no asynchronous fdatasync on {platform.system()} {platform.machine()}")
        self._setup, self._destroy, self._submit, self._get_events = numbers
        self._loop = loop
        self._system_call = ctypes.CDLL(None, use_errno=True).syscall
        self._system_call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._call(self._setup, ctypes.c_uint(in_flight_max), ctypes.byref(self._context))
        self._blocks = ctypes.create_string_buffer(_CONTROL_BLOCK.size * in_flight_max)
        start = ctypes.addressof(self._blocks)
        addresses = [start + index * _CONTROL_BLOCK.size for index in range(in_flight_max)]
        self._addresses = (ctypes.c_void_p * in_flight_max)(*addresses)
        events = ctypes.create_string_buffer(_EVENT.size * in_flight_max)
        self._events = memoryview(events)
        self._get_all = (
            ctypes.c_long(self._get_events), self._context, ctypes.c_long(0), ctypes.c_long(in_flight_max), events, None
        )  # fmt: skip
        self._free = list(range(in_flight_max))
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._eventfd, self._ended)

    @property
    def free(self) -> int:
        """How many files can be given now."""
        return len(self._free)

    def begin(self, descriptors: Sequence[int], ended: Callable[[int], None]) -> int:
        """Begin to sync files, at most `free` of them; the descriptors may be closed at once, the kernel has the files.

        Returns how many were taken, from the front; for each of them `ended` is called once, on the loop, with 0 or an
        errno. The others are for somebody else: their file system may not have it.
        """
        assert len(descriptors) <= len(self._free), "more files than there is room for"
        places = self._free[-len(descriptors) :] if descriptors else []
        pointers = (ctypes.c_void_p * len(places))()
        for number, (place, descriptor) in enumerate(zip(places, descriptors, strict=True)):
            _CONTROL_BLOCK.pack_into(
                self._blocks, place * _CONTROL_BLOCK.size,
                place, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _RESULT_TO_EVENTFD, self._eventfd,
            )  # fmt: skip
            pointers[number] = self._addresses[place]
        try:
            taken = self._call(self._submit, self._context, ctypes.c_long(len(places)), pointers)
        except OSError:
            return 0
        for place in places[:taken]:
            self._waiting[place] = ended
        del self._free[len(self._free) - len(places) :]
        self._free.extend(places[taken:])
        return taken

    def _ended(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        # Room for all that can be under way: one call has every end there is.
        got = self._system_call(*self._get_all)
        if got < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        ends = list(_EVENT.iter_unpack(self._events[: got * _EVENT.size]))
        calls = [(self._waiting.pop(place), result) for place, _, result, _ in ends]
        self._free.extend(place for place, *_ in ends)
        for ended, result in calls:
            ended(-result if result < 0 else 0)

    def _call(self, number: int, *arguments: object) -> int:
        result = self._system_call(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(result)

    def close(self) -> None:
        """Hear of nothing any more. What is under way goes on; the kernel takes its part back when the process ends."""
        if self._eventfd < 0:
            return
        self._loop.remove_reader(self._eventfd)
        if not self._waiting:
            self._call(self._destroy, self._context)  # waits, if there is anything to wait for
        os.close(self._eventfd)
        self._eventfd = -1


def kernel_sync_for(loop: asyncio.AbstractEventLoop) -> KernelSync | None:
    """A `KernelSync` where the system has it, else None (then threads sync the files)."""
    try:
        return KernelSync(loop)
    except OSError:
        return None
