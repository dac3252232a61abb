"""Compression for tests; the core takes it as a function."""

import gzip

from aiokafka import codec

from kafkalite_core.protocol.record_batch import CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD

COMPRESSORS = {
    CODEC_GZIP: gzip.compress,
    CODEC_SNAPPY: codec.snappy_encode,
    CODEC_LZ4: codec.lz4_encode,
    CODEC_ZSTD: codec.zstd_encode,
}
DECOMPRESSORS = {
    CODEC_GZIP: gzip.decompress,
    CODEC_SNAPPY: codec.snappy_decode,
    CODEC_LZ4: codec.lz4_decode,
    CODEC_ZSTD: codec.zstd_decode,
}


def compress(codec_id, data):
    return COMPRESSORS[codec_id](data)


def decompress(codec_id, data):
    return DECOMPRESSORS[codec_id](bytes(data))
