"""Finds closures that draw new random numbers, or a new batch, at each call, and are given to L-BFGS.

L-BFGS evaluates its closure many times in a step, and takes the differences of these gradients for the curvature of
one function. If each call has other points, they are mostly noise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import assignments, dotted, last_name, names_called, walk

MAKES = re.compile(r"(\w+)?L_?BFGS\w*")
DRAWS = re.compile(
    r"rand|randn|randint|randperm|rand_like|randn_like|uniform_?|normal_?|multinomial|choice|choices|r?sample|shuffle"
    r"|permutation|random_sample|standard_normal|latin_hypercube|lhs"
)
SEEDS = re.compile(r"manual_seed|seed|seed_all|set_state|set_rng_state|fork_rng")


def changing_closures(tree: ast.Module) -> Iterator[int]:
    """The lines of such draws."""
    makers = {
        dotted(target)
        for target, value in assignments(walk(tree))
        if isinstance(value, ast.Call) and MAKES.fullmatch(last_name(value.func))
    } - {""}
    if not makers:
        return
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    given = {
        one.id
        for node in walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func) == "step"
        if isinstance(node.func, ast.Attribute) and dotted(node.func.value) in makers
        for one in (*node.args, *(each.value for each in node.keywords))
        if isinstance(one, ast.Name)
    }
    for name in sorted(given):
        for closure in functions.get(name, ()):
            yield from _draws_in(closure, functions)


def _draws_in(closure: ast.FunctionDef, functions: dict[str, list[ast.FunctionDef]]) -> Iterator[int]:
    """The first line of ``closure`` that draws, itself or in a function of the file that it calls."""
    if any(SEEDS.fullmatch(name) for name in names_called(closure)):
        return
    for node in walk(closure):
        if not isinstance(node, ast.Call):
            continue
        name = last_name(node.func)
        called = functions.get(name, [])
        if _draws(node) or (len(called) == 1 and called[0] is not closure and _function_draws(called[0])):
            yield node.lineno
            return


def _draws(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id == "next":
        return True
    return isinstance(call.func, ast.Attribute) and bool(DRAWS.fullmatch(call.func.attr))


def _function_draws(function: ast.FunctionDef) -> bool:
    """Whether a function draws, without a seed of its own. Noise of a layer (dropout in ``forward``) is not meant."""
    calls = [one for one in walk(function) if isinstance(one, ast.Call)]
    seeded = any(SEEDS.fullmatch(last_name(one.func)) for one in calls)
    return not seeded and function.name not in ("forward", "__init__") and any(_draws(one) for one in calls)
