"""The form of a logarithm of probabilities that takes scores and needs no bound: what to write in the long run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.diagnosis.patches.edits import Source, assigned, name_of, number
from steadytrain.diagnosis.patches.safe_values import expressions_of, of_tensors
from steadytrain.diagnosis.patches.wound import Wound

OF_TWO = "binary_cross_entropy_with_logits of the scores in place of the two logarithms"
OF_SIGMOID = "logsigmoid of the scores, or binary_cross_entropy_with_logits, in place of the logarithm of a sigmoid"
OF_SOFTMAX = "log_softmax of the scores, or cross_entropy, in place of the logarithm of a softmax"


def lasting_form(source: Source, wound: Wound) -> str:
    """What lasts, where the line takes logarithms of probabilities; "" elsewhere."""
    logs = [node for node in expressions_of(source, wound.line or 0) if of_tensors(node, "log")]
    arguments = [_bare(one) for call in logs for one in _argument(call)]
    texts = {ast.unparse(one) for one in arguments}
    if any(ast.unparse(rest) in texts for one in arguments if (rest := _rest_of_one(one)) is not None):
        return OF_TWO
    made = {name_of(part) for one in arguments for part in _makers(source, one)}
    return OF_SIGMOID if "sigmoid" in made else OF_SOFTMAX if "softmax" in made else ""


def _argument(call: ast.Call) -> Iterator[ast.expr]:
    if call.args:
        yield call.args[0]
    elif isinstance(call.func, ast.Attribute):
        yield call.func.value


def _bare(node: ast.expr) -> ast.expr:
    """``p`` of ``p + 1e-8`` and of ``p.clamp(...)``: a bound that did not suffice."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and number(node.right) is not None:
        return _bare(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("clamp", "clip"):
        return _bare(node.func.value)
    return node


def _rest_of_one(node: ast.expr) -> ast.expr | None:
    """``p`` of ``1 - p``."""
    is_rest = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and number(node.left) == 1
    return _bare(node.right) if is_rest else None  # type: ignore[attr-defined]


def _makers(source: Source, node: ast.expr) -> Iterator[ast.Call]:
    """The call that makes the value of an expression, where it stands there or its name is assigned once."""
    if isinstance(node, ast.Name):
        values = assigned(source, node.id)
        node = values[0] if len(values) == 1 else node
    if isinstance(node, ast.Call):
        yield node
