"""The folder of a local cluster: whether it is one, and what of it `kafkalite clean` removes.

Its name comes from the environment, so it may be any folder. `up` therefore keeps a cluster only in a folder that was
empty, which it marks, and `clean` removes what local mode makes, by name.
"""

import shutil
from pathlib import Path

from kafkalite_cli.errors import Failure
from kafkalite_cli.guard import os_words
from kafkalite_runtime.home import Home

MARKER = "local-cluster"
MARKER_TEXT = "The folder of a local KafkaLite cluster: `kafkalite clean` removes what local mode has made here.\n"
LOCK = "up.lock"
PORT_NOTE = "port-base"
FOLDERS = ("logs", "manifests", "pods", "run", "volumes")
FILES = (
    "kubeconfig",
    "kubeconfig.*.new",
    "control-plane.db",
    "control-plane.db-wal",
    "control-plane.db-shm",
    "control-plane.db-journal",
    PORT_NOTE,
    f".{PORT_NOTE}.*.tmp",
    LOCK,
)
LOST_AND_FOUND = "lost+found"
"""Of a file system that is mounted here: neither ours nor in the way."""
SHOWN = 5


def claim(home: Home) -> None:
    """Make the folders, in a folder of our own. Raises Failure for somebody else's, OSError when it cannot be made."""
    home.root.mkdir(parents=True, exist_ok=True)
    found = [name for name in _names(home) if name != LOST_AND_FOUND]
    if found and not is_ours(home):
        raise Failure(
            f"{home.root} holds something else already ({_some(found)}), and a cluster is kept in a folder of its own, "
            "which `kafkalite clean` can remove again: name a new or an empty folder in KAFKALITE_HOME"
        )
    if not strangers(home):
        # Before the folders: an `up` that is killed in between leaves a folder that is known as ours.
        (home.root / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
    home.create()


def is_ours(home: Home) -> bool:
    """Whether `up` has made this folder: it is marked, or is what releases made that did not mark theirs.

    Those had every folder at once, before anything else, and could be in a folder with other things.
    """
    if (home.root / MARKER).is_file():
        return True
    folders = (home.logs, home.pod_records, home.exits, home.volumes, home.pods, home.manifests)
    if not all(folder.is_dir() for folder in folders):
        return False
    has_cluster = home.database.is_file() and (home.root / PORT_NOTE).is_file()
    return has_cluster or (home.root / LOCK).is_file() or not strangers(home)


def check_ours(home: Home) -> None:
    """Raises Failure for a folder that `kafkalite up` has not made."""
    if not home.root.is_dir():
        raise Failure(f"{home.root} is not a folder; nothing was stopped or removed: correct KAFKALITE_HOME")
    if any(home.root.iterdir()) and not is_ours(home):
        raise Failure(
            f"{home.root} does not look like a KafkaLite folder; nothing was stopped or removed: correct KAFKALITE_HOME"
        )


def check_removable(home: Home) -> None:
    """Raises Failure for a folder that is not ours, or of which it is not known what is.

    A marked folder was empty before: what has the name of something of ours is ours. In one of an earlier release,
    which could be any folder, the user may have had a `logs` of his own.
    """
    check_ours(home)
    others = strangers(home)
    if others and not (home.root / MARKER).is_file():
        mixed = [name for name in FOLDERS if (home.root / name).exists()]
        raise Failure(
            f"{home.root} holds other things than the cluster, too ({_some(others)}), and the release that made the "
            f"cluster noted nowhere whether {', '.join(mixed)} were there before; nothing was stopped or removed: stop "
            "the cluster with `kafkalite down`, look into those folders, and remove by hand what is the cluster's "
            "(docs/local-mode.md, Files)"
        )


def strangers(home: Home) -> list[str]:
    """What is in the folder that local mode does not make, by name."""
    made = {MARKER, LOST_AND_FOUND, *FOLDERS}
    return [name for name in _names(home) if name not in made and not any(Path(name).match(each) for each in FILES)]


def remove(home: Home) -> str:
    """Remove what local mode has made, and the folder when nothing else is in it; a sentence about that.

    Everything must be stopped before. Raises OSError; it can be called again then.
    """
    links = []
    for name in FOLDERS:
        path = home.root / name
        if path.is_symlink():
            links.append(f"{name} was a link to {path.readlink()}, which was not touched")
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)
    for pattern in (*FILES, MARKER):  # the marker last: until then it is a folder that can be cleaned
        for path in home.root.glob(pattern):
            path.unlink()
    kept = _names(home)
    try:
        home.root.rmdir()
        said = f"removed {home.root}"
    except OSError as error:
        why = f"what else is in the folder stays: {_some(kept)}" if kept else f"the folder stays ({os_words(error)})"
        said = f"removed the cluster in {home.root}; {why}"
    return "; ".join([said, *links])


def _names(home: Home) -> list[str]:
    return sorted(path.name for path in home.root.iterdir())


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
