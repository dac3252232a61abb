"""A length or a count that lies, wherever it stands in a message, costs neither memory nor time."""

import contextlib
import random
import tracemalloc
from time import thread_time
from uuid import UUID

import pytest

from kafkalite_core.protocol.errors import ProtocolError
from kafkalite_core.protocol.schema.notation import Array, Struct
from tests.unit.protocol.messages import CASES, DIRECTIONS, FUZZED, FUZZED_IDS, decode, encode, module_of, struct_of

# What an int32, an int16 and a varint become when they announce far more than there is; and null.
LIES = [
    b"\x7f\xff\xff\xff",
    b"\x00\x01\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x08",
    b"\xff\xff\xff\xff",
    b"\x00",
]
MEMORY_MAX = 1 << 20
SAMPLES = {
    "bool": True,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uuid": UUID(int=5),
    "string": "six",
    "sentence": "six",
    "bytes": b"seven",
    "records": b"eight",
    "record_buffers": b"nine",
}


def sample(api, type_, version):
    """A value with every field of the version set and one element in every array."""
    if isinstance(type_, Array):
        return [sample(api, type_.element, version)]
    if isinstance(type_, Struct):
        fields = {field.name: sample(api, field.type, version) for field in type_.fields if version in field.versions}
        return getattr(module_of(api), type_.name)(**fields)
    return SAMPLES[type_]


@pytest.mark.parametrize(("api", "version", "kind"), FUZZED, ids=FUZZED_IDS)
def test_a_lie_anywhere_in_a_message_allocates_nothing_for_it(api, version, kind):
    encoded = encode(api, kind, sample(api, struct_of(api, kind), version), version)
    assert decode(api, kind, encoded, version) == sample(api, struct_of(api, kind), version)
    tracemalloc.start()
    try:
        for lie in LIES:
            for position in range(len(encoded)):
                with contextlib.suppress(ProtocolError):
                    decode(api, kind, encoded[:position] + lie + encoded[position + len(lie) :], version)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", DIRECTIONS)
def test_random_bytes_of_every_length_are_read_quickly_or_refused(kind):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    cases = [(api, version) for api, version, its_kind in CASES if its_kind == kind]
    slowest = 0.0
    for _ in range(40):
        for api, version in cases:
            # Zeros and small numbers make counts and lengths that fit, so that the decoder gets on.
            data = bytes(dice.choice((0, 0, 0, 1, 2, 3, dice.randrange(256))) for _ in range(dice.randrange(400)))
            start = thread_time()
            with contextlib.suppress(ProtocolError):
                decode(api, kind, data, version)
            slowest = max(slowest, thread_time() - start)  # not what others did meanwhile
    assert slowest < 1
