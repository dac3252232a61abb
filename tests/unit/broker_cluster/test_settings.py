import json

import pytest

from kafkalite_broker import main
from kafkalite_broker.cluster.config_watch import ConfigWatch
from kafkalite_broker.cluster.settings import BrokerSettings, parse_broker_config, read_broker_config
from kafkalite_broker.cluster.termination import TerminationMessage
from kafkalite_core.model.errors import ConfigError

DOCUMENT = {
    "cluster": "kafkalite",
    "namespace": "kafka",
    "listeners": [{"name": "plain", "type": "internal", "port": 9092}],
    "metrics": {"port": 9404},
    "failureDetection": {"leaseDurationSeconds": 6, "renewIntervalSeconds": 2},
    "config": {"num.io.threads": "4"},
}


@pytest.fixture
def environ(tmp_path):
    path = tmp_path / "broker.json"
    path.write_text(json.dumps(DOCUMENT))
    return {
        "POD_NAME": "kafkalite-broker-2",
        "POD_NAMESPACE": "kafka",
        "KAFKALITE_CLUSTER": "kafkalite",
        "KAFKALITE_DATA_DIR": str(tmp_path),
        "KAFKALITE_CONFIG": str(path),
        "KAFKALITE_TERMINATION_LOG": str(tmp_path / "termination"),
    }


def test_a_broker_of_a_stateful_set(environ):
    settings = BrokerSettings.from_environment(environ)
    assert settings.broker_id == 2
    assert settings.object_name == "kafkalite-broker-2"
    listener = settings.inter_broker
    assert (listener.bind_host, listener.bind_port) == ("", 9092), "on all addresses"
    assert listener.advertised_host == "kafkalite-broker-2.kafkalite-brokers.kafka.svc"
    assert settings.metrics_port == 9404
    assert settings.metrics_url == "http://kafkalite-broker-2.kafkalite-brokers.kafka.svc:9404/metrics"
    assert (settings.broker.lease_duration_s, settings.broker.renew_interval_s) == (6, 2)
    assert settings.incarnation != BrokerSettings.from_environment(environ).incarnation


def test_brokers_on_one_host_have_ports_of_their_own(environ, tmp_path):
    document = {**DOCUMENT, "listeners": [{"name": "local", "type": "hostport", "port": 9092, "host": "127.0.0.1"}]}
    (tmp_path / "broker.json").write_text(json.dumps(document))
    settings = BrokerSettings.from_environment(environ)
    listener = settings.inter_broker
    assert (listener.bind_host, listener.bind_port) == ("127.0.0.1", 9094)
    assert (listener.advertised_host, listener.advertised_port) == ("127.0.0.1", 9094)
    assert (settings.metrics_host, settings.metrics_port) == ("127.0.0.1", 9406)


@pytest.mark.parametrize(
    "name", ["POD_NAME", "POD_NAMESPACE", "KAFKALITE_CLUSTER", "KAFKALITE_DATA_DIR", "KAFKALITE_CONFIG"]
)
def test_a_missing_variable_is_named(environ, name):
    del environ[name]
    with pytest.raises(ConfigError, match=name):
        BrokerSettings.from_environment(environ)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"POD_NAME": "nameless"}, "POD_NAME.*ordinal"),
        ({"POD_NAME": "other-broker-0"}, "POD_NAME.*KAFKALITE_CLUSTER"),
        ({"POD_NAMESPACE": "elsewhere"}, "namespace.*POD_NAMESPACE"),
        ({"KAFKALITE_CONFIG": "/nonexistent/broker.json"}, "/nonexistent/broker.json"),
        ({"KAFKALITE_CLUSTER": "c2", "POD_NAME": "c2-broker-0"}, "cluster.*KAFKALITE_CLUSTER"),
    ],
)
def test_what_does_not_fit_together_is_named(environ, changes, words):
    with pytest.raises(ConfigError, match=words):
        BrokerSettings.from_environment({**environ, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"listeners": []}, "listeners.*at least one"),
        ({"listeners": [{"name": "x", "type": "magic", "port": 1}]}, r"listeners\[0\].*magic"),
        ({"listeners": [{"name": "x", "type": "internal", "port": 70000}]}, r"listeners\[0\].*port.*70000"),
        ({"listeners": [{"name": "x", "type": "internal", "port": True}]}, "whole number"),
        ({"metrics": {"port": "x"}}, "metrics.*port"),
        ({"failureDetection": {"leaseDurationSeconds": 1, "renewIntervalSeconds": 1}}, "renewIntervalSeconds.*less"),
        ({"config": {"num.io.threads": "none"}}, "num.io.threads"),
        ({"config": {"no.such.key": "1"}}, "no.such.key"),
        ({"config": {"num.io.threads": 3}}, "config.*strings"),
        ({"cluster": None}, "cluster.*text"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(changes, words):
    with pytest.raises(ConfigError, match=f"broker.json: .*{words}|broker.json: {words}"):
        parse_broker_config(json.dumps({**DOCUMENT, **changes}), where="broker.json")


def test_not_json():
    with pytest.raises(ConfigError, match=r"broker\.json: not JSON"):
        parse_broker_config("{", where="broker.json")


def test_a_changed_file_comes_into_force_and_a_wrong_one_does_not(tmp_path):
    path = tmp_path / "broker.json"
    path.write_text(json.dumps(DOCUMENT))
    told = []
    watch = ConfigWatch(path, read_broker_config(path), told.append)
    assert not watch.poll()
    path.write_text("{ half a file")
    assert not watch.poll()
    assert watch.current.config == {"num.io.threads": "4"}
    path.write_text(json.dumps({**DOCUMENT, "config": {"num.io.threads": "2"}}))
    assert watch.poll()
    assert [config.config for config in told] == [{"num.io.threads": "2"}]
    assert not watch.poll()
    path.unlink()
    assert not watch.poll()
    assert watch.current.config == {"num.io.threads": "2"}


def test_the_termination_message_is_rewritten_in_place(tmp_path):
    path = tmp_path / "termination-log"
    path.write_text("x" * 2000)
    inode = path.stat().st_ino
    message = TerminationMessage(path, "incarnation-1")
    assert message.write()
    assert json.loads(path.read_text()) == {"incarnation": "incarnation-1", "brokerEpoch": None}
    assert message.write(broker_epoch=7)
    assert message.write(reason="stopped in order")
    assert json.loads(path.read_text()) == {
        "incarnation": "incarnation-1",
        "brokerEpoch": 7,
        "reason": "stopped in order",
    }
    assert path.stat().st_ino == inode, "a bind mount cannot be replaced by a rename"


def test_a_termination_message_that_cannot_be_written_stops_nobody(tmp_path):
    assert not TerminationMessage(tmp_path / "missing" / "file", "i").write()


def test_a_level_that_there_is_not_ends_the_program_with_its_sentence(monkeypatch, capsys):
    monkeypatch.setenv("KAFKALITE_LOG_LEVEL", "loud")
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == main.USAGE_EXIT_CODE
    assert capsys.readouterr().err == (
        "kafkalite-broker: KAFKALITE_LOG_LEVEL='loud': expected debug, info, warning or error\n"
    )
