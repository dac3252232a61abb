"""Every call of the API that a folder of code makes, as RBAC sees it: group, resource, verb.

A call is one of the thin client's methods with a kind as its first argument. Where the kind is a variable, the places
that give it its value are looked up: a loop or comprehension over kinds, a table of kinds, or the callers of the
function whose parameter it is. What can't be told is an error, never an omission.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kafkalite_runtime.kube import kinds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VERBS = {
    "get": {"get"},
    "list": {"list"},
    "watch": {"watch"},
    "create": {"create"},
    "replace": {"update"},
    "json_patch": {"patch"},
    "merge_patch": {"patch"},
    "delete": {"delete"},
}
Permission = tuple[str, str, str]


class Calls:
    """The calls of some modules, which may call one another."""

    def __init__(self, modules: Iterable[Path]) -> None:
        self._trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules}
        self._functions: dict[ast.AST, ast.AST] = {}
        for tree in self._trees.values():
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._functions |= {child: function for child in ast.walk(function) if child is not function}

    def of(self, *modules: Path) -> set[Permission]:
        """What has to be permitted for the calls in these modules."""
        found: set[Permission] = set()
        for tree in (self._trees[path] for path in modules):
            for node in ast.walk(tree):
                if not self._is_call_of_client(node):
                    continue
                subresource = next((k.value.value for k in node.keywords if k.arg == "subresource"), "")
                for kind in self._kinds(node.args[0], node, tree):
                    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
                    found |= {(kind.group, resource, verb) for verb in VERBS[node.func.attr]}
        return found

    def _is_call_of_client(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS):
            return False
        owner = node.func.value
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        return name in {"_client", "client"}

    def _kinds(self, expression: ast.expr, place: ast.AST, tree: ast.Module) -> set[kinds.Kind]:
        """The kinds that an expression may stand for."""
        if isinstance(expression, ast.Tuple | ast.List):
            return set().union(*(self._kinds(item, place, tree) for item in expression.elts))
        if isinstance(expression, ast.Subscript):
            return self._kinds(expression.value, place, tree)
        if isinstance(expression, ast.DictComp):  # a table of kinds, made by a loop over them
            return set().union(*(self._kinds(loop.iter, place, tree) for loop in expression.generators))
        assert isinstance(expression, ast.Name), ast.dump(expression)
        kind = getattr(kinds, expression.id, None)
        if isinstance(kind, kinds.Kind):
            return {kind}
        return self._kinds_of_variable(expression.id, place, tree)

    def _kinds_of_variable(self, name: str, place: ast.AST, tree: ast.Module) -> set[kinds.Kind]:
        function = self._functions.get(place)
        for node in ast.walk(function or tree):
            if (
                isinstance(node, ast.For | ast.AsyncFor)
                and isinstance(node.target, ast.Name)
                and node.target.id == name
            ):
                return self._kinds(node.iter, place, tree)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                return self._kinds(node.value, place, tree)
        if function is not None and name in [argument.arg for argument in function.args.args]:
            return self._kinds_of_parameter(function, name)
        if function is not None:
            return self._kinds_of_variable(name, tree, tree)  # a global
        raise AssertionError(f"which kinds {name} stands for in line {place.lineno} cannot be told")

    def _kinds_of_parameter(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> set[kinds.Kind]:
        names = [argument.arg for argument in function.args.args if argument.arg != "self"]
        found: set[kinds.Kind] = set()
        for tree in self._trees.values():
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Call)
                    and getattr(node.func, "attr", getattr(node.func, "id", "")) == function.name
                ):
                    found |= self._kinds(node.args[names.index(name)], node, tree)
        assert found, f"nobody calls {function.name}"
        return found


def granted(role: dict) -> set[Permission]:
    """What a Role or ClusterRole permits."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
