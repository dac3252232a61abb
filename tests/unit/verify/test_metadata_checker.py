"""Histories of objects: every rule of a partition entry and of a broker is found broken when it is, and only then."""

import itertools
import json

import pytest

from kafkalite_cli.verify.history import HistoryError
from kafkalite_cli.verify.metadata_checker import check_changes, check_metadata
from kafkalite_cli.verify.metadata_history import Change, in_store_order
from kafkalite_core.model.partition import IsrEntry
from kafkalite_core.resources.members import render_members

SECOND_US = 1_000_000


def entry(leader=0, leader_epoch=1, partition_epoch=1, isr=((0, 1), (1, 2), (2, 3)), elr=(), replicas=(0, 1, 2)):
    return {
        "leader": leader,
        "leaderEpoch": leader_epoch,
        "partitionEpoch": partition_epoch,
        "minIsr": 2,
        "replicas": list(replicas),
        **render_members("isr", [IsrEntry(*each) for each in isr]),
        **render_members("elr", [IsrEntry(*each) for each in elr]),
    }


class Store:
    """Objects that change one after another; `changes` is what a watch of all kinds records."""

    def __init__(self, *, namespace="default", cluster="kafkalite", versions=None):
        self.changes = []
        self.namespace, self.cluster_name = namespace, cluster
        self.versions = versions or itertools.count(100)
        self.at_us = 0

    def put(self, kind, name, uid, spec, status, type_="MODIFIED", annotations=None):
        version = str(next(self.versions))
        metadata = {"name": name, "uid": uid, "resourceVersion": version, "annotations": annotations or {}}
        metadata["namespace"] = self.namespace
        obj = {
            "apiVersion": "kafkalite.io/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }
        self.changes.append(Change(at_us=self.at_us, type=type_, object=obj))
        return self

    def topic(self, *entries, uid="t1", topic_id="id1", controller=1, config=None, conditions=(), **options):
        spec = {"partitions": 1, "replicas": 3, "config": config or {}, "clusterRef": {"name": self.cluster_name}}
        partitions = {str(number): each for number, each in enumerate(entries)}
        status = {"topicId": topic_id, "controllerEpoch": controller, "partitions": partitions}
        status["conditions"] = list(conditions)
        return self.put("KafkaLiteTopic", "orders", uid, spec, status, **options)

    def broker(
        self, number, epoch, *, trusted=1, clean=1, fenced=-1, incarnation=None, adopted=(), uid=None, **options
    ):
        registration = {
            "brokerEpoch": epoch,
            "incarnation": incarnation or f"i{epoch}",
            "directoryId": "d",
            "trustedSince": trusted,
            "cleanSince": clean,
            "state": "Running",
            "adopted": list(adopted),
        }
        status = {"registration": registration, "fencing": {"fencedEpoch": fenced}}
        spec = {"brokerId": number, "clusterRef": {"name": self.cluster_name}}
        return self.put("KafkaLiteBroker", f"b{number}", uid or f"b{number}", spec, status, **options)

    def cluster(self, epoch=1, config=None):
        return self.put(
            "KafkaLiteCluster", self.cluster_name, "c", {"config": config or {}}, {"controller": {"epoch": epoch}}
        )

    def later(self, seconds):
        self.at_us += seconds * SECOND_US
        return self

    def gap(self):
        self.changes.append(Change(at_us=self.at_us, type="GAP"))
        return self

    def counts(self, **options):
        return check_changes(self.changes, **options).counts


@pytest.fixture
def store():
    """Three brokers with epochs 1 to 3, then a topic whose leader is broker 0."""
    made = Store()
    for number in range(3):
        made.broker(number, number + 1)
    return made.topic(entry(), type_="ADDED").later(60)


FAILED_OVER = entry(1, 2, 2, isr=((1, 2), (2, 3)), elr=())


def test_a_life_without_anomaly(store):
    store.cluster()
    store.broker(0, 1, fenced=1).topic(FAILED_OVER, controller=1)
    store.broker(0, 4, fenced=1).topic(entry(1, 2, 3, isr=((1, 2), (2, 3), (0, 4))))
    store.topic(entry(0, 3, 4, isr=((1, 2), (2, 3), (0, 4))), controller=2)
    store.topic(entry(0, 3, 5, isr=((0, 4), (1, 2)), elr=()))
    store.topic(entry(0, 3, 6, isr=((0, 4),), elr=((1, 2),)), controller=2)
    store.topic(entry(1, 4, 7, isr=((1, 2),), elr=()), controller=2)
    store.topic(entry(-1, 5, 8, isr=((1, 2),)), controller=2)
    store.topic(entry(1, 6, 9, isr=((1, 2),)), controller=2)
    report = check_changes(store.changes)
    assert report.counts == {"controller-epoch-fell": 1}, "the fifth change went back to controller epoch 1"
    assert (report.elections, report.unclean_elections, report.unjudged, report.brokers) == (5, 0, 0, 3)
    assert (report.isr_shrinks, report.isr_expands, report.partition_changes) == (4, 2, 8)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (entry(0, 0, 2), {"leader-epoch-fell"}),
        (entry(0, 1, 0, isr=((0, 1), (1, 2))), {"partition-epoch-fell"}),
        (entry(0, 1, 1, isr=((0, 1), (1, 2))), {"two-changes"}),
        (entry(0, 1, 3, isr=((0, 1), (1, 2))), {"skipped-epoch"}),
        (entry(1, 1, 2), {"leader-without-epoch", "two-leaders"}),
        (entry(1, 2, 2, isr=((0, 1), (2, 3))), {"leader-outside-isr"}),
        (entry(0, 1, 2, isr=((0, 1), (1, 2)), replicas=(0, 2)), {"isr-outside-replicas"}),
        (entry(-1, 2, 2, isr=()), {"empty-isr"}),
        (entry(0, 1, 2, isr=((0, 1), (1, 2)), elr=((1, 2),)), {"elr-wrong"}),
        (entry(0, 1, 2, isr=((0, 1), (1, 2)), elr=((7, 2),)), {"elr-wrong", "elr-from-nowhere"}),
        (entry(0, 1, 2, isr=((0, 1), (1, 9), (2, 3))), {"never-registered"}),
        (entry(1, 2, 2, isr=((1, 9), (2, 3))), {"never-registered", "wrong-broker-epoch"}),
    ],
)
def test_every_rule_of_an_entry(store, after, found):
    assert set(store.topic(after).counts()) == found


def test_a_leader_comes_from_the_isr_or_the_elr(store):
    store.topic(entry(0, 1, 2, isr=((0, 1), (1, 2))))
    store.topic(entry(0, 1, 3, isr=((0, 1),), elr=((1, 2),)))
    store.topic(entry(2, 2, 4, isr=((2, 3),)))
    assert store.counts() == {"unclean-election": 1}
    assert check_changes(store.changes, allowed={"unclean-election"}).ok
    report = check_changes(store.changes)
    assert "neither in the ISR [0] nor in the ELR [1]" in report.examples[0].text
    assert (report.examples[0].name, report.unclean_elections) == ("orders-0", 1)


@pytest.mark.parametrize(
    "permission",
    [
        {"config": {"unclean.leader.election.enable": "true"}},
        {"annotations": {"kafkalite.io/elect-unclean": "0"}},
    ],
    ids=["config", "annotation"],
)
def test_an_unclean_election_may_be_allowed(store, permission):
    store.topic(entry(0, 1, 2, isr=((0, 1),)))
    store.topic(entry(2, 2, 3, isr=((2, 3),)), **permission)
    report = check_changes(store.changes)
    assert report.ok
    assert report.unclean_elections == 1


def test_an_unclean_election_may_be_the_clusters_default_and_not_the_topics(store):
    store.cluster(config={"unclean.leader.election.enable": "true"}).topic(entry(0, 1, 2, isr=((0, 1),)))
    store.topic(entry(2, 2, 3, isr=((2, 3),)))
    assert store.counts() == {}
    store.topic(entry(1, 3, 4, isr=((1, 2),)), config={"unclean.leader.election.enable": "false"})
    assert store.counts() == {"unclean-election": 1}


@pytest.mark.parametrize(("wanted", "accused"), [("1", {0}), ("0, 7", {1}), ("all", set()), ("true", {0, 1})])
def test_an_annotation_allows_an_unclean_election_of_the_partitions_that_it_names(store, wanted, accused):
    before, after = entry(0, 1, 2, isr=((0, 1),)), entry(2, 2, 3, isr=((2, 3),))
    store.topic(before, before).topic(after, after, annotations={"kafkalite.io/elect-unclean": wanted})
    report = check_changes(store.changes)
    assert {example.name for example in report.examples} == {f"orders-{number}" for number in accused}
    assert report.unclean_elections == 2


@pytest.fixture(params=[("other", "kafkalite"), ("default", "second")], ids=["namespace", "name"])
def second(request, store):
    """Another cluster, with the same broker ids and epochs: both count from 1. Its changes come after `store`'s."""
    namespace, cluster = request.param
    made = Store(namespace=namespace, cluster=cluster, versions=store.versions).later(60)
    for number in range(3):
        made.broker(number, number + 1, incarnation=f"second{number}", uid=f"second{number}")
    return made.topic(entry(), uid="second", topic_id="second", type_="ADDED").later(60)


def both(store, second):
    return check_changes([*store.changes, *second.changes])


def test_clusters_that_are_recorded_together_are_judged_by_themselves(store, second):
    store.later(60)
    store.broker(0, 9, fenced=8)
    second.broker(0, 4).topic(entry(0, 2, 2, isr=((0, 4), (1, 2), (2, 3))), uid="second", topic_id="second")
    report = both(store, second)
    assert (report.counts, report.elections, report.brokers) == ({}, 1, 6)
    # The other cluster's broker 0 is registered with epoch 9 and not this one's.
    second.topic(entry(0, 2, 3, isr=((0, 9), (1, 2), (2, 3))), uid="second", topic_id="second")
    assert both(store, second).counts == {"never-registered": 1}


def test_a_clusters_default_is_for_its_own_topics(store, second):
    """Neither does another cluster's default excuse an unclean election, nor take the excuse away."""
    for unclean, counts in (("true", {"unclean-election": 1}), ("false", {})):
        second.cluster(config={"unclean.leader.election.enable": "false" if unclean == "true" else "true"})
        store.cluster(config={"unclean.leader.election.enable": unclean})
        for leader, at in ((0, 2), (2, 3)):
            after = entry(leader, at - 1, at, isr=((leader, leader + 1),))
            second.topic(after, uid="second", topic_id="second")
        changes = [*store.changes[-1:], *second.changes]
        assert check_changes(changes).counts == counts, unclean
        del second.changes[-3:]


def test_an_empty_disk_is_not_elected(store):
    store.broker(1, 4, trusted=4)
    store.topic(entry(1, 2, 2, isr=((1, 4), (2, 3))))
    assert store.counts() == {"unclean-election": 1}
    [found] = check_changes(store.changes).examples
    assert "its entry had broker epoch 2, and its disk has lost data before epoch 4" in found.text


@pytest.mark.parametrize(("last", "anomalies"), [(2, {}), (1, {"unclean-election": 1})])
def test_a_registration_that_only_the_directory_remembers_counts_up_to_its_epoch(store, last, anomalies):
    former = {"brokerEpoch": last, "trustedSince": 1, "cleanSince": 1}
    store.topic(entry())
    store.broker(1, 4, trusted=4, adopted=[former])
    store.topic(entry(leader=1, leader_epoch=2, partition_epoch=2, isr=((1, 4), (2, 3))))
    assert store.counts() == anomalies


def test_an_unclean_restart_matters_while_acknowledgements_need_not_wait_for_the_disk(store):
    store.broker(1, 4, clean=4)
    elected = entry(1, 2, 2, isr=((1, 4), (2, 3)))
    relaxed = {"config": {"flush.messages": "1000"}}
    tightening = {"conditions": [{"type": "DurableFlush", "status": "False", "reason": "Tightening"}]}
    for state, counts in (
        ({}, {}),
        (relaxed, {}),  # the operator has not said so: brokers flush until it has
        (relaxed | tightening, {"unclean-election": 1}),
        (tightening, {"unclean-election": 1}),
    ):
        assert store.topic(elected, **state).counts() == counts, state
        store.changes.pop()


def test_a_leader_is_elected_with_its_registered_broker_epoch(store):
    store.broker(1, 4)
    stale = entry(1, 2, 2, isr=((1, 2), (2, 3)))
    assert Store.counts(store.later(5).topic(stale)) == {}, "the broker registered while the operator looked"
    store.changes.pop()
    assert store.later(6).topic(stale).counts() == {"wrong-broker-epoch": 1}


def test_a_fenced_broker_is_not_elected(store):
    store.broker(1, 2, fenced=2)
    assert Store.counts(store.later(5).topic(FAILED_OVER)) == {}, "a moment ago it was not fenced"
    store.changes.pop()
    assert store.later(6).topic(FAILED_OVER).counts() == {"fenced-leader": 1}


def test_two_leaders_in_one_epoch_are_found_in_whatever_object(store):
    store.topic(entry(), type_="DELETED")
    store.topic(entry(2, 1, 1), uid="t2", type_="ADDED")
    assert store.counts() == {"two-leaders": 1}


def test_another_topic_of_the_name_begins_anew(store):
    store.topic(entry(), type_="DELETED")
    store.topic(entry(2, 0, 0), uid="t2", topic_id="id2", controller=0, type_="ADDED")
    assert store.counts() == {}


def test_objects_keep_what_they_must(store):
    store.topic(entry(), entry(), topic_id="id2", controller=0)
    store.topic(entry(), topic_id="id2", controller=0)
    expected = {"controller-epoch-fell": 1, "topic-id-changed": 1, "partition-vanished": 1}
    assert store.counts() == expected


def test_epochs_of_brokers_and_controllers_never_fall(store):
    store.broker(0, 5, fenced=4).broker(0, 4, fenced=3).cluster(epoch=3).cluster(epoch=2)
    assert store.counts() == {"broker-epoch-fell": 1, "fence-fell": 1, "controller-epoch-fell": 1}


def test_a_broker_object_that_is_made_again_has_nothing_fenced(store):
    store.broker(0, 5, fenced=5).broker(0, 6, fenced=5)
    store.broker(0, 6, fenced=5, type_="DELETED")
    store.broker(0, 7, uid="again", type_="ADDED").broker(0, 7, uid="again", fenced=7)
    assert store.counts() == {}
    assert store.broker(0, 8, uid="again", fenced=6).counts() == {"fence-fell": 1}, "of one object it is still found"


def test_no_two_incarnations_share_a_broker_epoch(store):
    store.broker(0, 2)
    store.broker(1, 2, incarnation="other")
    assert store.counts() == {"broker-epoch-reused": 2}


def test_what_a_gap_hides_is_not_judged(store):
    store.gap().topic(entry(2, 4, 9, isr=((2, 7),), elr=((1, 5),)))
    report = check_changes(store.changes)
    assert report.counts == {}
    assert (report.unjudged, report.gaps) == (1, 1)
    store.topic(entry(0, 5, 10, isr=((0, 1),)))
    assert store.counts() == {"unclean-election": 1}, "the watch holds again"
    store.broker(1, 12).topic(entry(0, 5, 11, isr=((0, 1), (1, 6))))
    assert store.counts() == {"unclean-election": 1}, "broker 1 may have had epoch 6 in the gap"
    store.topic(entry(0, 5, 12, isr=((0, 1), (1, 13))))
    assert store.counts() == {"unclean-election": 1, "never-registered": 1}


def test_what_never_falls_does_not_fall_over_a_gap_either(store):
    store.gap().topic(entry(1, 1, 0))
    assert set(store.counts()) == {"partition-epoch-fell", "leader-without-epoch", "two-leaders"}


def test_kinds_are_put_into_the_order_of_the_store(store):
    """The watch of brokers lags: the registration is recorded after the election that names it."""
    store.broker(1, 4).topic(entry(1, 2, 2, isr=((1, 4), (2, 3))))
    late = store.changes.pop(-2)
    store.changes.append(late)
    assert store.counts() == {}
    versions = [change.version for change in in_store_order(store.changes)]
    assert versions == sorted(versions)


def test_listing_an_object_again_changes_nothing(store):
    store.changes.append(store.changes[-1])
    report = check_changes(store.changes)
    assert report.ok
    assert report.partition_changes == 0


def test_recorded_files_are_read_and_bad_lines_named(store, tmp_path):
    path = tmp_path / "metadata.jsonl"
    lines = [
        json.dumps({"at_us": c.at_us, "type": c.type, "object": c.object}) for c in store.topic(FAILED_OVER).changes
    ]
    path.write_text("\n".join([*lines, '{"at_us": 3, "type": "GAP", "object": null}', '{"at_us": 3, "ty']))
    report = check_metadata(path)
    assert report.ok
    assert (report.changes, report.elections, report.gaps) == (5, 1, 0), "a gap at the end hides nothing"
    path.write_text("\n".join([*lines, "{}", ""]))
    with pytest.raises(HistoryError, match="line 6"):
        check_metadata(path)
    path.write_text('{"at_us": 1, "type": "ADDED", "object": {"metadata": {}}}\n')
    with pytest.raises(HistoryError, match="resourceVersion"):
        check_metadata(path)
    with pytest.raises(HistoryError, match="No such file"):
        check_metadata(tmp_path / "absent")
