"""What is done to the files of a broker is done to those of its topic, and to no more than was said."""

from tests.chaos.disk_faults import logged
from tests.chaos.disks import tear, wipe


def logs(directory, **sizes):
    for name, parts in sizes.items():
        folder = directory / name.replace("_", "-")
        folder.mkdir(parents=True)
        for number, size in enumerate(parts):
            (folder / f"{number:020d}.log").write_bytes(b"x" * size)
            (folder / f"{number:020d}.index").write_bytes(b"i" * 10)


def sizes(directory) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.stat().st_size for path in sorted(directory.glob("**/*.*"))}


def test_a_wiped_directory_is_empty_and_still_there(tmp_path):
    logs(tmp_path, chaos_0=[5, 5], chaos_1=[5])
    (tmp_path / "meta").write_text("identity")
    assert wipe(tmp_path) == 3
    assert list(tmp_path.iterdir()) == []
    assert wipe(tmp_path) == 0


def test_the_end_of_the_last_segment_of_each_log_is_torn_off(tmp_path):
    logs(tmp_path, chaos_0=[100, 50], chaos_1=[8], other_0=[30])
    assert tear(tmp_path, "chaos", 20) == 28
    left = sizes(tmp_path)
    assert left["chaos-0/00000000000000000000.log"] == 100
    assert left["chaos-0/00000000000000000001.log"] == 30
    assert left["chaos-1/00000000000000000000.log"] == 0
    assert left["other-0/00000000000000000000.log"] == 30
    assert left["chaos-0/00000000000000000001.index"] == 10


def test_nothing_is_torn_off_an_empty_log(tmp_path):
    logs(tmp_path, chaos_0=[0])
    assert tear(tmp_path, "chaos", 20) == 0


class Home:
    def __init__(self, path):
        self.path = path

    def log(self, name):
        return self.path / f"{name}.log"


class Run:
    def __init__(self, path):
        self.cluster = type("Cluster", (), {"home": Home(path)})()


def test_only_what_a_broker_logs_from_now_on_proves_anything(tmp_path):
    path = tmp_path / "broker-1.log"
    path.write_text("ending at once: Input/output error, long ago\n")
    bite = logged(Run(tmp_path), 1, "ending at once", "Input/output error|EIO")
    assert not bite.seen()
    with path.open("a") as file:
        file.write("leader does not answer: EIO\nending at once: No space left\n")
        file.flush()
        assert not bite.seen(), "one line has to say all of it"
        file.write("ending at once: EIO\n")
    assert bite.seen()
