import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite_core.model.errors import KafkaLiteError
from kafkalite_core.protocol import api_versions, apis, produce
from kafkalite_core.protocol.apis import API
from kafkalite_core.protocol.errors import ErrorCode, ProtocolError
from kafkalite_core.protocol.schema.notation import NEVER_FLEXIBLE

# What the clients need, written down a second time: key -> (advertised, first served, last served, first flexible).
SERVED = {
    0: (0, 3, 10, 9),
    1: (4, 4, 16, 12),
    2: (1, 1, 8, 6),
    3: (0, 0, 12, 9),
    8: (2, 2, 9, 8),
    9: (1, 1, 9, 6),
    10: (0, 0, 4, 3),
    11: (0, 0, 9, 6),
    12: (0, 0, 4, 4),
    13: (0, 0, 5, 4),
    14: (0, 0, 5, 4),
    15: (0, 0, 6, 5),
    16: (0, 0, 5, 3),
    18: (0, 0, 4, 3),
    19: (2, 2, 7, 5),
    20: (1, 1, 6, 4),
    21: (0, 0, 2, 2),
    22: (0, 0, 5, 2),
    23: (2, 2, 4, 4),
    32: (1, 1, 4, 4),
    33: (0, 0, 2, 2),
    35: (1, 1, 4, 2),
    37: (0, 0, 3, 2),
    42: (0, 0, 2, 2),
    43: (0, 0, 2, 2),
    44: (0, 0, 1, 1),
    45: (0, 0, 1, 0),
    46: (0, 0, 0, 0),
    47: (0, 0, 0, NEVER_FLEXIBLE),
    60: (0, 0, 1, 0),
    75: (0, 0, 0, 0),
}


def test_the_table_serves_what_clients_need():
    table = {
        key: (spec.advertised_min, spec.min_version, spec.max_version, spec.flexible_from) for key, spec in API.items()
    }
    assert table == SERVED


def test_a_broker_lists_what_it_has_handlers_for():
    response = apis.api_versions_response(4, keys=[75, 3])
    assert response.api_keys == [api_versions.ApiVersion(3, 0, 12), api_versions.ApiVersion(75, 0, 0)]


def test_an_unknown_version_of_api_versions_is_answered_in_version_zero():
    response = apis.unsupported_api_versions_response()
    body = b"".join(API[18].encode_response(response, 0))
    assert body == bytes.fromhex("0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_the_keys_that_are_served(version):
    keys = {23, 0, 18}
    body = memoryview(b"".join(API[18].encode_response(apis.api_versions_response(version, keys), version)))
    response = API[18].decode_response(body, version)
    assert response.error_code == ErrorCode.NONE
    assert [row.api_key for row in response.api_keys] == [0, 18, 23]
    assert (response.api_keys[0].min_version, response.api_keys[0].max_version) == (0, 10)
    if version < 3:
        assert response.supported_features == []
        assert response.finalized_features == []
    else:
        assert response.supported_features == [api_versions.SupportedFeatureKey("metadata.version", 1, 21)]
        assert response.finalized_features == [api_versions.FinalizedFeatureKey("metadata.version", 21, 21)]
        assert response.finalized_features_epoch == 0


@pytest.mark.parametrize("version", [-1, 0, 2, 11])
def test_versions_outside_the_range_are_refused(version):
    spec = API[0]
    assert not spec.serves(version)
    for call in (spec.decode_request, spec.decode_response):
        with pytest.raises(ProtocolError):
            call(memoryview(b""), version)
    for call, message in (
        (spec.encode_request, produce.ProduceRequest()),
        (spec.encode_response, produce.ProduceResponse()),
    ):
        with pytest.raises(ProtocolError):
            call(message, version)


def test_error_codes_are_complete_and_know_what_clients_retry():
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.is_retriable
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND.is_retriable
    assert not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.is_retriable
    assert ErrorCode.RECORD_TOO_LARGE is ErrorCode.MESSAGE_TOO_LARGE
    assert ErrorCode.name_of(6) == "NOT_LEADER_OR_FOLLOWER"
    assert ErrorCode.name_of(999) == "999"
    assert issubclass(ProtocolError, KafkaLiteError)


def test_the_generated_codec_is_what_the_schema_says():
    root = Path(__file__).resolve().parents[3]
    check = subprocess.run(
        [sys.executable, "-m", "tools.generate_codec", "--check"], cwd=root, capture_output=True, text=True
    )
    assert (check.stdout, check.stderr, check.returncode) == ("", "", 0)
