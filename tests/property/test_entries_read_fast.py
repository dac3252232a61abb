"""An entry of a topic's status is read in one go where it is as usual: the same comes out as field by field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.resources import topics
from kafkalite_core.resources.fields import Fields, ResourceError

WHOLE = st.integers(-(2**70), 2**70)
ODD = st.one_of(
    st.none(), st.booleans(), WHOLE, st.floats(allow_nan=False), st.text(max_size=3), st.just([]), st.just({})
)
NUMBERS = st.one_of(st.lists(WHOLE, max_size=3), st.lists(WHOLE, max_size=1), st.lists(ODD, max_size=3), ODD)
NUMBER = st.one_of(WHOLE, WHOLE, WHOLE, ODD)
ENTRIES = st.fixed_dictionaries(
    {"leaderEpoch": NUMBER, "partitionEpoch": NUMBER},
    optional={
        "leader": NUMBER,
        "minIsr": NUMBER,
        "replicas": NUMBERS,
        "isr": NUMBERS,
        "isrBrokerEpochs": NUMBERS,
        "elr": NUMBERS,
        "elrBrokerEpochs": NUMBERS,
        "adding": NUMBERS,
        "removing": NUMBERS,
        "leaderRecoveryState": st.one_of(st.sampled_from(["Recovered", "Recovering"]), ODD),
        "unknown": ODD,
    },
)


def told(read, entry):
    try:
        return read(Fields(entry, "entry"))
    except ResourceError as error:
        return str(error)


@given(ENTRIES)
def test_in_one_go_and_field_by_field_are_the_same(entry):
    found, wanted = told(topics.parse_partition, entry), told(topics._read_partition, entry)
    assert found == wanted
    assert repr(found) == repr(wanted)  # True == 1


def test_half_of_a_surrogate_pair_in_a_name_is_no_reason_to_fail():
    entry = {"leaderEpoch": 1, "partitionEpoch": 2, "\ud800": 3}
    assert told(topics.parse_partition, entry) == told(topics._read_partition, entry)
