"""Decompression of batches is right for every codec and bounded for every bomb; compression is what others can read."""

import gzip
import random

import cramjam
import pytest

from kafkalite_broker.compression import DECOMPRESSED_BYTES_MAX, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from kafkalite_core.protocol.errors import ProtocolError

DATA = b"the quick brown fox jumps over the lazy dog " * 5000
NOISE = random.Random(3).randbytes(200_000)


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


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("data", [b"", b"x", DATA, NOISE], ids=["none", "one", "text", "noise"])
def test_what_is_compressed_here_comes_back(codec, data):
    packed = compress(codec, data)
    assert bytes(decompress(codec, memoryview(packed))) == data
    assert len(packed) < len(data) / 5 or data != DATA


def test_gzip_and_zstd_are_what_any_other_reader_takes():
    assert gzip.decompress(compress(GZIP, DATA)) == DATA
    assert bytes(cramjam.zstd.decompress(compress(ZSTD, DATA))) == DATA


def test_snappy_has_the_framing_of_java_clients():
    assert compress(SNAPPY, DATA) == xerial(DATA)


def test_lz4_is_a_frame_of_independent_blocks_as_kafka_demands_it():
    frame = compress(LZ4, DATA)
    # Magic; version 1, independent blocks, no checksums; blocks of 64 KiB; the checksum of these two bytes.
    assert frame[:7] == bytes.fromhex("04224d18 60 40 82")
    assert frame[-4:] == bytes(4)
    out, position = b"", 7
    while size := int.from_bytes(frame[position : position + 4], "little"):
        block = frame[position + 4 : position + 4 + size]
        out += bytes(cramjam.lz4.decompress_block(block, output_len=min(64 << 10, len(DATA) - len(out))))
        position += 4 + size
    assert position + 4 == len(frame)
    assert out == DATA


def test_an_lz4_block_that_does_not_shrink_is_stored_as_it_is():
    noise = NOISE[:1000]
    frame = compress(LZ4, noise)
    assert frame[7:] == (1000 | 1 << 31).to_bytes(4, "little") + noise + bytes(4)


def test_an_unknown_codec_is_not_compressed():
    with pytest.raises(ProtocolError):
        compress(7, b"abc")
