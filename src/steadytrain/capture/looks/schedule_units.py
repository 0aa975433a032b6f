"""Finds a schedule whose length is a number of passes over the data, and that is stepped once for each batch; and one
whose length is a number of updates, and that is stepped once for each pass."""

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


def updates_per_epoch(tree: ast.Module) -> Iterator[int]:
    """The line of a schedule of ``epochs * len(loader)`` steps: its ``step()`` is in the loop over the epochs, and in
    no loop inside of it but under a condition on a setting."""
    assigned = [node for node in walk(tree) if isinstance(node, ast.Assign)]
    products = {last_name(one) for node in assigned if _is_product(node.value) for one in node.targets}
    lengths = {
        last_name(target): node.value.lineno
        for node in assigned
        if isinstance(node.value, ast.Call)
        for target in node.targets
        if _is_schedule(target, node.value) and any(_counts_updates(one, products) for one in _given(node.value))
    }
    loops = [node for node in walk(tree) if isinstance(node, ast.For)] if lengths else []
    outer = [loop for loop in loops if "epoch" in last_name(loop.target).lower() or _ranges_over(loop)]
    for name, line in sorted(lengths.items(), key=lambda one: one[1]):
        once = any(_steps(name, statement) for loop in outer for statement in _at_level(loop.body, loops=False))
        inside = [inner for loop in outer for inner in walk(loop) if isinstance(inner, (ast.For, ast.While))]
        each = any(
            _steps(name, statement)
            for inner in inside
            if inner not in outer
            for statement in _at_level(inner.body, loops=True)
        )
        elsewhere = _steps_in_functions(tree, name, outer)
        if once and not each and not elsewhere:
            yield line


def _is_schedule(target: ast.expr, call: ast.Call) -> bool:
    made = last_name(call.func)
    return bool(SCHEDULES.fullmatch(made)) or made == "LambdaLR" or "sched" in last_name(target).lower()


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _is_product(value: ast.expr) -> bool:
    """Whether it is a number of epochs times one of batches, as ``epochs * len(loader) // accumulation``."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and any(_names_epochs(one) and _counts_batches(other) for one, other in _both_ways(node))
        for node in walk(value)
        if isinstance(node, ast.expr)
    )


def _both_ways(node: ast.BinOp) -> tuple[tuple[ast.expr, ast.expr], ...]:
    return (node.left, node.right), (node.right, node.left)


def _names_epochs(value: ast.expr) -> bool:
    text = ast.unparse(value)
    return bool(re.search(r"(?i)(^|[^a-z])epochs?([^a-z]|$)|epochs", text)) and "len(" not in text


def _counts_batches(value: ast.expr) -> bool:
    return bool(
        re.search(
            r"(?i)\blen\(|\b(num_|n_)?(steps|iters|iterations|batches|updates)(_per_epoch)?\b", ast.unparse(value)
        )
    )


def _counts_updates(value: ast.expr, products: set[str]) -> bool:
    return _is_product(value) or (isinstance(value, (ast.Name, ast.Attribute)) and last_name(value) in products)


def _at_level(body: list[ast.stmt], *, loops: bool) -> Iterator[ast.stmt]:
    """The statements of one pass of a loop, without those of loops in it. ``loops``: without those under a condition on
    a name alone, a setting, either."""
    for node in body:
        if isinstance(node, ast.If):
            if not (loops and _is_setting(node.test)):
                yield from _at_level([*node.body, *node.orelse], loops=loops)
        elif isinstance(node, (ast.With, ast.Try)):
            yield from _at_level(node.body, loops=loops)
        elif not isinstance(node, (ast.For, ast.While)):
            yield node


def _is_setting(test: ast.expr) -> bool:
    test = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(test, (ast.Name, ast.Attribute))


def _steps(name: str, statement: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and last_name(node.func.value) == name
        for node in walk(statement)
    )


def _steps_in_functions(tree: ast.Module, name: str, outer: list[ast.For]) -> bool:
    """Whether a function without a loop over epochs steps something of that name: it may be called for each batch."""
    functions = [node for node in walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return any(_steps(name, one) and not any(loop in walk(one) for loop in outer) for one in functions)


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
