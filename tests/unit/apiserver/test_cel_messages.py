"""Rules written with optionals, and messages that are found by an expression."""

from __future__ import annotations

import pytest

from kafkalite_local.apiserver.cel_optionals import without_optionals
from kafkalite_local.apiserver.cel_rules import MESSAGE_MAX_BYTES, check_rules
from kafkalite_local.apiserver.schema import MISSING, compile_schema

INTEGERS = {"type": "object", "properties": {name: {"type": "integer"} for name in ("a", "b")}}


def judged(rule, value, old=MISSING):
    errors = []
    check_rules(compile_schema({**INTEGERS, "x-kubernetes-validations": [rule]}), value, old, errors)
    return [str(error).partition(": ")[2] for error in errors]


@pytest.mark.parametrize(
    ("rule", "meaning"),
    [
        ("[optional.of(self)].all(x, [x.value()].all(now, now.a > 1))", "self.a > 1"),
        (
            (
                "[optional.of(self)].all(x, [optional.of(oldSelf)].all(y, [x.value()].all(now, [y.value()].all(was, "
                "now == was || now.was > was.now))))"
            ),
            "self == oldSelf || self.was > oldSelf.now",
        ),
        ("[optional.of(self)].all(x, [x.value()].all(now, now.a == 'now)' || now.a == 'it\\'s now'))",
         "self.a == 'now)' || self.a == 'it\\'s now'"),
        ("[optional.of(self)].all(x, [x.value()].all(now, now.a)) && (true)",
         "[optional.of(self)].all(x, [x.value()].all(now, now.a)) && (true)"),
        ("[self.a].all(a, a > 1)", "[self.a].all(a, a > 1)"),
        ("self == oldSelf || self.a > 1", "self == oldSelf || self.a > 1"),
    ],
)  # fmt: skip
def test_what_a_rule_with_optionals_means(rule, meaning):
    assert without_optionals(rule) == meaning


def test_a_rule_with_optionals_is_judged():
    rule = {
        "rule": "[optional.of(self)].all(x, [optional.of(oldSelf)].all(y, [x.value()].all(now, [y.value()].all(was,"
        " now == was || now.a > was.a))))",
        "message": "a rises",
    }
    refused = ['Invalid value: "object": a rises']
    assert judged(rule, {"a": 1}) == []
    assert judged(rule, {"a": 1, "b": 1}, {"a": 1}) == refused
    assert judged(rule, {"a": 2, "b": 1}, {"a": 1}) == []
    assert judged(rule, {"a": 1}, {"a": 1}) == []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("self.a < 0 ? 'a is negative' : 'a is ' + string(self.a)", "a is 1"),
        ("'  a is wrong '", "a is wrong"),
        ("string(self.b)", "plain"),
        ("'  '", "plain"),
        ("'two\\nlines'", "plain"),
        (f"'{'x' * (MESSAGE_MAX_BYTES + 1)}'", "plain"),
    ],
)
def test_the_message_is_what_its_expression_says_if_that_is_one_line(expression, said):
    rule = {"rule": "self.a > 1", "message": "plain", "messageExpression": expression}
    assert judged(rule, {"a": 1}) == [f'Invalid value: "object": {said}']
    assert judged(rule, {"a": 2}) == []


def test_the_message_may_speak_of_what_was():
    rule = {"rule": "self.a >= oldSelf.a", "messageExpression": "'fell from ' + string(oldSelf.a)"}
    assert judged(rule, {"a": 1}, {"a": 7}) == ['Invalid value: "object": fell from 7']
