"""`python -m tools.chart` writes what belongs to the chart; with `--check` it only reports a difference (exit code 1).

From crds/: the chart's copies and the schema of values. From the chart: helm/manifests, a table in docs/helm.md and the
alerts in docs/monitoring.md. From tools/chart/dashboard.yaml: the dashboard.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tools.chart import ROOT, manifests, without_helm


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    different = compare(without_helm(), write=not check)
    try:
        different |= compare(manifests(), write=not check)  # from what was just written
    except subprocess.CalledProcessError as error:
        return error.returncode  # it said why
    return 1 if check and different else 0


def compare(files: dict[Path, str], *, write: bool) -> set[Path]:
    """The files that differ; they are written if wanted."""
    different = {path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    for path in sorted(different):
        print(f"{'written' if write else 'differs'}: {path.relative_to(ROOT)}")  # noqa: T201
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
    return different


if __name__ == "__main__":
    sys.exit(main())
