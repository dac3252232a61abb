"""How long each partition was without acknowledgements, and what a fault had to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_cli.verify.report import Pause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite_cli.verify.history import Ack, Fault
    from kafkalite_cli.verify.partition_log import PartitionLog


class Pauses:
    """Sees every acknowledgement and every fault in the order of the file.

    Attributes:
        longest_us: The longest time without any acknowledgement, whatever its partition.
    """

    def __init__(self, partitions: Mapping[int, PartitionLog]) -> None:
        self._partitions = partitions
        self.longest_us = 0
        self._last_us = 0
        self._faults: list[Fault] = []
        self._gaps: list[dict[int, int]] = []
        self._waiting: list[tuple[int, int, int]] = []  # (index of fault, partition, instant)
        self._pause_us: dict[int, int] = {}
        self._unanswered_us: dict[int, int] = {}  # partition -> until when somebody waited in vain for an answer

    def ack(self, partition: PartitionLog, event: Ack) -> None:
        """Note an acknowledgement."""
        acked_us = event.acked_us
        if acked_us - self._last_us > self.longest_us and self._last_us:
            self.longest_us = acked_us - self._last_us
        self._last_us = acked_us
        if acked_us - partition.last_ack_us > partition.gap_us and partition.last_ack_us:
            partition.gap_us = acked_us - partition.last_ack_us
        partition.last_ack_us = acked_us
        if self._waiting:
            self._settle(event)

    def unanswered(self, partition: int, ended_us: int) -> None:
        """Note that a record had no acknowledgement until then: where none comes any more, that is how long it was."""
        self._unanswered_us[partition] = max(ended_us, self._unanswered_us.get(partition, 0))

    def fault(self, fault: Fault) -> None:
        """Note a fault: the gaps until here were the last one's."""
        self._close_gaps(fault.at_us)
        for partition in self._partitions.values():
            partition.gap_us = 0
        index = len(self._faults)
        self._faults.append(fault)
        self._waiting += [(index, partition, fault.at_us) for partition in fault.partitions]

    def finish(self) -> list[Pause]:
        """One entry for each fault, in their order. Call it once."""
        self._close_gaps(self._last_us, self._unanswered_us)
        if self._last_us:
            self.longest_us = max([self.longest_us, *(until - self._last_us for until in self._unanswered_us.values())])
        unsettled = {index for index, _, _ in self._waiting}
        return [
            Pause(
                fault=fault.name,
                at_us=fault.at_us,
                pause_ms=None if index in unsettled else self._pause_us.get(index, 0) / 1000,
                gap_ms=max(gaps.values(), default=0) / 1000,
                gaps_ms={number: gap_us / 1000 for number, gap_us in gaps.items()},
            )
            for index, (fault, gaps) in enumerate(zip(self._faults, self._gaps, strict=True))
        ]

    def _close_gaps(self, now_us: int, unanswered_us: Mapping[int, int] | None = None) -> None:
        if not self._faults:
            return
        gaps: dict[int, int] = {}
        for number in self._faults[-1].partitions:
            partition = self._partitions.get(number)
            if partition is not None:  # one that is silent now has been so since its last acknowledgement
                until_us = max(now_us, (unanswered_us or {}).get(number, 0))
                gaps[number] = max(partition.gap_us, until_us - partition.last_ack_us if partition.last_ack_us else 0)
        self._gaps.append(gaps)

    def _settle(self, event: Ack) -> None:
        still = []
        for index, partition, at_us in self._waiting:
            if partition == event.partition and event.invoked_us > at_us:
                self._pause_us[index] = event.acked_us - at_us  # acknowledgements come in the order of time
            else:
                still.append((index, partition, at_us))
        self._waiting = still
