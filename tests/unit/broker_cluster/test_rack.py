"""A broker waits for its rack, and not for ever."""

import asyncio
from dataclasses import replace

import pytest

from kafkalite_broker.cluster.rack import rack_of

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def with_directory(settings, tmp_path):
    directory = tmp_path / "rack"
    directory.mkdir()
    return replace(settings, rack_directory=directory), directory


async def test_it_takes_the_label_that_is_there(with_directory):
    settings, directory = with_directory
    (directory / "label").write_text("zone-a")
    (directory / "annotation").write_text("")
    assert await rack_of(settings, limit_s=0) == "zone-a"


async def test_it_waits_for_the_operator(with_directory):
    settings, directory = with_directory
    (directory / "label").write_text("")
    asyncio.get_running_loop().call_later(0.3, (directory / "annotation").write_text, "zone-b")
    assert await rack_of(settings, limit_s=50) == "zone-b"


async def test_a_node_without_the_label_is_waited_for_no_longer(with_directory):
    settings, directory = with_directory
    (directory / "annotation").write_text("-")
    assert await rack_of(settings, limit_s=50) == ""


async def test_it_starts_without_one_in_the_end(with_directory):
    settings, _ = with_directory
    assert await rack_of(settings, limit_s=0.01) == ""


async def test_nobody_waits_without_racks(settings):
    assert settings.rack_directory is None
    assert await rack_of(settings, limit_s=50) == settings.rack
    assert await rack_of(replace(settings, rack="given"), limit_s=50) == "given"
