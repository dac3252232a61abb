"""What is known of changes of CPU and memory of pods that run, for as long as the pods are there and the wish the same.

It is known to this process only: the Role lets the operator write no annotation of a pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite_core.controller.resizing import has_wanted
from kafkalite_core.model.pods import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite_core.model.pods import Amount, Pod

AGAIN_S = 30.0
"""What admission refused is tried again after this time: a quota may have been raised meanwhile."""


@dataclass(frozen=True, slots=True)
class _Note:
    wanted: tuple[Amount, ...]
    refused: str = ""
    kept: str = ""
    again_at: float = 0.0
    had: tuple[Amount, ...] | None = None
    """Those of all wanted ones that its spec had last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Of the pods of one cluster, by uid; see `Snapshot`."""

    refused: dict[str, str]
    kept: dict[str, Kept]
    had: frozenset[str]
    had_others: frozenset[str]


class ResizeNotes:
    """By uid of the cluster and of the pod. All methods are called on the controller's event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._notes: dict[str, dict[str, _Note]] = {}

    def refused(self, uid: str, pod: str, wanted: tuple[Amount, ...], why: str) -> None:
        """A pod cannot have these amounts while it runs; another one could."""
        notes = self._notes.setdefault(uid, {})
        notes[pod] = _Note(wanted, refused=why, had=notes[pod].had if pod in notes else None)

    def kept(self, uid: str, pod: str, wanted: tuple[Amount, ...], why: str) -> bool:
        """Nor could another one. Whether that is news."""
        notes = self._notes.setdefault(uid, {})
        before = notes.get(pod, _Note(wanted))
        notes[pod] = _Note(wanted, kept=why, again_at=self._clock() + AGAIN_S, had=before.had)
        return (before.wanted, before.kept) != (wanted, why)

    def of(self, uid: str, wanted: tuple[Amount, ...], pods: Iterable[Pod]) -> Known:
        """What holds still; the rest is forgotten. Pods that have the wanted amounts are noted."""
        notes, before = {}, self._notes.get(uid, {})
        for pod in pods:
            note = before.get(pod.uid, _Note(wanted))
            if note.wanted != wanted:
                note = _Note(wanted, had=note.had)
            if wanted and (note.had != wanted or note.kept) and has_wanted(pod, wanted):
                note = _Note(wanted, had=wanted)
            notes[pod.uid] = note
        self._notes[uid] = notes
        now = self._clock()
        return Known(
            refused={pod: note.refused for pod, note in notes.items() if note.refused},
            kept={pod: Kept(note.kept, again=now >= note.again_at) for pod, note in notes.items() if note.kept},
            had=frozenset(pod for pod, note in notes.items() if note.had == wanted),
            had_others=frozenset(pod for pod, note in notes.items() if note.had not in {None, wanted}),
        )

    def forget(self, uid: str) -> None:
        """The cluster is gone."""
        self._notes.pop(uid, None)
