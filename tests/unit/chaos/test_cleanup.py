"""What a killed run left is found by its folder; a run that goes on is left alone."""

import os
import signal
import subprocess
import sys

from tests.chaos import cleanup


def test_a_folder_whose_process_lives_is_no_orphan(tmp_path):
    cleanup.claim(tmp_path)
    assert not cleanup.is_orphan(tmp_path)
    assert cleanup.sweep(tmp_path.parent) == []


def test_a_folder_whose_process_is_gone_is_one_until_it_is_cleaned(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    code = f"from pathlib import Path; from tests.chaos import cleanup; cleanup.claim(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert cleanup.is_orphan(folder)
    assert cleanup.sweep(tmp_path) == ["run"]
    assert not cleanup.is_orphan(folder)


def test_a_pid_that_belongs_to_another_process_by_now_is_gone(tmp_path):
    (tmp_path / cleanup.OWNER).write_text(f"{os.getpid()} 1")
    assert cleanup.is_orphan(tmp_path)


def test_a_folder_that_nobody_claimed_is_not_touched(tmp_path):
    assert not cleanup.is_orphan(tmp_path)


def test_names_of_namespaces_fit_and_differ(tmp_path):
    first = cleanup.namespace_tag(tmp_path / "net-isolate-leader-steady-201501123")
    second = cleanup.namespace_tag(tmp_path / "net-isolate-leader-steady-201501124")
    assert first != second


def finished(parent, name: str, age_s: int, *, kib: int = 4, broken: bool = False):
    folder = parent / name
    folder.mkdir()
    (folder / "log").write_bytes(os.urandom(kib * 1024))
    if broken:
        (folder / cleanup.BROKEN_MARK).touch()
    os.utime(folder, (1e9 - age_s, 1e9 - age_s))
    return folder


def left(parent) -> set[str]:
    return {path.name for path in parent.iterdir()}


def test_the_oldest_folders_go_when_there_are_too_many(tmp_path):
    for age in range(5):
        finished(tmp_path, f"run-{age}", age)
    assert cleanup.prune(tmp_path, 3, 1 << 30) == ["run-4", "run-3"]
    assert left(tmp_path) == {"run-0", "run-1", "run-2"}


def test_the_folder_of_a_run_that_goes_on_stays(tmp_path):
    finished(tmp_path, "run-0", 0)
    cleanup.claim(finished(tmp_path, "run-1", 1))
    assert cleanup.prune(tmp_path, 0, 1 << 30) == ["run-0"]
    assert left(tmp_path) == {"run-1"}


def test_evidence_of_a_broken_promise_outlives_any_number_of_other_runs(tmp_path):
    finished(tmp_path, "broken", 100, broken=True)
    for age in range(30):
        finished(tmp_path, f"run-{age}", age)
    cleanup.prune(tmp_path, 3, 1 << 30)
    assert left(tmp_path) == {"broken", "run-0", "run-1"}


def test_bytes_are_bounded_and_the_first_evidence_is_the_last_to_go(tmp_path):
    finished(tmp_path, "first", 30, kib=100, broken=True)
    finished(tmp_path, "second", 20, kib=100, broken=True)
    finished(tmp_path, "other", 1, kib=100)
    assert cleanup.prune(tmp_path, 20, 250 * 1024) == ["other"]
    assert cleanup.prune(tmp_path, 20, 150 * 1024) == ["second"]
    assert left(tmp_path) == {"first"}


def test_what_a_control_plane_that_is_gone_left_running_is_killed(tmp_path):
    (tmp_path / "home" / "run").mkdir(parents=True)
    code = "import sys, time; print('ready', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", code, "kafkalite-broker"]
    environments = [
        {"KAFKALITE_CONFIG": str(tmp_path / "home" / "pods" / "broker.json")},
        {"KAFKALITE_CONFIG": "/elsewhere"},
    ]
    ours, other = (
        subprocess.Popen(command, env=dict(os.environ, **more), stdout=subprocess.PIPE) for more in environments
    )
    try:
        for process in (ours, other):
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        assert cleanup.processes(tmp_path) == [ours.pid]
        cleanup.clean(tmp_path)
        assert ours.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        assert cleanup.leftovers(tmp_path) == []
    finally:
        for process in (ours, other):
            process.kill()
            process.communicate()
