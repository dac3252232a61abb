"""A status is heard whatever the spec says: with the last spec of the object that could be read."""

import pytest

from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.readable import PROBLEM_LENGTH_MAX, ReadableSpecs
from kafkalite_core.resources.topics import parse_entries, parse_topic
from tests.unit.resources.builders import partition_json, topic_object


def status(leader=0, epoch=4):
    return {"topicId": "id", "partitions": {"0": partition_json(leader, leader_epoch=epoch)}}


BAD = {"replicaAssignment": {"p0": [0]}, "config": {"retention.ms": "9"}}


def bad(**changes):
    return topic_object(**{"spec": BAD, "status": status(1, 5), "generation": 2, "version": "8", **changes})


def test_a_status_is_heard_under_the_last_spec_that_could_be_read():
    specs = ReadableSpecs()
    good = topic_object(spec={"config": {"retention.ms": "5"}}, status=status())
    assert specs.read(good, parse_topic) == (parse_topic(good), good, "")
    shown = bad(annotations={"a": "b"}, deletionTimestamp="2026-01-02T00:00:00Z")
    reading = specs.read(shown, parse_topic)
    assert "replicaAssignment.p0: 'p0' is not a partition number" in reading.problem
    assert (reading.value.partitions[0].leader, reading.value.partitions[0].leader_epoch) == (1, 5)
    assert reading.value.config == {"retention.ms": "5"}
    assert reading.value.generation == 1, "nobody may tell that the newest spec was acted on"
    assert reading.value.resource_version == "8"
    assert reading.value.deleting
    assert reading.obj["metadata"]["annotations"] == {"a": "b"}
    assert shown["metadata"]["generation"] == 2, "what was read is not changed"
    again = specs.read(bad(status=status(2, 6), version="9"), parse_topic)
    assert (again.value.partitions[0].leader, again.value.generation, bool(again.problem)) == (2, 1, True)
    mended = specs.read(topic_object(status=status(2, 6), generation=3, version="10"), parse_topic)
    assert (mended.value.generation, mended.value.config, mended.problem) == (3, {}, "")


def test_without_an_earlier_spec_it_is_not_understood():
    specs = ReadableSpecs()
    specs.read(topic_object(status=status(), uid="another"), parse_topic)
    for attempt in (specs, ReadableSpecs()):
        with pytest.raises(ResourceError, match="is not a partition number"):
            attempt.read(bad(), parse_topic)
    with pytest.raises(ResourceError, match="not a Kubernetes object"):
        specs.read(["x"], parse_topic)


def test_an_unreadable_status_is_what_is_told():
    specs = ReadableSpecs()
    specs.read(topic_object(status=status()), parse_topic)
    with pytest.raises(ResourceError, match="topicId is not a string"):
        specs.read(topic_object(status={"topicId": 5}), parse_topic)
    with pytest.raises(ResourceError, match="partition number"):
        specs.read(bad(status={"topicId": 5}), parse_topic)


def test_what_is_gone_is_forgotten():
    specs = ReadableSpecs()
    for forget in (lambda: specs.forget("uid-1"), lambda: specs.keep([])):
        specs.read(topic_object(status=status()), parse_topic)
        specs.keep(["uid-1", "uid-2"])
        assert specs.read(bad(), parse_topic).problem
        forget()
        with pytest.raises(ResourceError):
            specs.read(bad(), parse_topic)


def test_whatever_is_raised_is_about_that_object():
    def defect(_obj):
        raise AttributeError("x" * 9999)

    with pytest.raises(ResourceError, match="AttributeError: xxx") as raised:
        ReadableSpecs().read(topic_object(), defect)
    assert len(str(raised.value)) == PROBLEM_LENGTH_MAX
    assert isinstance(raised.value.__cause__, AttributeError)


def test_entries_are_read_whatever_the_spec_says():
    uid, entries = parse_entries(bad())
    assert (uid, entries[0].leader, entries[0].isr) == ("uid-1", 1, (IsrEntry(0, 7), IsrEntry(1, 8)))
    assert parse_entries(topic_object()) == ("uid-1", {})


@pytest.mark.parametrize("key", ["p0", "", "-1", "1" * 10, "9" * 4400, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_a_key_that_is_no_partition_number_is_refused_in_few_words(key):
    for wrong in (bad(spec={"replicaAssignment": {key: [0]}}), bad(spec={}, status={"partitions": {key: {}}})):
        with pytest.raises(ResourceError, match="is not a partition number") as raised:
            parse_topic(wrong)
        assert len(str(raised.value)) < 300
