"""A transport that only remembers, a dispatcher that answers nothing, and a stream of frames between them."""

import asyncio

from kafkalite_broker.server.connection import Connection


class FakeTransport(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.sent = bytearray()
        self.closing = False
        self.reading = True
        self.client_reads = True
        self.unsent_bytes = 0
        self.high = None

    def get_extra_info(self, name, default=None):
        return ("127.0.0.1", 1234) if name == "peername" else default

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high

    def get_write_buffer_size(self):
        return self.unsent_bytes

    def writelines(self, list_of_data):
        for data in list_of_data:
            self.sent += data
            self.unsent_bytes += 0 if self.client_reads else len(data)

    def close(self):
        self.closing = True

    def abort(self):
        self.closing = True

    def is_closing(self):
        return self.closing

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True


class FakeDispatcher:
    def __init__(self):
        self.frames: list = []
        self.accept = True
        self.lost = 0
        self.on_frame = lambda slot: None

    def dispatch(self, frame, slot):
        self.frames.append((bytes(frame), slot))
        self.on_frame(slot)

    def connection_made(self, connection):
        return self.accept

    def connection_lost(self, connection):
        self.lost += 1


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big", signed=True) + payload


def feed(connection: Connection, data: bytes) -> int:
    """As a transport does it: read into what the connection offers, as often as needed. Returns the number of reads."""
    reads = 0
    while data:
        buffer = connection.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        connection.buffer_updated(taken)
        # What a transport holds while it tells of the read, and what is left in the buffer afterwards means nothing.
        buffer[:taken] = b"\xee" * taken if buffer.obj is connection._read_buffer else buffer[:taken]
        del buffer
        data = data[taken:]
        reads += 1
    return reads
