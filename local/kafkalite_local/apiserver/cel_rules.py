"""`x-kubernetes-validations`: CEL rules, compiled once for each CRD, with `oldSelf` for transition rules."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite_local.apiserver.cel_optionals import without_optionals
from kafkalite_local.apiserver.cel_views import View, views
from kafkalite_local.apiserver.errors import FieldError
from kafkalite_local.apiserver.schema import MISSING, Schema, list_counterpart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Json = dict[str, Any]

MESSAGE_MAX_BYTES = 5 * 1024
"""Of a messageExpression."""

FAILURES = (LookupError, RuntimeError, TypeError, ValueError)
"""What the interpreter raises: a KeyError for a member, an IndexError for a place in a list, that is not there."""

_REASONS = {
    "": "FieldValueInvalid",
    "FieldValueInvalid": "FieldValueInvalid",
    "FieldValueForbidden": "FieldValueForbidden",
    "FieldValueRequired": "FieldValueRequired",
    "FieldValueDuplicate": "FieldValueDuplicate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One compiled expression, and what it can see.

    Attributes:
        program: For the interpreter.
        views: Of `self` and `oldSelf`.
        extended: It calls a function of Kubernetes' libraries that the interpreter does not have.
    """

    program: Any
    views: dict[str, View]
    extended: bool

    def evaluate(self, value: Any, old: Any) -> Any:
        """Its value; `old` is MISSING where there is none. Raises `FAILURES`."""
        variables = {"self": self.views["self"].of(value)}
        if old is not MISSING:
            variables["oldSelf"] = self.views["oldSelf"].of(old)
        if not self.extended:
            return self.program.execute(variables)
        import cel

        context = cel.Context(variables=variables)
        for name, function in _LIBRARIES.items():
            context.add_function(name, function)
        return self.program.execute(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One compiled rule. `transition` rules name `oldSelf` and hold only where a stored value exists.

    Attributes:
        keeps_equal: The rule begins with `self == oldSelf ||`: it need not run where nothing changed.
        told: The messageExpression; `message` is what is said where it has no answer.
    """

    condition: Expression
    source: str
    message: str
    told: Expression | None
    field_path: str
    reason: str
    transition: bool
    keeps_equal: bool


def compile_rules(sources: Iterable[Json]) -> tuple[Rule, ...]:
    """Compile the rules of one schema node. Raises ValueError when one does not parse."""
    rules = []
    for source in sources:
        text = " ".join(str(source["rule"]).split())
        condition = without_optionals(text)
        told = " ".join(str(source.get("messageExpression", "")).split())
        rules.append(
            Rule(
                condition=_compiled(condition),
                source=text,
                message=str(source.get("message", "")).strip(),
                told=_compiled(told) if told else None,
                field_path=source.get("fieldPath", ""),
                reason=_REASONS[source.get("reason", "")],
                transition=re.search(r"\boldSelf\b", text) is not None,
                keeps_equal=condition.startswith("self == oldSelf ||"),
            )
        )
    return tuple(rules)


def _compiled(text: str) -> Expression:
    import cel

    extended = any(f".{name}(" in text for name in _LIBRARIES)
    return Expression(program=cel.compile(text), views=views(text), extended=extended)


def _substring(text: str, start: int, end: int | None = None) -> str:
    """Of the strings library. Raises ValueError for a place outside of the text, as there."""
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text) or not start <= stop <= len(text):
        raise ValueError(f"index out of range: {start}")
    return text[start:stop]


def _lower_ascii(text: str) -> str:
    """Of the strings library: other letters stay as they are."""
    return text.encode().lower().decode()


def _index_of(items: Any, item: Any) -> int:
    """Of the lists and of the strings library: -1 where it is not there."""
    if isinstance(items, str):
        return items.find(item)
    return next((index for index, each in enumerate(items) if each == item), -1)


_LIBRARIES: dict[str, Callable[..., Any]] = {
    "indexOf": _index_of,
    "lowerAscii": _lower_ascii,
    "replace": lambda text, old, new: text.replace(old, new),
    "substring": _substring,
}


def check_rules(schema: Schema, value: Any, old: Any, errors: list[FieldError]) -> None:
    """Run every rule of a custom resource. `old` is the stored object, or MISSING for a create.

    Rules at the root see apiVersion, kind, metadata.name and metadata.generateName besides spec and status.
    """
    root = _trimmed(value)
    _check(schema, root, MISSING if old is MISSING else _trimmed(old), "", errors)


def _trimmed(value: Json) -> Json:
    metadata = value.get("metadata", {})
    kept = {name: metadata[name] for name in ("name", "generateName") if name in metadata}
    return {**value, "metadata": kept}


def _check(schema: Schema, value: Any, old: Any, path: str, errors: list[FieldError]) -> None:
    if not schema.has_rules or value is None:
        return
    unchanged = old is not MISSING and value == old
    for rule in schema.rules:
        if rule.transition and old is MISSING:
            continue
        # Ratcheting: a rule about the state alone is not judged again where the state did not change.
        if unchanged and (rule.keeps_equal or not rule.transition):
            continue
        _run(rule, schema, value, old, path, errors)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            known = schema.properties.get(name)
            child = known or schema.additional
            if child is not None and child.has_rules:
                where = _join(path, name) if known is not None else f"{path}[{name}]"
                _check(child, item, before.get(name, MISSING), where, errors)
    elif isinstance(value, list) and schema.items is not None and schema.items.has_rules:
        for index, item in enumerate(value):
            _check(schema.items, item, list_counterpart(schema, item, old), f"{path}[{index}]", errors)


def _run(rule: Rule, schema: Schema, value: Any, old: Any, path: str, errors: list[FieldError]) -> None:
    before = old if rule.transition else MISSING
    try:
        if rule.condition.evaluate(value, before) is True:
            return
        detail = _message(rule, value, before)
    except FAILURES as error:
        detail = f"rule evaluation error: {error}"
    where = f"{path}{rule.field_path}" if path else rule.field_path.removeprefix(".")
    kind = "string" if schema.int_or_string else schema.type
    if rule.reason == "FieldValueInvalid":
        text = f'Invalid value: "{kind}": {detail}'
    elif rule.reason == "FieldValueForbidden":
        text = f"Forbidden: {detail}"
    elif rule.reason == "FieldValueRequired":
        text = f"Required value: {detail}"
    else:
        text = f'Duplicate value: "{kind}"'
    errors.append(FieldError(where or "<nil>", rule.reason, text))


def _message(rule: Rule, value: Any, old: Any) -> str:
    """What the messageExpression says; the message where it fails, says nothing, or says more than one line."""
    told: Any = ""
    if rule.told is not None:
        with contextlib.suppress(*FAILURES):
            told = rule.told.evaluate(value, old)
    if (
        isinstance(told, str)
        and (told := told.strip())
        and "\n" not in told
        and len(told.encode()) <= MESSAGE_MAX_BYTES
    ):
        return told
    return rule.message or f"failed rule: {rule.source}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
