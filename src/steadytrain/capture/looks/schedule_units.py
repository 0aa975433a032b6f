"""Finds a schedule whose length is a number of passes over the data, and that is stepped once for each batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk

SCHEDULES = re.compile(
    r"CosineAnnealingLR|LinearLR|PolynomialLR|OneCycleLR|get_\w*schedule\w*|\w*(Cosine|Warm\w*up|Poly|Linear)\w*LR"
)
LENGTHS = ("T_max", "total_iters", "total_steps", "num_training_steps", "max_epochs")
PASSES = re.compile(r"(?i)_*(num_|n_|max_|total_)*epochs?")


def epochs_per_batch(tree: ast.Module) -> Iterator[int]:
    """The line of a schedule of ``epochs`` steps: its ``step()`` is in a loop inside ``for epoch in range(epochs)``."""
    lengths: dict[str, tuple[str, int]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            passes = _passes_of(node.value)
            if passes:
                lengths |= {last_name(target): (passes, node.value.lineno) for target in node.targets}
    for loop in (node for node in walk(tree) if isinstance(node, ast.For)):
        passes = _ranges_over(loop)
        stepped = _stepped_within(loop) if passes else set()
        yield from sorted(line for name, (length, line) in lengths.items() if name in stepped and length == passes)


def _passes_of(call: ast.Call) -> str:
    """The variable that is the schedule's length, if it is a number of passes by its name; "" if it is not."""
    if not SCHEDULES.fullmatch(last_name(call.func)):
        return ""
    given = [one.value for one in call.keywords if one.arg in LENGTHS]
    given += call.args[1:2] if last_name(call.func) == "CosineAnnealingLR" else []
    return next((name for one in given if (name := _passes(one))), "")


def _ranges_over(loop: ast.For) -> str:
    """``epochs`` of ``for epoch in range(epochs)``, of ``range(1, epochs + 1)`` and of a progress bar around it."""
    calls = [one for one in walk(loop.iter) if isinstance(one, ast.Call) and last_name(one.func) in ("range", "trange")]
    ends = [one.args[-1] if len(one.args) < 3 else one.args[1] for one in calls if one.args]
    return next(
        (name for end in ends for part in walk(end) if isinstance(part, ast.expr) and (name := _passes(part))), ""
    )


def _stepped_within(loop: ast.For) -> set[str]:
    """The objects whose ``step()`` is called in a loop inside ``loop``, in each of its passes."""
    inner = [one for one in walk(loop) if isinstance(one, ast.For) and one is not loop]
    return {
        last_name(node.value.func.value)
        for each in inner
        for node in _always(each.body)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "step"
    }


def _always(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run in every pass of a loop: none under a condition that may mean the end of an epoch."""
    for node in body:
        if isinstance(node, ast.With):
            yield from _always(node.body)
        else:
            yield node


def _passes(value: ast.expr) -> str:
    name = last_name(value)
    return name.lower().lstrip("_") if PASSES.fullmatch(name) else ""
