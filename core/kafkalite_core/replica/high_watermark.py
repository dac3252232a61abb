"""The high watermark over the maximal ISR (R4, R11, S3, S4, S8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite_core.replica.followers import Progress


def advanced_high_watermark(
    high_watermark: int, own_flushed_end: int, members: Iterable[Progress], *, counting: int, min_isr: int
) -> int:
    """The leader's new high watermark; never below the old one.

    Theorem. Let C be the ISR and ELR in the store and M the maximal ISR of the leader with its ELR: M is its committed
    ISR and ELR and every member of a proposal whose outcome is not settled, stale entries included. Without a new
    leader epoch nobody but this leader adds members to C, so C ⊆ M. With

        HW ≤ min(flushed end of m : m ∈ M)   and   |{m ∈ committed ISR : m counts}| ≥ min ISR

    every record below HW is on the disk of every member of C, hence of every possible clean leader.
    Denial on missing data: a member whose end is not known in this leader epoch holds the high watermark where it is.

    Args:
        high_watermark: The high watermark so far.
        own_flushed_end: The leader's own flushed end: also its acknowledgement waits for its disk (R11).
        members: The other members of the maximal ISR and of the ELR, and replicas about to join.
        counting: Entries of the committed ISR that count (S2, S3).
        min_isr: The effective min ISR of the partition entry (S4); below it nothing is committed (KIP-966).
    """
    if counting < min_isr:
        return high_watermark
    candidate = own_flushed_end
    for member in members:
        candidate = min(candidate, member.end_offset)
    return max(high_watermark, candidate)
