"""Starts a local cluster's processes as the chaos wants them, without a hook in the product.

Local mode looks for the programs of its pods beside its own interpreter. So a cluster is started by an interpreter in a
folder of ours: a second face of the virtual environment, in which `kafkalite-broker` and `kafkalite-operator` are short
scripts. They wait while their pod is held back, read settings that may change from one start to the next, and become
the real program: same process id, same arguments.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PODS = ("kafkalite-broker", "kafkalite-operator")
OPERATOR_POD = "kafkalite-operator-local"

WRAPPER = """\
#!/bin/sh
# Becomes {program} in the way that {settings}/$POD_NAME.sh asks for.
set -eu
while [ -e {settings}/"$POD_NAME".hold ]; do sleep 0.05; done
prefix=
if [ -r {settings}/"$POD_NAME".sh ]; then . {settings}/"$POD_NAME".sh; fi
exec $prefix {program} "$@"
"""

LOCAL = """\
#!{python}
import sys

from kafkalite_local.main import main

sys.exit(main())
"""


def broker_pod(broker: int) -> str:
    """Name of a broker's pod."""
    return f"kafkalite-broker-{broker}"


class Launcher:
    """The folder of interpreter, scripts and settings of one cluster."""

    def __init__(self, folder: Path, interpreter: Path = Path(sys.executable)) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin" / "python"
        self._real = interpreter.absolute()
        self._settings = self.folder / "settings"

    def make(self) -> None:
        """Write it all. A virtual environment is told by the pyvenv.cfg above its interpreter, wherever that is."""
        environment = self._real.parent.parent
        self.python.parent.mkdir(parents=True)
        self._settings.mkdir()
        self.python.symlink_to(self._real)
        (self.folder / "lib").symlink_to(environment / "lib")
        (self.folder / "pyvenv.cfg").write_text((environment / "pyvenv.cfg").read_text(encoding="utf-8"))
        self._script("kafkalite-local", LOCAL.format(python=self.python))
        for program in PODS:
            real = shlex.quote(str(self._real.with_name(program)))
            self._script(program, WRAPPER.format(program=real, settings=shlex.quote(str(self._settings))))

    def _script(self, name: str, text: str) -> None:
        path = self.python.with_name(name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        """`kafkalite …` by way of this interpreter."""
        return [str(self.python), "-m", "kafkalite_cli.main", *arguments]

    def configure(self, pod: str, lines: Sequence[str]) -> None:
        """From its next start on the pod's process starts after these lines of shell; `prefix` goes before it."""
        path = self._settings / f"{pod}.sh"
        temporary = path.with_suffix(".new")
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        temporary.replace(path)

    @contextmanager
    def held(self, *pods: str) -> Iterator[None]:
        """For the body, a process of these pods that starts waits before it does anything."""
        paths = [self._settings / f"{pod}.hold" for pod in pods]
        for path in paths:
            path.touch()
        try:
            yield
        finally:
            for path in paths:
                path.unlink(missing_ok=True)

    def is_waiting(self, pid: int) -> bool:
        """Whether a process is still the script (it is held back), not yet the program."""
        try:
            return os.path.basename(Path(f"/proc/{pid}/exe").readlink()) in {"sh", "dash", "bash"}  # noqa: PTH119
        except OSError:
            return False
