"""The benchmarks are scripts: their folder is what Python would put first on its path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
