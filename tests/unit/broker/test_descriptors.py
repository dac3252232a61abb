"""What the process may have open is shared out between files of logs and clients."""

from __future__ import annotations

import resource
import subprocess
import sys

from kafkalite_broker import descriptors


def test_the_soft_limit_is_raised_to_the_hard_one():
    code = (
        "import resource; from kafkalite_broker.descriptors import raise_limit\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE); hard = min(hard, 2000)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))\n"
        "assert raise_limit() == hard; assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_limit_that_the_kernel_refuses_stays_as_it_is(monkeypatch):
    def refused(*_):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1 << 30))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert descriptors.raise_limit() == 1024


def test_files_and_connections_fit_together():
    for allowed in (300, 1024, 4096, 20_000, 1_048_576):
        files, connections = descriptors.files_max(allowed), descriptors.connections_max(10_000, allowed)
        assert files + connections + descriptors.RESERVED <= allowed
    assert descriptors.connections_max(10_000, 1024) == 384
    assert descriptors.connections_max(10_000, 1_048_576) == 10_000
    assert descriptors.connections_max(50, 1024) == 50
    assert (descriptors.files_max(-1), descriptors.connections_max(10_000, -1)) == (8192, 10_000)
