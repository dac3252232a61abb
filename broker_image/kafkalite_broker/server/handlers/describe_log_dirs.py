"""DescribeLogDirs (key 35): sizes of the replicas on this broker, and of its disk (KIP-113, KIP-827)."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from kafkalite_broker.server.handlers.bounds import within_bounds
from kafkalite_core.protocol.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkalite_core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite_broker.replication.driver import PartitionDriver
    from kafkalite_broker.server.dispatch import Request
    from kafkalite_broker.server.services import Services

REPLICAS_AT_ONCE = 500
"""Replicas looked at in one turn of the event loop."""


def disk_bytes(directory: Path) -> tuple[int, int]:
    """Total and usable bytes of the disk that holds a directory (blocking). Raises `OSError`."""
    status = os.statvfs(directory)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


class DescribeLogDirsHandler:
    """A broker has one directory."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, request: Request) -> None:
        """Answer with all replicas here, or with those named."""
        topics = request.body.topics
        named = 0 if topics is None else len(topics) + sum(len(topic.partitions) for topic in topics)
        if within_bounds(request, named):
            self._services.background(request.guarded(self._describe(request)))

    async def _describe(self, request: Request) -> None:
        await request.turn()
        directory = self._services.facts.data_directory
        result = DescribeLogDirsResult(log_dir=str(directory))
        loop = asyncio.get_running_loop()
        try:
            result.total_bytes, result.usable_bytes = await loop.run_in_executor(
                self._services.io_pool, disk_bytes, directory
            )
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result.topics = await self._topics(request)
        await request.answer_large(DescribeLogDirsResponse(results=[result]), self._services.io_pool)

    async def _topics(self, request: Request) -> list[DescribeLogDirsTopic]:
        named = request.body.topics
        wanted = None if named is None else {(topic.topic, number) for topic in named for number in topic.partitions}
        found: dict[str, list[DescribeLogDirsPartition]] = {}
        for place, driver in enumerate(list(self._services.partitions.drivers()), start=1):
            if wanted is None or (driver.ref.name, driver.number) in wanted:
                found.setdefault(driver.ref.name, []).append(_described(driver))
            if place % REPLICAS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return [
            DescribeLogDirsTopic(name=name, partitions=sorted(found[name], key=lambda part: part.partition_index))
            for name in sorted(found)
        ]


def _described(driver: PartitionDriver) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=driver.number,
        partition_size=driver.log.size,
        # As Kafka counts it for a replica in use: how far its own log is behind what it knows to be committed.
        offset_lag=max(driver.replica.high_watermark - driver.log.end_offset, 0),
    )
