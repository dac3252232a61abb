"""The evidence that a fault bit is counted from neighbouring states of the objects."""

import json
import threading

import pytest

from tests.chaos.metadata_log import MetadataLog, WatchError, changes


def topic(isr=(0, 1, 2), epoch=4, name="chaos", version="1", uid="u", **partitions) -> dict:
    entry = {"leader": isr[0], "leaderEpoch": epoch, "replicas": [0, 1, 2], "isr": list(isr)}
    entry |= {"isrBrokerEpochs": [1 for _ in isr]}
    metadata = {"name": name, "uid": uid, "resourceVersion": version}
    return {"metadata": metadata, "status": {"partitions": {"0": entry} | partitions}}


def broker(epoch=3, fenced=-1, name="b") -> dict:
    metadata = {"name": name, "uid": "u", "resourceVersion": "1"}
    status = {"registration": {"brokerEpoch": epoch}, "fencing": {"fencedEpoch": fenced}}
    return {"metadata": metadata, "spec": {"brokerId": 2}, "status": status}


def pod(restarts: int) -> dict:
    metadata = {"name": "p", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "status": {"containerStatuses": [{"restartCount": restarts}]}}


def test_a_raised_leader_epoch_is_an_election():
    assert changes("kafkalitetopics", topic(epoch=4), topic(epoch=6)) == {"elections/chaos": 2}


def test_a_member_that_leaves_the_isr_is_counted_by_topic_and_by_broker():
    seen = changes("kafkalitetopics", topic(), topic(isr=(0, 2)))
    assert seen == {"isr_shrinks/chaos": 1, "left_isr/1": 1}


def test_a_member_that_comes_back_is_a_growth():
    assert changes("kafkalitetopics", topic(isr=(0,)), topic()) == {"isr_growths/chaos": 1}


def test_nothing_is_counted_when_nothing_was_known_before():
    assert changes("kafkalitetopics", None, topic()) == {}
    assert changes("kafkalitebrokers", None, broker()) == {}
    assert changes("pods", None, pod(3)) == {}


def test_what_did_not_change_does_not_count():
    assert changes("kafkalitetopics", topic(), topic()) == {}
    assert changes("kafkalitebrokers", broker(), broker()) == {}
    assert changes("pods", pod(1), pod(1)) == {}


def test_registrations_fencings_and_restarts():
    assert changes("kafkalitebrokers", broker(3), broker(5)) == {"incarnations/2": 1}
    assert changes("kafkalitebrokers", broker(3), broker(3, fenced=3)) == {"fencings/2": 1}
    assert changes("pods", pod(1), pod(3)) == {"restarts/p": 2}


class OneTopic:
    """An API server that lists one state, breaks the watch, and then lists the next."""

    def __init__(self, *states: dict) -> None:
        self._states = list(states)
        self.drained = threading.Event()

    def list(self, plural: str) -> dict:
        items = []
        if plural == "kafkalitetopics":
            items = [self._states[0]] if self._states[0] else []
            if len(self._states) > 1:
                self._states.pop(0)
            else:
                self.drained.set()
        return {"items": items, "metadata": {"resourceVersion": "1"}}

    def watch(self, plural: str, resource_version: str, *, timeout_s: float):
        if plural == "kafkalitetopics" and not self.drained.is_set():
            raise OSError("cut")
        threading.Event().wait(0.05)
        yield from ()


def follow(tmp_path, *states: dict) -> tuple[MetadataLog, list[dict]]:
    api = OneTopic(*states)
    log = MetadataLog(api, tmp_path / "metadata.jsonl")
    log.start()
    assert api.drained.wait(5)
    assert log.wait(lambda: True, 1)
    log.sync()
    lines = [json.loads(text) for text in (tmp_path / "metadata.jsonl").read_text().splitlines()]
    log.end()
    log.join()
    return log, [line for line in lines if line["kind"] == "kafkalitetopics"]


def test_what_was_missed_while_the_watch_was_broken_is_told_behind_a_mark(tmp_path):
    log, lines = follow(tmp_path, topic(), topic(isr=(0, 1), version="2"), topic(isr=(0, 1), version="2"))
    assert [line["type"] for line in lines][:3] == ["ADDED", "GAP", "MODIFIED"]
    assert log.counts()["isr_shrinks/chaos"] == 1


def test_an_object_that_is_gone_after_a_gap_was_deleted(tmp_path):
    log, lines = follow(tmp_path, topic(), {}, {})
    assert [line["type"] for line in lines][:3] == ["ADDED", "GAP", "DELETED"]
    assert log.objects("kafkalitetopics") == {}


def test_another_object_of_the_same_name_is_not_compared(tmp_path):
    log, _ = follow(tmp_path, topic(), topic(isr=(0,), epoch=9, version="5", uid="other"), topic(version="5"))
    assert log.counts()["elections/chaos"] == 0


class Quiet:
    """An API server that lists one topic and whose watch of topics delivers these events and then nothing."""

    def __init__(self, listed: dict, *events: dict) -> None:
        self.listed, self._events = listed, events

    def list(self, plural: str) -> dict:
        items = [self.listed] if plural == "kafkalitetopics" else []
        return {"items": items, "metadata": {"resourceVersion": "1"}}

    def watch(self, plural: str, resource_version: str, *, timeout_s: float):
        yield from self._events if plural == "kafkalitetopics" else ()
        while True:
            threading.Event().wait(0.05)
            yield {"type": "BOOKMARK", "object": {}}


def test_a_watch_that_has_ended_is_told_to_who_goes_by_it(tmp_path):
    """What is known then stays as it was, and looks whole for ever."""
    senseless = topic(version="2")
    del senseless["status"]["partitions"]["0"]["leaderEpoch"]
    log = MetadataLog(Quiet(topic(), {"type": "MODIFIED", "object": senseless}), tmp_path / "metadata.jsonl")
    log.start()
    with pytest.raises(WatchError, match="watch of kafkalitetopics has ended: KeyError"):
        log.wait(lambda: False, 10)
    with pytest.raises(WatchError):
        log.wait(lambda: True, 10)
    with pytest.raises(WatchError):
        log.sync()
    log.end()


def test_what_the_server_has_and_no_watch_delivered_is_missing_in_the_record(tmp_path):
    api = Quiet(topic())
    log = MetadataLog(api, tmp_path / "metadata.jsonl")
    log.start()
    log.sync()
    api.listed = topic(isr=(0,), version="2")
    with pytest.raises(WatchError, match="not recorded after 0 s: kafkalitetopics chaos"):
        log.sync(0.3)
    log.end()
