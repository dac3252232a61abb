"""Decompression of batches is right for every codec and bounded for every bomb."""

import gzip

import cramjam
import pytest

from kafkalite_broker.compression import DECOMPRESSED_BYTES_MAX, GZIP, LZ4, SNAPPY, ZSTD, decompress
from kafkalite_core.protocol.errors import ProtocolError

DATA = b"the quick brown fox jumps over the lazy dog " * 5000


def xerial(data: bytes) -> bytes:
    """The framing that Java clients use."""
    out = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
    for start in range(0, len(data), 32768):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + 32768]))
        out += len(block).to_bytes(4, "big") + block
    return out


CASES = {
    "gzip": (GZIP, gzip.compress),
    "snappy": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy-java": (SNAPPY, xerial),
    "lz4": (LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (ZSTD, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_what_was_compressed_comes_back(name, data):
    codec, compress = CASES[name]
    assert bytes(decompress(codec, memoryview(compress(data)))) == data


@pytest.mark.parametrize("name", CASES)
def test_a_bomb_is_refused(name):
    codec, compress = CASES[name]
    bomb = compress(bytes(DECOMPRESSED_BYTES_MAX + (1 << 20)))
    with pytest.raises(ProtocolError):
        decompress(codec, memoryview(bomb))


@pytest.mark.parametrize("name", CASES)
def test_a_cut_payload_is_refused(name):
    codec, compress = CASES[name]
    with pytest.raises(ProtocolError):
        decompress(codec, memoryview(compress(DATA))[:-7])


def test_an_unknown_codec_is_refused():
    with pytest.raises(ProtocolError):
        decompress(7, memoryview(b"abc"))
