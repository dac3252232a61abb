#!/usr/bin/env python3
"""The hash of what was proven: every tracked file under core, runtime, broker_image and operator, as it is now.

    python tools/tree_hash.py        # prints 64 hexadecimal digits

sha256 over path, size and content of each file, in the order of the paths. What ledgers of proofs record: lines with
the same hash speak of the same program, whatever else was committed between them.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROVEN = ("core", "runtime", "broker_image", "operator")


def tree_hash(root: Path = ROOT) -> str:
    """The hash of the work tree at `root`; changes that are not committed count, files that are not tracked do not.

    Raises subprocess.CalledProcessError when `root` is no git work tree.
    """
    command = ["git", "ls-files", "-z", "--", *PROVEN]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True)  # noqa: S603
    digest = hashlib.sha256()
    for name in sorted(set(listed.stdout.split(b"\0")) - {b""}):
        path = root / name.decode()
        if path.is_file():  # a deleted file that git still lists is not part of the program
            content = path.read_bytes()
            digest.update(b"%s\0%d\0" % (name, len(content)) + content)
    return digest.hexdigest()


def main() -> int:
    """Entry point."""
    sys.stdout.write(tree_hash() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
