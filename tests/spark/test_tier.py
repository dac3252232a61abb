"""Says why this tier does not run where it cannot."""

import pytest


def test_spark_can_run_here(reason):
    if reason:
        pytest.skip(reason)
