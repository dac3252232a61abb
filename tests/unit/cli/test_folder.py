import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from rich.console import Console

from kafkalite_cli.local_mode import folder, start, stop
from kafkalite_cli.main import main
from kafkalite_runtime.home import Home, Ports


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKALITE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KAFKALITE_PORT", raising=False)
    return Home(tmp_path / "home")


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def fill(home):
    """What a cluster leaves behind."""
    for name in ("kubeconfig", "kubeconfig.17.new", "control-plane.db", "control-plane.db-wal", "port-base", "up.lock"):
        (home.root / name).touch()
    for path in (home.log("broker-0"), home.record("supervisor"), home.manifests / "operator.yaml"):
        path.touch()
    (home.volumes / "data-kafkalite-broker-0").mkdir()
    (home.volumes / "data-kafkalite-broker-0" / "meta.properties").touch()


@pytest.mark.parametrize("there", ["thesis.txt", "logs/app.log", "run/pids", ".git/HEAD", "kubeconfig"])
def test_no_cluster_is_kept_among_other_things(home, there, monkeypatch):
    monkeypatch.setattr(start, "_launch", lambda *_: pytest.fail("must not start"))
    (home.root / there).parent.mkdir(parents=True)
    (home.root / there).write_text("precious")
    for command in ("up", "clean", "down"):
        result = run(command)
        assert result.exit_code == 1
        assert "KAFKALITE_HOME" in result.output
        assert "defect" not in result.output
    assert f"holds something else already ({there.split('/')[0]})" in run("up").output
    assert files(home.root) == [there]


def test_a_folder_that_was_empty_is_marked_and_goes_whole(home):
    (home.root / "lost+found").mkdir(parents=True)
    folder.claim(home)
    folder.claim(home)
    assert (home.root / folder.MARKER).is_file()
    (home.root / "lost+found").rmdir()
    fill(home)
    assert run("clean").output == f"removed {home.root}\n"
    assert not home.root.exists()


def test_what_was_put_beside_a_cluster_stays_and_is_named(home):
    folder.claim(home)
    fill(home)
    (home.root / "notes.txt").write_text("precious")
    (home.root / "src").mkdir()
    assert run("clean").output == (
        f"removed the cluster in {home.root}; what else is in the folder stays: notes.txt, src\n"
    )
    assert sorted(path.name for path in home.root.iterdir()) == ["notes.txt", "src"]
    assert "holds something else already (notes.txt, src)" in run("up").output


def test_a_volume_that_is_a_link_is_not_followed(home, tmp_path):
    folder.claim(home)
    elsewhere = tmp_path / "disk"
    home.volumes.rename(elsewhere)
    home.volumes.symlink_to(elsewhere)
    (elsewhere / "data").touch()
    assert f"volumes was a link to {elsewhere}, which was not touched" in run("clean").output
    assert not home.root.exists()
    assert files(elsewhere) == ["data"]


def test_a_clean_that_was_interrupted_is_done_again(home, monkeypatch):
    def full(*_args):
        raise OSError(5, "Input/output error", "x")

    folder.claim(home)
    fill(home)
    with monkeypatch.context() as broken:
        broken.setattr(folder.shutil, "rmtree", full)
        assert run("clean").exit_code == 1
    folder.shutil.rmtree(home.logs)
    assert run("clean").output == f"removed {home.root}\n"


def test_a_folder_of_an_earlier_release(home):
    home.create()
    fill(home)
    folder.claim(home)
    assert (home.root / folder.MARKER).is_file()
    assert run("clean").output == f"removed {home.root}\n"


def test_clean_waits_for_an_up_that_is_at_work(home, monkeypatch):
    """It made the folder anew while it was removed, without its mark: then neither took it for a cluster's."""
    monkeypatch.setattr(start, "_check_ports", lambda *_: None)
    cleaning = []

    def launch(*_):
        cleaning.append(ThreadPoolExecutor(1).submit(run, "clean"))
        time.sleep(0.3)
        assert (home.root / folder.MARKER).is_file()
        raise start.Failure("the supervisor has ended")

    monkeypatch.setattr(start, "_launch", launch)
    with pytest.raises(start.Failure, match="has ended"):
        start.up(home, Ports(), (), timeout_s=5, console=Console(quiet=True))
    assert cleaning[0].result(10).output == f"removed {home.root}\n"
    assert not home.root.exists()


def test_clean_removes_nothing_below_an_up_that_does_not_end(home):
    folder.claim(home)
    with start._one_at_a_time(home), pytest.raises(start.Failure, match="nothing was removed"):
        with stop.kept_stopped(home, timeout_s=0.1):
            pytest.fail("an `up` is at work")
    assert run("clean").output == f"removed {home.root}\n"


def test_a_folder_that_an_earlier_release_shared_with_others_is_used_but_not_cleaned(home):
    home.root.mkdir()
    (home.root / "thesis.txt").write_text("precious")
    home.create()
    (home.logs / "app.log").write_text("precious")
    fill(home)
    before = files(home.root)
    folder.claim(home)
    assert "stopped; the data is kept" in run("down").output
    result = run("clean")
    assert result.exit_code == 1
    assert "holds other things than the cluster, too (thesis.txt)" in result.output
    assert "remove by hand" in result.output
    assert files(home.root) == [name for name in before if name != "run/supervisor.json"]


def test_the_help_of_clean_names_everything_that_it_removes():
    said = run("clean", "--help").output
    for name in (*folder.FOLDERS, folder.MARKER, folder.LOCK, folder.PORT_NOTE, "control-plane.db", "kubeconfig"):
        assert name in said, name
