"""The peer's configuration, and clear words when it cannot run."""

import subprocess

import pytest
from kafka_peer import peer


def test_three_nodes_have_their_own_ports_and_kafkas_defaults_but_for_replication(tmp_path):
    cluster = peer.KafkaPeer(directory=tmp_path, port=19092, properties={"log.flush.interval.messages": "1"})
    assert cluster.bootstrap == "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"
    properties = cluster.server_properties(2)
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:19093,CONTROLLER://127.0.0.1:19193"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:19192,2@127.0.0.1:19193,3@127.0.0.1:19194"
    assert properties["min.insync.replicas"] == "2"
    assert properties["log.flush.interval.messages"] == "1"


def test_missing_java_and_old_java_are_named(monkeypatch):
    monkeypatch.setattr(peer.shutil, "which", lambda name: None)
    with pytest.raises(peer.PeerError, match="no `java` on PATH"):
        peer.require_tools()
    monkeypatch.setattr(peer.shutil, "which", lambda name: "/usr/bin/" + name)
    answer = subprocess.CompletedProcess([], 0, "", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setattr(peer.subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(peer.PeerError, match="Java 17 or newer, `java -version` says"):
        peer.require_tools()


def test_missing_maven_is_named_only_when_it_is_needed(monkeypatch, tmp_path):
    monkeypatch.setattr(peer, "CACHE", tmp_path)
    monkeypatch.setattr(peer.shutil, "which", lambda name: "/usr/bin/java" if name == "java" else None)
    answer = subprocess.CompletedProcess([], 0, "", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setattr(peer.subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(peer.PeerError, match="no `mvn` on PATH"):
        peer.require_tools()
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.3.1.jar").touch()
    peer.require_tools()


def test_a_process_that_is_another_programs_is_not_ours(tmp_path):
    import os

    cluster = peer.KafkaPeer(directory=tmp_path)
    assert cluster.pid(1) is None
    cluster.node_directory(1).mkdir()
    (cluster.node_directory(1) / "pid").write_text(str(os.getpid()))
    assert cluster.pid(1) is None
    with pytest.raises(peer.PeerError, match="does not run"):
        cluster.kill(1)
