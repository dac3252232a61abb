import pytest

from kafkalite_local.kubelet.container import Container, pod_status, restart_delay_s
from kafkalite_local.processes import Exit
from kafkalite_runtime.home import ProcessRecord

RECORD = ProcessRecord(name="a", pid=7, start_time=99, started_at="2026-01-01T00:00:00Z")
POD = {"metadata": {"name": "a"}}


@pytest.fixture
def container():
    container = Container(name="broker")
    container.running(RECORD, started_at=1.0)
    return container


def test_restarts_are_slower_each_time_up_to_a_limit():
    assert [restart_delay_s(failures) for failures in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]


def test_an_end_is_reported_with_code_signal_and_message(container):
    container.terminated(Exit(137, 9), '{"incarnation": "i"}', RECORD.started_at, ran_s=1)
    status = container.to_status()
    ended = status["state"]["terminated"]
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")
    assert ended["message"] == '{"incarnation": "i"}'
    assert ended["containerID"] == status["containerID"] == "local://7-99"
    container.waiting("CrashLoopBackOff", "back-off")
    assert container.to_status()["lastState"] == {"terminated": ended}
    container.running(RECORD, started_at=2.0)
    assert container.to_status()["lastState"] == {"terminated": ended}


def test_a_clean_end_is_completed_and_has_no_signal(container):
    container.terminated(Exit(0), "", RECORD.started_at, ran_s=1)
    ended = container.to_status()["state"]["terminated"]
    assert ended["reason"] == "Completed"
    assert "signal" not in ended
    assert "message" not in ended


def test_ten_seconds_of_life_forgive_earlier_crashes(container):
    for _ in range(3):
        container.terminated(Exit(1), "", "", ran_s=9)
    assert container.failures == 3
    container.terminated(Exit(1), "", "", ran_s=10)
    assert container.failures == 1


def test_a_process_killed_every_quarter_of_a_minute_comes_back_at_once_each_time(container):
    delays = []
    for _ in range(20):
        container.terminated(Exit(137, 9), "", "", ran_s=15)
        delays.append(restart_delay_s(container.failures))
    assert set(delays) == {0}


def test_a_process_that_ends_right_after_its_start_is_restarted_ever_more_slowly(container):
    delays = []
    for _ in range(8):
        container.terminated(Exit(1), "", "", ran_s=2)
        delays.append(restart_delay_s(container.failures))
    assert delays == sorted(delays)
    assert delays[-1] == 30


def test_a_restarted_kubelet_goes_on_where_the_old_one_was(container):
    container.terminated(Exit(1), "m", "", ran_s=1)
    container.remember_end()
    container.restart_count = 4
    restored = Container(name="broker")
    restored.restore(container.save())
    assert restored.save() == container.save()


def test_transition_times_change_with_the_condition_only(container):
    first = pod_status(POD, container, "s", {}, "Running")
    for each in first["conditions"]:
        each["lastTransitionTime"] = "long ago"
    again = pod_status(POD, container, "s", first, "Running")
    assert {each["lastTransitionTime"] for each in again["conditions"]} == {"long ago"}
    container.ready = True
    ready = pod_status(POD, container, "s", first, "Running")
    times = {each["type"]: each["lastTransitionTime"] for each in ready["conditions"]}
    assert times["PodScheduled"] == "long ago"
    assert times["Ready"] != "long ago"
    assert ready["conditions"][-1]["status"] == "True"


def test_wait_status():
    assert Exit.from_wait_status(9) == Exit(137, 9)
    assert Exit.from_wait_status(3 << 8) == Exit(3)
    assert Exit.from_wait_status(0) == Exit(0)
