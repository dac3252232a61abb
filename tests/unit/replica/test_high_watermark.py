from kafkalite_core.replica.followers import Progress
from kafkalite_core.replica.high_watermark import advanced_high_watermark


def member(end: int) -> Progress:
    progress = Progress(2, 5, 0.0)
    if end >= 0:
        progress.fetched_at(end, end, 0.0)
    return progress


def advance(high_watermark: int, own: int, *ends: int, counting: int = 3, min_isr: int = 2) -> int:
    return advanced_high_watermark(
        high_watermark, own, [member(end) for end in ends], counting=counting, min_isr=min_isr
    )


def test_it_is_the_least_flushed_end() -> None:
    assert advance(3, 9, 7, 8) == 7
    assert advance(3, 5, 7, 8) == 5
    assert advance(3, 9) == 9


def test_it_never_falls() -> None:
    assert advance(6, 9, 4) == 6


def test_a_member_whose_end_is_unknown_holds_it() -> None:
    assert advance(3, 9, 8, -1) == 3


def test_below_min_isr_it_stands() -> None:
    assert advance(3, 9, 9, counting=1) == 3
    assert advance(3, 9, 9, counting=2) == 9
