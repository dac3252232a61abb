import os
import signal
import subprocess
import sys

import pytest

from kafkalite_runtime.home import Home, Ports, ProcessRecord, start_time_of, write_atomically


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def record_of(process):
    return ProcessRecord(name="x", pid=process.pid, start_time=start_time_of(process.pid), started_at="now")


def test_layout_and_ports(tmp_path):
    home = Home.from_environment({"KAFKALITE_HOME": str(tmp_path / "h")})
    home.create()
    home.create()
    assert home.log("broker-0") == tmp_path / "h" / "logs" / "broker-0.log"
    assert home.record("kubelet") == tmp_path / "h" / "run" / "kubelet.json"
    ports = Ports.from_environment({})
    assert (ports.broker(2), ports.broker_metrics(1), ports.operator_metrics, ports.api_server) == (
        9094, 9193, 9202, 9212
    )  # fmt: skip
    assert Ports.from_environment({"KAFKALITE_PORT": "19092"}).base == 19092


@pytest.mark.parametrize("text", ["x", "0", "-1", "65500", "9092.5"])
def test_ports_that_cannot_be(text):
    with pytest.raises(ValueError, match=f"KAFKALITE_PORT={text}"):
        Ports.from_environment({"KAFKALITE_PORT": text})


def test_a_record_names_one_process_for_good(tmp_path, sleeper):
    record = record_of(sleeper)
    record.write(tmp_path / "r.json")
    assert ProcessRecord.read(tmp_path / "r.json") == record
    assert record.alive()
    another_time = ProcessRecord(name="x", pid=record.pid, start_time=record.start_time - 1, started_at="")
    assert not another_time.alive()
    assert not another_time.signal(signal.SIGKILL)
    assert sleeper.poll() is None
    assert record.signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert start_time_of(sleeper.pid) is None, "a zombie is not alive"
    sleeper.wait()
    assert not record.alive()
    assert not record.signal(signal.SIGKILL)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"name": "x"}', b'{"name":"x","pid":"a","startTime":1,"startedAt":""}']
)
def test_a_broken_record_is_no_record(tmp_path, content):
    (tmp_path / "r.json").write_bytes(content)
    assert ProcessRecord.read(tmp_path / "r.json") is None
    assert ProcessRecord.read(tmp_path / "absent.json") is None


def test_writing_is_all_or_nothing(tmp_path):
    path = tmp_path / "folder" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="file"):
        write_atomically(path, b"three")
    assert [each.name for each in path.parent.iterdir()] == ["file"]
