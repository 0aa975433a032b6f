"""Finds learned weights of losses that nothing holds up: training makes them small and the losses need not fall.

The mistake has two parts: a loss is multiplied by ``exp(-s)``, or divided by the square of ``s``, of a parameter ``s``;
and ``s`` occurs in no other term that is added (its logarithm, or itself, keeps it from growing).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.syntax_trees import dotted, last_name, names_read, statements, walk

SPREAD = re.compile(
    r"(?i)(.*[._])?(log_?(var|sigma|s|vars|sigmas|std)\w*|sigmas?|etas?|s|uncert\w*|task_?w\w*|loss_?w\w*)"
)
BOUNDS = frozenset({"softmax", "sigmoid", "clamp", "log", "norm", "log1p"})
LOSS = re.compile(r"(?i).*(loss|losses|stack|err|nll|mse|ce|bce|l1|objective|terms?).*|l\d?")


def free_weights(tree: ast.Module) -> Iterator[int]:
    """The line that weighs the loss."""
    learned = _parameters(tree)
    for scope in (one for one in walk(tree) if isinstance(one, (ast.FunctionDef, ast.Module))):
        nodes = statements(scope)
        names = _names(nodes, learned)
        for one in nodes:
            if isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Mult, ast.Div)):
                spread = _weighs(one, names)
                if spread and not _is_held(nodes, spread, names):
                    yield one.lineno
                    return


def _parameters(tree: ast.Module) -> set[str]:
    """Parameters by the name of a spread: ``self.log_var = nn.Parameter(...)``, a tensor that requires a gradient."""
    found: set[str] = set()
    for one in walk(tree):
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call):
            learns = last_name(one.value.func) in ("Parameter", "ParameterList", "ParameterDict") or any(
                each.arg == "requires_grad" and getattr(each.value, "value", None) is True
                for each in one.value.keywords
            )
            if learns:
                found |= {dotted(target) for target in one.targets if SPREAD.fullmatch(dotted(target))}
    return {each for name in found for each in (name, name.removeprefix("self."))}


def _names(nodes: Sequence[ast.AST], learned: set[str]) -> dict[str, str]:
    """What a variable of a scope is made of: the parameter, by its last name."""
    names = {name: name.rpartition(".")[2] for name in learned}
    for one in nodes:
        if isinstance(one, ast.Assign) and len(one.targets) == 1:
            of = _of(one.value, names)
            weighs = any(LOSS.fullmatch(name) for name in names_read(one.value))
            is_part = isinstance(one.value, (ast.Subscript, ast.Attribute))
            if of and not weighs and (is_part or _is_precision(one.value)):
                names[dotted(one.targets[0])] = of
        elif isinstance(one, (ast.For, ast.comprehension)):
            of = _of(one.iter, names)
            for target in walk(one.target):
                if of and isinstance(target, ast.Name) and SPREAD.fullmatch(target.id):
                    names[target.id] = of
    return {name: of for name, of in names.items() if name}


def _of(value: ast.AST, names: dict[str, str]) -> str:
    """The parameter that ``value`` reads, "" without one."""
    for one in walk(value):
        name = dotted(one) if isinstance(one, (ast.Name, ast.Attribute)) else ""
        of = names.get(name) or next((names[each] for each in names if name.endswith("." + each)), "")
        if name and of:
            return of
    return ""


def _is_precision(value: ast.AST) -> bool:
    """Whether ``value`` is ``exp(-s)``, or one over a square."""
    return any(
        (isinstance(one, ast.Call) and last_name(one.func) in ("exp", "square", "pow", "reciprocal"))
        or (isinstance(one, ast.BinOp) and isinstance(one.op, ast.Pow))
        for one in walk(value)
    )


def _weighs(node: ast.BinOp, names: dict[str, str]) -> str:
    """The parameter whose ``exp(-s)`` a loss is multiplied by, "" without one."""
    for weight, loss in ((node.left, node.right), (node.right, node.left)):
        of = _of(weight, names)
        is_loss = any(LOSS.fullmatch(name) for name in names_read(loss)) and not _of(loss, names)
        made = _is_precision(weight) or (isinstance(weight, (ast.Name, ast.Subscript)) and of)
        if of and is_loss and made and (isinstance(node.op, ast.Mult) or weight is node.right):
            return of
    return ""


def _is_held(nodes: Sequence[ast.AST], spread: str, names: dict[str, str]) -> bool:
    """Whether the parameter is in a term of its own that is added, goes through a softmax, or is bounded."""
    for one in nodes:
        bounds = isinstance(one, ast.Call) and last_name(one.func) in BOUNDS
        if bounds and isinstance(one, ast.Call) and any(_of(each, names) == spread for each in (*one.args, one.func)):
            return True
        parts: list[ast.expr] = []
        if isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Add, ast.Sub)):
            parts = [one.left, one.right]
        elif isinstance(one, ast.AugAssign) and isinstance(one.op, (ast.Add, ast.Sub)):
            parts = [one.value]
        for part in parts:
            if (
                _of(part, names) == spread
                and not any(LOSS.fullmatch(name) for name in names_read(part))
                and not _is_precision(part)
            ):
                return True
    return False
