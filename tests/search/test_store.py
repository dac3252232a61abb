"""The API server, the controller and the registration of the search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalite_core.model.partition import IsrEntry, Partition
from tests.search import api_server, steps
from tests.search.configs import SMALL
from tests.search.parts import Violation
from tests.search.store import decisions, fence, first_store, identity_of, register

FIRST = first_store(isr=3, min_isr=2)


def shrunk(entry: Partition, *broker_ids: int) -> Partition:
    isr = tuple(one for one in entry.isr if one.id in broker_ids)
    return replace(entry, isr=isr, partition_epoch=entry.partition_epoch + 1)


def test_a_patch_lands_on_what_it_was_decided_on_and_on_nothing_else():
    proposed = shrunk(FIRST.entry, 1, 2)
    patch = api_server.operations(FIRST.entry, proposed, by_controller=False)
    assert api_server.patched(FIRST.entry, patch) == proposed
    assert api_server.patched(proposed, patch) is None
    assert api_server.patched(replace(FIRST.entry, leader=2), patch) is None


def test_what_is_no_patch_of_an_entry_is_an_error():
    with pytest.raises(ValueError, match="remove"):
        api_server.patched(FIRST.entry, [{"op": "remove", "path": "/status/partitions/0", "value": None}])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partition_epoch": 1}, "partitionEpoch"),
        ({"leader_epoch": 0}, "leaderEpoch falls"),
        ({"leader": 2}, "within a leader epoch"),
        ({"isr": (IsrEntry(2, 1),)}, "not in the ISR"),
        ({"isr": (IsrEntry(1, 1), IsrEntry(4, 1))}, "others than the replicas"),
        ({"isr": (IsrEntry(1, 2),)}, "another incarnation"),
    ],
)
def test_a_broken_fence_is_named(changes, words):
    after = replace(FIRST.entry, **({"partition_epoch": 2} | changes))
    assert words in api_server.broken_fence(FIRST.entry, after)


def test_a_right_change_breaks_no_fence():
    assert not api_server.broken_fence(FIRST.entry, shrunk(FIRST.entry, 1))


def test_a_patch_without_tests_is_found(monkeypatch):
    """What the tests of a patch would have kept out is a violation once it lands."""
    late = (FIRST.entry, shrunk(FIRST.entry, 1, 2), False)
    operations = api_server.operations(late[0], late[1], by_controller=False)
    loose = [one for one in operations if one["op"] != "test"]
    monkeypatch.setattr(api_server, "operations", lambda *_, **__: loose)
    store = FIRST._replace(entry=shrunk(FIRST.entry, 1, 3))
    assert steps.alive((late,), store) == (late,)
    with pytest.raises(Violation, match="FencesHold"):
        steps.commit(store, late, SMALL["isr"])


def test_every_member_may_be_preferred():
    leaders = {entry.leader for _, entry in decisions(FIRST, 2, any_order=True)}
    assert leaders == {2, 3}
    assert decisions(FIRST, 2, any_order=False) == []


def test_a_fenced_leader_is_replaced():
    found = decisions(fence(FIRST, 1), 2, any_order=True)
    assert {(words, entry.leader) for words, entry in found} == {("elects", 2), ("elects", 3)}


def test_an_empty_disk_registers_once_the_former_one_is_fenced():
    identity = identity_of(FIRST.broker(3), new_directory=True)
    assert register(FIRST, 3, identity) is None
    registered = register(fence(FIRST, 3), 3, identity)
    assert registered is not None
    store, epoch = registered
    assert epoch == store.broker(3).epoch == 2
    assert store.broker(3).alive
    assert store.broker(3).registration.trusted_since == 2


def test_a_process_that_was_fenced_keeps_its_trust():
    identity = identity_of(FIRST.broker(3), new_directory=False, same_process=True)
    store, epoch = register(fence(FIRST, 3), 3, identity, known=1)
    assert epoch == 2
    assert store.broker(3).registration.trusted_since == 1


def test_a_restart_on_the_same_disk_keeps_its_trust_at_once():
    store, epoch = register(FIRST, 3, identity_of(FIRST.broker(3), new_directory=False))
    assert epoch == 2
    assert store.broker(3).registration.trusted_since == 1
    assert store.broker(3).registration.incarnation == "i2"
