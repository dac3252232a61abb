"""What is remembered of pods whose CPU and memory were changed while they ran, or could not be."""

from dataclasses import replace

from kafkalite_core.model.pods import Amount, Kept, Pod
from kafkalite_operator.resize_notes import AGAIN_S, ResizeNotes

OLD, NEW = ((Amount("broker", "limits", "memory", value),) for value in ("1Gi", "2Gi"))
POD = Pod(name="c-broker-0", uid="p", amounts=OLD)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_who_had_what_is_wanted_is_known_whatever_others_make_of_it_until_the_wish_changes():
    notes = ResizeNotes(Clock())
    assert notes.of("c", NEW, [POD]).had == frozenset()
    assert notes.of("c", NEW, [replace(POD, amounts=NEW)]).had == {"p"}
    others = notes.of("c", NEW, [POD])
    assert (others.had, others.had_others) == ({"p"}, frozenset())
    back = notes.of("c", OLD, [replace(POD, amounts=NEW)])
    assert (back.had, back.had_others) == (frozenset(), {"p"})
    done = notes.of("c", OLD, [POD])
    assert (done.had, done.had_others) == ({"p"}, frozenset())


def test_what_was_refused_is_remembered_of_pods_that_are_there_and_of_what_is_wanted():
    clock = Clock()
    notes = ResizeNotes(clock)
    notes.refused("c", "p", NEW, "no")
    assert notes.of("c", NEW, [POD]).refused == {"p": "no"}
    assert notes.of("c", OLD, [POD]).refused == {}
    assert notes.kept("c", "p", NEW, "exceeded quota")
    assert not notes.kept("c", "p", NEW, "exceeded quota"), "said already"
    assert notes.of("c", NEW, [POD]).kept == {"p": Kept("exceeded quota")}
    clock.now += AGAIN_S
    assert notes.of("c", NEW, [POD]).kept == {"p": Kept("exceeded quota", again=True)}
    assert notes.of("c", NEW, [replace(POD, amounts=NEW)]).kept == {}, "it has it"
    notes.kept("c", "p", NEW, "exceeded quota")
    notes.of("c", NEW, [])
    known = notes.of("c", NEW, [POD])
    assert (known.kept, known.refused) == ({}, {})
    notes.kept("c", "p", NEW, "exceeded quota")
    notes.forget("c")
    assert notes.of("c", NEW, [POD]).kept == {}
