"""Sentences that are longer than a status takes: what is wanted is still what was written."""

from kafkalite_core.model.limits import SENTENCE_LENGTH_MAX
from kafkalite_core.model.pods import Blocked
from kafkalite_core.model.topic import Condition
from kafkalite_core.resources.conditions import parse_conditions, set_condition
from kafkalite_core.resources.rolling import render_blocked


def test_a_long_condition_reads_back_as_it_was_wanted():
    wanted = Condition(type="ConfigValid", status="False", reason="Unsupported", message="x" * 5000)
    written = set_condition([], wanted, generation=1, now="2026-01-01T00:00:00Z")
    assert parse_conditions({"conditions": written}) == (wanted,)
    assert len(written[0]["message"]) == SENTENCE_LENGTH_MAX


def test_so_does_a_reason_for_which_a_restart_waits():
    wanted = Blocked(pod="p", partition="t-0", reason="y" * 5000)
    assert Blocked(**render_blocked(wanted)) == wanted
    assert len(wanted.reason) == SENTENCE_LENGTH_MAX
