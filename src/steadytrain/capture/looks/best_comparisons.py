"""Finds a best model that is kept by the wrong comparison: ``if val_loss > best_loss`` saves the worst one.

The name of the metric says which way it goes. Asked for are the name of a best value, which the body sets to the
metric, and a body that saves or copies a model; a metric whose sign is turned says nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.kept_by_reference import assigned
from steadytrain.capture.looks.plateau_modes import FALLS, RISES
from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

BEST = re.compile(r"(?i)(.*_)?best(_.*)?|(?i:best)\w*")
EITHER_WAY = re.compile(r"(?i)(?<![a-z])(scores?|returns?|m?ap)(?![a-z])")
NOT_BEST = re.compile(r"(?i)worst|hard|max_|_max|largest|highest|adv|attack")
KEEPS = re.compile(r"(?i).*(save|dump|checkpoint|state_dict|deepcopy).*")


def best_comparisons(tree: ast.Module) -> Iterator[int]:
    """The line of the comparison."""
    for scope in scopes(tree):
        nodes = list(statements(scope))
        for branch in (one for one in nodes if isinstance(one, ast.If)):
            test = branch.test
            if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not _keeps(branch.body):
                continue
            above = isinstance(test.ops[0], (ast.Gt, ast.GtE))
            if not above and not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
                continue
            score, best = test.left, test.comparators[0]
            if not BEST.fullmatch(_name(best)) and BEST.fullmatch(_name(score)):
                score, best, above = best, score, not above
            said = EITHER_WAY.sub("", _name(score).lower())
            rises, falls = (bool(kind.search(said)) for kind in (RISES, FALLS))
            if rises == falls or above is rises or not BEST.fullmatch(_name(best)) or _is_turned(score, nodes):
                continue
            if _begins_at_infinity(best, tree, above=above):
                continue
            words = _name(best) + _name(score) + getattr(scope, "name", "")
            kept = any(
                ast.unparse(target) == ast.unparse(best) and dotted(value) == dotted(score)
                for target, value in assigned(branch.body)
            )
            if kept and not NOT_BEST.search(words):
                yield branch.lineno


def _name(value: ast.expr) -> str:
    """``val_loss`` of ``val_loss``, ``self.val_loss`` and ``report["val_loss"]``."""
    if isinstance(value, ast.Subscript):
        key = value.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    return last_name(value)


def _keeps(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(one, ast.Call) and KEEPS.fullmatch(last_name(one.func)) for each in body for one in walk(each)
    )


def _begins_at_infinity(best: ast.expr, tree: ast.Module, *, above: bool) -> bool:
    """Whether the best value begins at the infinity that fits the comparison: this way is meant."""
    for target, value in assigned([one for one in walk(tree) if isinstance(one, (ast.Assign, ast.AnnAssign))]):
        text = ast.unparse(value)
        if ast.unparse(target) == ast.unparse(best) and "inf" in text and ("-" in text) is above:
            return True
    return False


def _is_turned(score: ast.expr, nodes: list[ast.AST]) -> bool:
    """Whether the sign of the metric is turned where it is made."""
    for target, value in assigned([one for one in nodes if isinstance(one, ast.Assign)]):
        if ast.unparse(target) == ast.unparse(score) and any(
            isinstance(one, (ast.USub, ast.Sub)) for one in walk(value)
        ):
            return True
    return False
