"""`kafkalite verify replicas` where there is little to compare."""

import pytest
from click.testing import CliRunner

from kafkalite_cli.verify.command import verify
from kafkalite_core.storage.checkpoints import HIGH_WATERMARK
from tests.unit.verify.test_replicas import Broker, batch


@pytest.fixture
def replicas(tmp_path):
    """Two replicas that have nothing in common, and the high watermarks that brokers wrote down."""

    def compare(first, *high_watermarks):
        for number, high_watermark in enumerate(high_watermarks):
            broker = Broker(tmp_path, number).write(batch(0, text="x" if number else first))
            if high_watermark is not None:
                broker.checkpoint(HIGH_WATERMARK, high_watermark)
        return CliRunner().invoke(verify, ["replicas", *(str(tmp_path / f"data-{n}") for n in range(2))])

    return compare


@pytest.mark.parametrize("high_watermarks", [(None, None), (0, 2), (2, None)])
def test_where_nothing_of_any_partition_was_compared_there_is_no_verdict(replicas, high_watermarks):
    result = replicas("y", *high_watermarks)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("error: nothing was compared of orders-0 (no high watermark was written down")


def test_what_is_compared_is_judged(replicas):
    assert replicas("y", 2, 2).exit_code == 1


def test_an_empty_partition_is_equal(tmp_path):
    for number in range(2):
        Broker(tmp_path, number).write()
    result = CliRunner().invoke(verify, ["replicas", *(str(tmp_path / f"data-{n}") for n in range(2))])
    assert result.exit_code == 0, result.output
