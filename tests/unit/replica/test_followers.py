from kafkalite_core.replica.followers import Followers, Progress

LAG_MS = 1000


def test_caught_up_at_the_leaders_end_and_then_for_the_lag_time() -> None:
    progress = Progress(2, 5, 0.0)
    progress.fetched_at(10, 10, 5_000.0)
    assert progress.caught_up(10, 99_000.0, LAG_MS), "an idle replica at the end stays for ever"
    assert progress.caught_up(11, 6_000.0, LAG_MS)
    assert not progress.caught_up(11, 6_001.0, LAG_MS)


def test_under_load_it_is_caught_up_as_of_its_previous_fetch() -> None:
    progress = Progress(2, 5, 0.0)
    progress.fetched_at(0, 10, 5_000.0)
    assert progress.caught_up_ms == 0.0
    progress.fetched_at(10, 20, 5_100.0)
    assert progress.caught_up_ms == 5_000.0
    progress.fetched_at(19, 30, 5_200.0)
    assert progress.caught_up_ms == 5_000.0, "it had not all that was there at its previous fetch"


def test_an_incarnation_knows_nothing_of_another() -> None:
    followers = Followers()
    followers.ensure(2, 5, 0.0).fetched_at(10, 10, 0.0)
    assert followers.get(2, 6) is None
    assert not followers.ensure(2, 6, 0.0).fetched
    followers.retain([(2, 6)])
    assert followers.get(2, 5) is None
