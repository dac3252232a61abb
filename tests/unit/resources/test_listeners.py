"""Listeners for clients outside the cluster: their Services, and what clients are told."""

from types import MappingProxyType

import pytest

from kafkalite_core.model.listener import Endpoint
from kafkalite_core.resources.clusters import parse_cluster
from kafkalite_core.resources.fields import ResourceError
from kafkalite_core.resources.listener_addresses import load_balancer_address, node_address, node_port, publish
from kafkalite_core.resources.listener_services import listener_services, with_removals
from kafkalite_core.resources.manifests import broker_config, cluster_settings, infrastructure, services
from tests.unit.resources.builders import cluster_object

INTERNAL = {"name": "plain", "type": "internal", "port": 9092}
NOWHERE = MappingProxyType({})


def settings(*listeners, name="kafkalite", **spec):
    return cluster_settings(cluster_object(name, spec={"listeners": [INTERNAL, *listeners], **spec}))


def external(kind, **configuration):
    return {"name": "ext", "type": kind, "port": 9094, "configuration": configuration}


def by_name(made):
    return {obj["metadata"]["name"]: obj for obj in made if obj["kind"] == "Service"}


def service(name, *, port=0, ingress=()):
    spec = {"ports": [{"port": 9094, **({"nodePort": port} if port else {})}]}
    return {name: {"metadata": {"name": name}, "spec": spec, "status": {"loadBalancer": {"ingress": list(ingress)}}}}


def addresses(published, name="ext"):
    [found] = [each for each in published.listeners if each["name"] == name]
    return {each["broker"]: (each["host"], each["port"]) for each in found["addresses"]}


def test_every_broker_has_a_service_and_there_is_one_to_begin_with():
    made = by_name(infrastructure(settings(external("nodeport")), (0, 1)))
    own, bootstrap = made["kafkalite-broker-1-ext"], made["kafkalite-bootstrap-ext"]
    assert own["spec"] == {
        "type": "NodePort",
        "selector": {"statefulset.kubernetes.io/pod-name": "kafkalite-broker-1"},
        "ports": [{"name": "ext", "port": 9094, "targetPort": 9094}],
        "externalTrafficPolicy": "Cluster",
        "publishNotReadyAddresses": True,
    }
    assert "publishNotReadyAddresses" not in bootstrap["spec"], "clients begin with a broker that is ready"
    assert bootstrap["spec"]["selector"]["kafkalite.io/cluster"] == "kafkalite"
    for each in (own, bootstrap):
        assert each["metadata"]["labels"]["kafkalite.io/listener"] == "ext"
        assert each["metadata"]["ownerReferences"][0]["uid"] == "cluster-uid"


def test_clients_inside_find_no_port_that_sends_them_outside():
    made = by_name(services(settings(external("loadbalancer")), (0,)))
    for name in ("kafkalite-brokers", "kafkalite-bootstrap", "kafkalite-broker-0"):
        assert [port["port"] for port in made[name]["spec"]["ports"]] == [9092, 9404]


def test_what_a_load_balancer_is_asked_for():
    configuration = {
        "class": "example.com/lb",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "externalTrafficPolicy": "Local",
        "annotations": {"external-dns/hostname": "kafka-{nodeId}.example.com", "pod": "{podName}"},
    }
    made = by_name(listener_services(settings(external("loadbalancer", **configuration)), (2,)))
    spec = made["kafkalite-broker-2-ext"]["spec"]
    assert (spec["type"], spec["loadBalancerClass"], spec["externalTrafficPolicy"]) == (
        "LoadBalancer",
        "example.com/lb",
        "Local",
    )
    assert spec["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert made["kafkalite-broker-2-ext"]["metadata"]["annotations"] == {
        "external-dns/hostname": "kafka-2.example.com",
        "pod": "kafkalite-broker-2",
        "kafkalite.io/applied-annotations": "external-dns/hostname,pod",
    }
    bootstrap = made["kafkalite-bootstrap-ext"]["metadata"]["annotations"]
    assert bootstrap["external-dns/hostname"] == "kafka-bootstrap.example.com"


def test_node_ports_are_fixed_where_they_are_given():
    configuration = {"bootstrap": {"nodePort": 32000}, "brokers": [{"broker": 1, "nodePort": 32001}]}
    made = by_name(listener_services(settings(external("nodeport", **configuration)), (0, 1)))
    ports = {name: each["spec"]["ports"][0].get("nodePort") for name, each in made.items()}
    assert ports == {
        "kafkalite-bootstrap-ext": 32000,
        "kafkalite-broker-0-ext": None,
        "kafkalite-broker-1-ext": 32001,
    }


def test_the_longest_names_still_fit():
    made = by_name(listener_services(settings({**external("nodeport"), "name": "e" * 8}, name="c" * 44), (63,)))
    assert max(len(name) for name in made) == 63


def test_annotations_that_are_not_wanted_any_more_are_removed_and_those_of_others_are_not():
    existing = {
        "metadata": {"annotations": {"a": "1", "b": "2", "cloud": "x", "kafkalite.io/applied-annotations": "a,b"}}
    }
    patch = with_removals({"metadata": {"annotations": {"b": "3", "kafkalite.io/applied-annotations": "b"}}}, existing)
    assert patch["metadata"]["annotations"] == {"a": None, "b": "3", "kafkalite.io/applied-annotations": "b"}
    assert with_removals({"metadata": {}}, existing)["metadata"]["annotations"] == {
        "a": None,
        "b": None,
        "kafkalite.io/applied-annotations": None,
    }
    untouched = {"metadata": {}}
    assert with_removals(untouched, {"metadata": {}}) == untouched


def test_what_is_for_load_balancers_alone_goes_with_them():
    balanced = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"], "loadBalancerClass": "x"}
    existing = {"metadata": {}, "spec": balanced}
    wanted = {"kind": "Service", "metadata": {}, "spec": {"type": "NodePort"}}
    removed = {"loadBalancerSourceRanges": None, "loadBalancerClass": None}
    assert with_removals(wanted, existing)["spec"] == {"type": "NodePort", **removed}
    still = {**wanted, "spec": {"type": "LoadBalancer"}}
    assert with_removals(still, existing) == still
    assert with_removals(wanted, {"metadata": {}, "spec": {"type": "NodePort"}}) == wanted


def test_brokers_are_told_where_to_listen_and_nothing_that_may_change():
    listeners = broker_config(settings(external("loadbalancer", advertisedHostTemplate="b{nodeId}")))["listeners"]
    assert listeners == [INTERNAL, {"name": "ext", "type": "loadbalancer", "port": 9094}]


def test_a_load_balancer_is_waited_for_and_then_told():
    wanted = settings(external("loadbalancer"))
    nothing = publish(wanted, (0, 1), {}, NOWHERE)
    assert addresses(nothing) == {}
    assert addresses(nothing, "plain")[1] == ("kafkalite-broker-1.kafkalite-brokers.default.svc", 9092)
    wait = "Service kafkalite-broker-{}-ext has no address yet, which a load balancer of the cluster has to provide"
    assert nothing.waits == (f"listener ext: {wait.format(0)}, {wait.format(1)}",)
    assert (nothing.condition().status, nothing.condition().reason) == ("False", "WaitingForAddresses")
    there = service("kafkalite-broker-0-ext", ingress=[{"ip": "192.0.2.1"}])
    there |= service("kafkalite-broker-1-ext", ingress=[{"hostname": "lb1.example.com", "ip": "192.0.2.2"}])
    there |= service("kafkalite-bootstrap-ext", ingress=[{"ip": "192.0.2.9"}])
    full = publish(wanted, (0, 1), there, NOWHERE)
    assert addresses(full) == {0: ("192.0.2.1", 9094), 1: ("lb1.example.com", 9094)}
    assert (full.waits, full.listeners[1]["bootstrapServers"]) == ((), "192.0.2.9:9094")
    assert full.condition().status == "True"
    assert "ext at 192.0.2.9:9094" in full.condition().message


def test_a_node_port_is_told_with_the_address_of_the_pods_node():
    wanted = settings(external("nodeport"))
    there = service("kafkalite-broker-0-ext", port=31000) | service("kafkalite-broker-1-ext", port=31001)
    published = publish(wanted, (0, 1, 2), there, {"ext": {0: "10.0.0.1"}})
    assert addresses(published) == {0: ("10.0.0.1", 31000)}
    node = "the address of the node of pod kafkalite-broker-1 is not known"
    assert published.waits == (f"listener ext: {node}, Service kafkalite-broker-2-ext has no nodePort yet",)
    assert published.condition("nodes may not be read").message.startswith("nodes may not be read; listener ext")


def test_an_address_that_is_not_found_again_may_stay_and_is_waited_for_all_the_same():
    former = {"ext": {0: Endpoint("10.0.0.9", 31009), 1: Endpoint("10.0.0.2", 31001), 7: Endpoint("gone", 1)}}
    there = service("kafkalite-broker-0-ext", port=31000)
    published = publish(settings(external("nodeport")), (0, 1, 2), there, {"ext": {0: "10.0.0.1"}}, former)
    assert addresses(published) == {0: ("10.0.0.1", 31000), 1: ("10.0.0.2", 31001)}
    assert published.listeners[1]["bootstrapServers"] == "10.0.0.1:31000,10.0.0.2:31001"
    assert "Service kafkalite-broker-1-ext has no nodePort yet" in published.condition().message


def test_a_broker_that_leaves_is_told_while_it_is_reached_and_not_waited_for():
    wanted, there = settings(external("nodeport"), replicas=1), service("kafkalite-broker-0-ext", port=31000)
    there |= service("kafkalite-broker-1-ext", port=31001)
    hosts = {"ext": {0: "10.0.0.1", 1: "10.0.0.2"}}
    assert addresses(publish(wanted, (0, 1), there, hosts)) == {0: ("10.0.0.1", 31000), 1: ("10.0.0.2", 31001)}
    without_pod = publish(wanted, (0, 1), there, {"ext": {0: "10.0.0.1"}})
    assert (addresses(without_pod), without_pod.condition().status) == ({0: ("10.0.0.1", 31000)}, "True")
    del there["kafkalite-broker-1-ext"]
    assert publish(wanted, (0, 1), there, hosts).condition().status == "True"


def test_templates_go_before_what_is_found_and_single_brokers_before_templates():
    configuration = {
        "advertisedHostTemplate": "{podName}.example.com",
        "advertisedPortTemplate": "3909{nodeId}",
        "brokers": [{"broker": 1, "advertisedHost": "special", "advertisedPort": 7}],
    }
    for kind in ("nodeport", "loadbalancer", "internal", "hostport"):
        published = publish(settings(external(kind, **configuration)), (0, 1), {}, NOWHERE)
        assert addresses(published) == {0: ("kafkalite-broker-0.example.com", 39090), 1: ("special", 7)}
        assert published.listeners[1]["bootstrapServers"] == "kafkalite-broker-0.example.com:39090,special:7"


@pytest.mark.parametrize("template", ["0", "70000", "-1", "x{nodeId}", "٣"])
def test_a_template_that_gives_no_port_is_told(template):
    published = publish(settings(external("loadbalancer", advertisedPortTemplate=template)), (0,), {}, NOWHERE)
    assert "advertisedPortTemplate gives broker 0 the port" in published.condition().message


def test_one_address_for_several_brokers_is_told():
    same = external("loadbalancer", advertisedHostTemplate="kafka.example.com")
    condition = publish(settings(same), (0, 1), {}, NOWHERE).condition()
    assert condition.status == "False"
    assert "kafka.example.com:9094 is told for brokers 0 and 1, each of which needs" in condition.message
    assert publish(settings(same, replicas=1), (0,), {}, NOWHERE).condition().status == "True"


def test_a_message_names_a_few_and_counts_the_others():
    message = publish(settings(external("nodeport"), replicas=64), range(64), {}, NOWHERE).condition().message
    assert message.count("Service ") == 5
    assert message.endswith("and 59 more")


def test_a_second_hostport_listener_counts_its_own_ports():
    first = {"name": "a", "type": "hostport", "port": 9092}
    second = {"name": "b", "type": "hostport", "port": 19092, "host": "10.0.0.1"}
    wanted = cluster_settings(cluster_object(spec={"listeners": [first, second]}))
    published = publish(wanted, (0, 2), {}, NOWHERE)
    assert addresses(published, "b") == {0: ("10.0.0.1", 19092), 2: ("10.0.0.1", 19094)}


def test_what_is_read_from_services_and_nodes():
    assert load_balancer_address({}) == ""
    assert load_balancer_address({"status": {"loadBalancer": {"ingress": [{}, {"ip": "192.0.2.1"}]}}}) == "192.0.2.1"
    assert node_port({"spec": {}}) == 0
    listed = [("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("Hostname", "n1"), ("ExternalIP", "192.0.2.1")]
    node = {"status": {"addresses": [{"type": kind, "address": address} for kind, address in listed]}}
    assert node_address(node, "InternalIP") == "10.0.0.1"
    assert node_address(node, "Hostname") == "n1"
    assert node_address(node, "ExternalDNS") == "192.0.2.1", "another one where that type is missing"
    assert node_address({}, "Hostname") == ""


def test_brokers_read_what_was_published():
    published = publish(settings(external("nodeport", advertisedHostTemplate="h")), (), {}, NOWHERE).listeners
    assert parse_cluster(cluster_object(status={"listeners": published})).endpoints == {"plain": {}, "ext": {}}
    entry = {"name": "ext", "addresses": [{"broker": 3, "host": "h", "port": 1}]}
    assert parse_cluster(cluster_object(status={"listeners": [entry]})).endpoints == {"ext": {3: Endpoint("h", 1)}}


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        (external("tls"), "'tls' is not one of: internal, hostport, nodeport, loadbalancer"),
        (
            external("nodeport", loadBalancerSourceRanges="10.0.0.0/8"),
            "loadBalancerSourceRanges is not a list of strings",
        ),
        (external("nodeport", brokers=[{"advertisedHost": "x"}]), "brokers\\[0\\].broker is missing"),
    ],
)
def test_a_mistake_is_told(listener, why):
    with pytest.raises(ResourceError, match=why):
        settings(listener)


def test_brokers_never_talk_to_one_another_through_a_load_balancer():
    with pytest.raises(ResourceError, match="the brokers use the first listener among themselves"):
        cluster_settings(cluster_object(spec={"listeners": [external("loadbalancer")]}))


def test_an_ipv6_address_has_brackets_where_clients_begin():
    nodes = publish(
        settings(external("nodeport")), (0,), service("kafkalite-broker-0-ext", port=31000), {"ext": {0: "fd00::7"}}
    )
    assert [each["bootstrapServers"] for each in nodes.listeners if each["name"] == "ext"] == ["[fd00::7]:31000"]
    assert addresses(nodes) == {0: ("fd00::7", 31000)}
    there = service("kafkalite-broker-0-ext", ingress=[{"ip": "fd00::8"}])
    there |= service("kafkalite-bootstrap-ext", ingress=[{"ip": "fd00::9"}])
    balanced = publish(settings(external("loadbalancer")), (0,), there, NOWHERE)
    assert [each["bootstrapServers"] for each in balanced.listeners if each["name"] == "ext"] == ["[fd00::9]:9094"]
