"""The configurations of the search by name: which faults there are, and the bounds within which everything is tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Bounds and faults.

    Attributes:
        about: What the configuration is for.
        isr: Members of the ISR at the beginning.
        min_isr: `min.insync.replicas`.
        records: Records produced at most.
        leader_epochs: Leader epochs, the first one included.
        changes: Changes of the partition entry at most.
        crashes: Crashes at most; each may be followed by a restart at any time, or never.
        wipes: Restarts with an empty disk at most.
        fences: Fences at most; a fenced broker that lives registers anew.
        lost_answers: Patches whose answer is lost at most, applied at once, later (`copies`) or never.
        retunes: Changes of `min.insync.replicas` at most, to one of `min_isr_other`.
        min_isr_other: See there.
        leaves: Leaders that hand over, because they shut down or their disk is full, at most. They take the first
            replica, so that with them the brokers are not interchangeable.
        copies: Patches that may be under way unanswered at once.
        flight: 1: fetch answers are on their way for a while; 2: requests too, even when their sender is gone.
        flushes: Flushes take time; else each append reaches the disk at once.
        late_answers: Answers to patches take time.
        operator_lags: The controller's patches are under way too, and land late or never.
        watch_lags: So many entries of before the last change a broker may still see.
        preferred: The controller moves leaderships for the sake of preferred leaders.
        lapses: Followers may be found lagging, or silent.
    """

    about: str
    isr: int = 3
    min_isr: int = 2
    records: int = 2
    leader_epochs: int = 3
    changes: int = 5
    crashes: int = 0
    wipes: int = 0
    fences: int = 0
    lost_answers: int = 0
    retunes: int = 0
    min_isr_other: tuple[int, ...] = ()
    leaves: int = 0
    copies: int = 1
    flight: int = 0
    flushes: bool = False
    late_answers: bool = False
    operator_lags: bool = False
    watch_lags: int = 0
    preferred: bool = True
    lapses: bool = True

    def bounds(self) -> dict[str, object]:
        """All but the text."""
        bounds = asdict(self)
        del bounds["about"]
        return bounds


SMALL: dict[str, Config] = {
    "epochs": Config(
        about="leader changes without faults: truncation by leader epochs, fetch answers that are lost",
        records=2, leader_epochs=4, changes=3, lapses=False,
    ),
    "flight": Config(
        about="the same with fetch answers that come late",
        records=2, leader_epochs=3, changes=2, lapses=False, flight=1,
    ),
    "isr": Config(
        about="shrinking and expanding ISR while leaders change",
        isr=2, records=1, leader_epochs=3, changes=4,
    ),
    "restart": Config(
        about="crashes that lose what was not flushed, restarts as a new incarnation, fencing",
        records=1, leader_epochs=3, changes=3, crashes=2, fences=1, flushes=True, preferred=False, lapses=False,
    ),
    "ambiguous": Config(
        about="compare-and-swaps whose answer is lost: applied, applied later, never applied",
        records=1, leader_epochs=2, changes=3, lost_answers=2, late_answers=True,
    ),
    "unsettled": Config(
        about="a leader whose compare-and-swap was not answered dies, is fenced, or comes back, also with an empty disk",
        records=1, leader_epochs=3, changes=3, lost_answers=1, crashes=1, wipes=1, fences=1, preferred=False,
    ),
    "operator": Config(
        about="patches of the controller that land late or never",
        records=1, leader_epochs=3, changes=3, fences=1, operator_lags=True,
    ),
    "watch": Config(
        about="brokers that see entries of before, after they were replaced",
        records=1, leader_epochs=3, changes=3, watch_lags=2,
    ),
    "returns": Config(
        about="a leader that leads again before others have heard of the one in between",
        records=1, leader_epochs=3, changes=2, fences=1, watch_lags=1, lapses=False,
    ),
    "handover": Config(
        about="leaders that leave and name their successors",
        records=1, leader_epochs=3, changes=3, leaves=1, lost_answers=1, lapses=False, preferred=False, fences=1,
    ),
    "zombie": Config(
        about="fetches that are read late, by a leader of another epoch or when their sender has restarted",
        isr=2, records=1, leader_epochs=2, changes=2, crashes=1, fences=1, flight=2, lapses=False, preferred=False,
    ),
    "wipe": Config(
        about="a broker comes back with an empty disk, while it is in the ISR or about to join it",
        records=1, leader_epochs=3, changes=4, crashes=1, wipes=1, fences=1, preferred=False,
    ),
    "elr": Config(
        about="fewer than min ISR in sync, eligible replicas, a change of min.insync.replicas",
        records=2, leader_epochs=3, changes=5, crashes=1, fences=2, retunes=1, min_isr_other=(1,), preferred=False,
    ),
}  # fmt: skip

LARGE: dict[str, Config] = {
    "epochs-large": replace(SMALL["epochs"], records=3, leader_epochs=5, changes=5),
    "flight-large": replace(SMALL["flight"], leader_epochs=4, changes=4),
    "isr-large": replace(SMALL["isr"], isr=3, records=2, changes=5),
    "restart-large": replace(SMALL["restart"], records=2, changes=4),
    "ambiguous-large": replace(SMALL["ambiguous"], leader_epochs=3, changes=4, copies=2),
    "unsettled-large": replace(SMALL["unsettled"], records=2, changes=4, late_answers=True),
    "operator-large": replace(SMALL["operator"], changes=4, crashes=1),
    "watch-large": replace(SMALL["watch"], records=2, changes=4),
    "returns-large": replace(SMALL["returns"], records=2, changes=3, watch_lags=2),
    "handover-large": replace(SMALL["handover"], records=2, changes=4),
    "zombie-large": replace(SMALL["zombie"], records=2, leader_epochs=3, changes=3),
    "wipe-large": replace(SMALL["wipe"], records=2, operator_lags=True),
    "elr-large": replace(SMALL["elr"], changes=6),
}

CONFIGS: dict[str, Config] = SMALL | LARGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Several configurations, searched until they are at their end or at their share.

    Attributes:
        configs: Their names.
        states_min: Distinct states that are asked for, all together.
        states_each: Where the search of one of them stops; breadth first, so it has seen all states up to some depth.
    """

    configs: tuple[str, ...]
    states_min: int
    states_each: int


PROOFS = {
    "small": Proof(configs=tuple(SMALL), states_min=5_000_000, states_each=650_000),
    "full": Proof(configs=tuple(LARGE), states_min=50_000_000, states_each=5_500_000),
}
