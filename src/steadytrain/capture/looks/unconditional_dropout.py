"""Reads the source of a model's ``forward`` for a functional dropout that evaluation mode does not turn off.

``F.dropout(x, p)`` draws by default, whatever mode the model is in; so does ``nn.Dropout(p)(x)`` inside ``forward``. A
call that is given ``training``, or stands under a condition that names it, is none.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from steadytrain.core.own_errors import own

NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
MODULES = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
CLASSES_MAX = 32


def unconditional_dropout(module: nn.Module) -> str:
    """The first such call in a class of the script inside ``module``, as ``F.dropout in train.py:30``; else empty."""
    classes = dict.fromkeys(type(one) for one in module.modules() if not type(one).__module__.startswith("torch."))
    for cls in list(classes)[:CLASSES_MAX]:
        try:
            lines, first = inspect.getsourcelines(cls.forward)
            tree = ast.parse(textwrap.dedent("".join(lines)))
            file = Path(inspect.getsourcefile(cls.forward) or "").name
        except own(OSError, TypeError, SyntaxError, AttributeError, tokenize.TokenError):
            continue
        known = getattr(cls.forward, "__globals__", {})
        for call in _calls(tree):
            if _draws(call, known):
                return f"{ast.unparse(call.func)} in {file}:{first + call.lineno - 1}"
    return ""


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """All calls that stand under no condition about training."""
    if isinstance(node, (ast.If, ast.IfExp)) and _names_training(node.test):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _names_training(node: ast.AST) -> bool:
    names = (one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in ast.walk(node))
    return any("train" in name for name in names)


def _draws(call: ast.Call, known: dict[str, Any]) -> bool:
    if isinstance(call.func, ast.Call):
        made = _value(call.func.func, known)
        return any(made is getattr(nn, name) for name in MODULES) and not _is_zero(call.func, 0)
    function = _value(call.func, known)
    if function is None or not any(function is getattr(nn.functional, name) for name in NAMES):
        return False
    given = {one.arg for one in call.keywords}
    return len(call.args) < 3 and not given & {"training", None} and not _is_zero(call, 1)


def _is_zero(call: ast.Call, at: int) -> bool:
    rate = next((one.value for one in call.keywords if one.arg == "p"), call.args[at] if len(call.args) > at else None)
    return isinstance(rate, ast.Constant) and rate.value == 0


def _value(node: ast.AST, known: dict[str, Any]) -> Any:
    """What a dotted name of modules stands for; None for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, known)
        return getattr(owner, node.attr, None) if inspect.ismodule(owner) else None
    return None
