from hypothesis import given
from hypothesis import strategies as st

from kafkalite_core.resources.naming import broker_id_of, broker_name, is_object_name, is_topic_name, topic_object_name

TOPIC_NAMES = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in {".", ".."})


def test_a_valid_object_name_is_kept():
    assert topic_object_name("orders.v1-eu") == "orders.v1-eu"


def test_a_slug_ends_in_eight_hex_digits_of_the_digest():
    assert topic_object_name("__consumer_offsets") == "consumer-offsets-189fe61b"
    assert topic_object_name("Orders").startswith("orders-")
    assert topic_object_name("___").startswith("topic-")


@given(TOPIC_NAMES)
def test_every_topic_name_has_a_valid_object_name(name):
    assert is_topic_name(name)
    assert is_object_name(topic_object_name(name))


@given(TOPIC_NAMES, TOPIC_NAMES)
def test_different_topics_have_different_objects(left, right):
    assert (topic_object_name(left) == topic_object_name(right)) == (left == right)


def test_names_that_kafka_or_kubernetes_refuse():
    for name in ("", ".", "..", "a b", "ü", "a" * 250):
        assert not is_topic_name(name)
    for name in ("", "A", "-a", "a.", "a..b", "a" * 254, "a_b"):
        assert not is_object_name(name)


def test_broker_id_is_the_ordinal_in_the_name():
    assert broker_id_of("kafkalite", broker_name("kafkalite", 12)) == 12
    for name in (
        "kafkalite-broker-",
        "kafkalite-broker-x",
        "kafkalite-broker-01",
        "other-broker-1",
        "kafkalite-broker--1",
        "kafkalite-broker-" + "9" * 4400,
        "kafkalite-broker-1\n",
    ):
        assert broker_id_of("kafkalite", name) is None
