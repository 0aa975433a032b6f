"""Leaves out of a source what does not run: branches of flags whose values the module holds now."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import Any

from steadytrain.capture.looks.syntax_trees import dotted


class Pruned(ast.NodeTransformer):
    """Leaves out the branch that a flag of the module does not take, and puts its value where it is passed on."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def visit_If(self, node: ast.If) -> Any:
        taken = self._taken(node.test)
        if taken is None:
            return self.generic_visit(node)
        return [each for one in (node.body if taken else node.orelse) for each in _listed(self.visit(one))]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        taken = self._taken(node.test)
        return self.generic_visit(node) if taken is None else self.visit(node.body if taken else node.orelse)

    def visit_keyword(self, node: ast.keyword) -> Any:
        value = self._taken(node.value) if isinstance(node.value, (ast.Name, ast.Compare)) else None
        if value is not None:
            node.value = ast.copy_location(ast.Constant(value), node.value)
        return self.generic_visit(node)

    def _taken(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            known, wanted = _variable_of(test.left), test.comparators[0]
            if known and isinstance(wanted, ast.Constant):
                return (os.environ.get(known) == wanted.value) == isinstance(test.ops[0], ast.Eq)
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._taken(test.operand)
            return None if inner is None else not inner
        value = self._names.get(test.id) if isinstance(test, ast.Name) else None
        return value if type(value) is bool else None


def _variable_of(value: ast.expr) -> str:
    """The environment variable that ``os.environ.get(NAME)`` or ``os.getenv(NAME)`` reads, "" of all others."""
    called = dotted(value.func) if isinstance(value, ast.Call) and len(value.args) == 1 else ""
    name = value.args[0] if isinstance(value, ast.Call) and called in ("os.environ.get", "os.getenv") else None
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""


def _listed(nodes: Any) -> list[Any]:
    return nodes if isinstance(nodes, list) else [nodes] if nodes is not None else []
