"""Every API and version against kio, a codec generated from Apache Kafka's own message files; and against garbage."""

import contextlib
from io import BytesIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafkalite_core.protocol.errors import ProtocolError
from tests.unit.protocol.messages import (
    CASE_IDS,
    CASES,
    FUZZED,
    FUZZED_IDS,
    decode,
    encode,
    message,
    struct_of,
    tree,
)

few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
some = settings(few, max_examples=40)


def kio_class(api, version, kind):
    module = load_payload_module(api.key, version, getattr(EntityType, kind))
    return getattr(module, struct_of(api, kind).name)


@pytest.mark.parametrize(("api", "version", "kind"), CASES, ids=CASE_IDS)
@few
@given(data=st.data())
def test_both_directions_agree_with_kio(api, version, kind, data):
    struct = struct_of(api, kind)
    ours = data.draw(message(api, struct, version))
    encoded = encode(api, kind, ours, version)
    expected = tree(struct, ours, version)

    assert tree(struct, decode(api, kind, encoded, version), version) == expected

    kio = kio_class(api, version, kind)
    theirs, size = entity_reader(kio)(encoded, 0)
    assert size == len(encoded)
    assert tree(struct, theirs, version) == expected

    stream = BytesIO()
    entity_writer(kio)(stream, theirs)
    assert tree(struct, decode(api, kind, stream.getvalue(), version), version) == expected


@pytest.mark.parametrize(("api", "version", "kind"), FUZZED, ids=FUZZED_IDS)
@few
@given(data=st.data())
def test_no_prefix_and_no_extension_of_a_message_is_a_message(api, version, kind, data):
    encoded = encode(api, kind, data.draw(message(api, struct_of(api, kind), version)), version)
    for size in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode(api, kind, encoded[:size], version)
    with pytest.raises(ProtocolError):
        decode(api, kind, encoded + bytes(17), version)


@pytest.mark.parametrize(("api", "version", "kind"), FUZZED, ids=FUZZED_IDS)
@some
@given(data=st.binary(max_size=200))
def test_garbage_decodes_or_is_refused(api, version, kind, data):
    with contextlib.suppress(ProtocolError):
        decode(api, kind, data, version)


@pytest.mark.parametrize(("api", "version", "kind"), FUZZED, ids=FUZZED_IDS)
@few
@given(data=st.data())
def test_a_damaged_message_decodes_or_is_refused(api, version, kind, data):
    encoded = bytearray(encode(api, kind, data.draw(message(api, struct_of(api, kind), version)), version))
    for _ in range(data.draw(st.integers(1, 4))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
    with contextlib.suppress(ProtocolError):
        decode(api, kind, bytes(encoded), version)
