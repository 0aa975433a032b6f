"""The line of the call that made a loss: ``criterion(...)`` rather than ``loss.backward()`` below it."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from pathlib import Path

from steadytrain.capture.looks.syntax_trees import last_name, names_read, names_stored, scopes, statements, walk
from steadytrain.capture.step.script_frames import user_frames

ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def loss_place() -> str:
    """Where the script made the loss whose backward begins, such as ``train.py:17``; where that cannot be read, the
    innermost line of the script."""
    frames = user_frames()
    if not frames:
        return "the loss"
    file = frames[0].code.co_filename
    return f"{Path(file).name}:{_line_of_loss(file, frames[0].line)}"


@lru_cache(maxsize=64)
def _line_of_loss(file: str, line: int) -> int:
    """The only line of a function that assigns the loss of the backward in ``line`` from a call or as a sum of other
    losses, else ``line``."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return line
    for scope in scopes(tree):
        for node in statements(scope):
            if isinstance(node, ast.Call) and last_name(node.func) == "backward":
                here = node.lineno <= line <= (node.end_lineno or line)
                if here and (name := _loss_of(node)):
                    return _made_at(scope, name, line) or line
    return line


def _loss_of(backward: ast.Call) -> str:
    """The variable in ``loss.backward()``, ``(loss / 4).backward()``, ``accelerator.backward(loss)`` and the like."""
    asked: ast.expr = backward.func.value if isinstance(backward.func, ast.Attribute) else backward.func
    if backward.args:
        asked = backward.args[0]
    while not isinstance(asked, ast.Name):
        if isinstance(asked, ast.Call) and asked.args:
            asked = asked.args[0]
        elif isinstance(asked, ast.BinOp):
            asked = asked.left
        else:
            return ""
    return asked.id


def _made_at(scope: ast.AST, name: str, line: int) -> int | None:
    """None if several assignments make it, or none that calls something or adds. One that only scales it makes
    nothing."""
    made = [
        node.value
        for node in statements(scope)
        if isinstance(node, ASSIGNS)
        and node.lineno <= line
        and node.value is not None
        and name in names_stored(node)
        and not isinstance(node, ast.AugAssign)
        and name not in names_read(node.value)
    ]
    if len(made) != 1:
        return None
    makes = isinstance(made[0], ast.BinOp) or any(isinstance(one, ast.Call) for one in walk(made[0]))
    return made[0].lineno if makes else None
