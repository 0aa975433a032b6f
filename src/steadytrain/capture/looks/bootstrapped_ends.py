"""Finds a value that is bootstrapped past the end of an episode: the script knows of the end and does not read it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import Scope, last_name, scopes, statements

DISCOUNT = re.compile(r"(?i)(.*_)?(gamma|discount\w*)")
NEXT = re.compile(r"(?i).*(next|nxt|target|tgt|max|best|bootstrap|q2|v2|s2|future).*")
END = re.compile(
    r"(?i)(.*_)?(b?d|dones?|terminals?|terminated|terminations?|ended|ends?|finished|dead|not_?dones?|nd)(_.*)?"
)
SHAPE_ONLY = re.compile(r"(zeros|ones|empty|full|rand|randn)_like|len")
FIELDS_MIN = 4
"""Variables of a transition: state, action, reward, next state, and whether it was the last."""


def unused_ends(tree: ast.Module) -> Iterator[int]:
    """The line of the bootstrapped value."""
    for scope in scopes(tree):
        line = _bootstrap(scope)
        if line is None:
            continue
        nodes = list(statements(scope))
        skipped = {id(one) for node in nodes if _is_of_shape(node) for one in ast.walk(node)}
        ends = {name for node in nodes for name in _ends_unpacked(node)} | _ends_given(scope)
        read = (one for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
        if ends and not ends & {one.id for one in read if id(one) not in skipped}:
            yield line


def _is_of_shape(node: ast.AST) -> bool:
    """A call such as ``torch.ones_like(done)``, which reads no value."""
    return isinstance(node, ast.Call) and SHAPE_ONLY.fullmatch(last_name(node.func)) is not None


def _bootstrap(scope: Scope) -> int | None:
    """``reward + gamma * value_of_next``."""
    for node in statements(scope):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side in (node.left, node.right):
                if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult) and _is_next(side):
                    return node.lineno
    return None


def _is_next(product: ast.BinOp) -> bool:
    words = {last_name(one) for one in ast.walk(product) if isinstance(one, (ast.Name, ast.Attribute))}
    discount = {one for one in words if DISCOUNT.fullmatch(one)}
    return bool(discount) and any(NEXT.fullmatch(one) for one in words - discount)


def _ends_given(scope: Scope) -> set[str]:
    """Arguments of a function that are named as the ends of episodes."""
    if isinstance(scope, ast.Module):
        return set()
    return {one.arg for one in scope.args.args if len(one.arg) > 1 and END.fullmatch(one.arg)}


def _ends_unpacked(node: ast.AST) -> Iterator[str]:
    """The last variable of a sampled transition, if its name says that it is the end of an episode."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.For) else []
    for target in targets:
        names = [one.id for one in target.elts if isinstance(one, ast.Name)] if isinstance(target, ast.Tuple) else []
        if len(names) >= FIELDS_MIN and END.fullmatch(names[-1]):
            yield names[-1]
