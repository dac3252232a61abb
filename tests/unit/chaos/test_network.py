"""The rules that cut a network say what they mean, and their counters are read right."""

import json

from tests.chaos.network import EVERYBODY, Drop, Network, address, between, packets, ruleset


def test_hosts_have_addresses_of_their_own():
    assert len({EVERYBODY, *(address(broker) for broker in range(3))}) == 4


def test_a_drop_is_one_way():
    text = ruleset([Drop("10.0.0.1", "10.0.0.2")])
    assert "ip saddr 10.0.0.1 ip daddr 10.0.0.2 counter drop" in text
    assert "ip saddr 10.0.0.2" not in text


def test_between_is_both_ways_and_only_between():
    drops = between(["a"], ["b", "c"])
    assert {(drop.source, drop.target) for drop in drops} == {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}


def test_a_part_of_the_packets_is_chosen_at_random():
    assert Drop("a", "b", 20).text() == "ip saddr a ip daddr b numgen random mod 100 < 20 counter drop"


def test_new_rules_replace_the_old_ones_whether_there_are_any_or_not():
    lines = ruleset([]).splitlines()
    assert lines[:3] == ["table bridge chaos {}", "delete table bridge chaos", "table bridge chaos {"]
    assert not any("drop" in line for line in lines)


def test_the_packets_of_all_rules_are_added_up():
    rules = [
        {"rule": {"expr": [{"match": {}}, {"counter": {"packets": n, "bytes": 1}}, {"drop": None}]}} for n in (3, 4)
    ]
    document = {"nftables": [{"metainfo": {}}, {"table": {}}, {"chain": {}}, *rules]}
    assert packets(json.dumps(document)) == 7
    assert packets(json.dumps({"nftables": [{"table": {}}]})) == 0


def test_namespaces_are_named_by_the_folder(tmp_path):
    one, other = Network(tmp_path / "net-loss-single-201501001"), Network(tmp_path / "net-loss-single-201501002")
    assert one.switch != other.switch
    assert one.name("h") != one.name("0")
    assert one.name("0").startswith(one.tag)
