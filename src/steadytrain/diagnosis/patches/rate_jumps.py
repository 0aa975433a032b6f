"""The recipe for a learning rate that jumped: the line of the jump sets the rate from before, all else stays.

The recorded rates tell which value is the jump's.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from steadytrain.diagnosis.patches.edits import CannotPatchError, Edit, Source, number, optimizers
from steadytrain.diagnosis.patches.settings import is_of, is_rate, number_of, written_rates
from steadytrain.diagnosis.patches.wound import RateJump, Wound

TOLERANCE = 1e-3
"""Relative difference of a written number and a recorded rate: windows hold fewer digits."""


def rate_before_jump(source: Source, wound: Wound) -> Iterator[Edit]:
    if wound.jump is None:
        raise CannotPatchError("the learning rate did not jump")
    place, text = place_of(source, wound.jump)
    yield source.replaced(place, text)
    for factor in _beside(source, place, wound.jump):
        yield source.replaced(factor, "1")


def _beside(source: Source, place: ast.expr, jump: RateJump) -> Iterator[ast.expr]:
    """The same factor for the rates of other optimizers, under the same condition: one event raises them all."""
    condition = _condition(source, place)
    for factor in _factors(source):
        alike = factor is not place and _near(number(factor), jump.after / jump.before)
        if alike and condition is not None and _condition(source, factor) is condition:
            yield factor


def _condition(source: Source, node: ast.AST) -> ast.If | None:
    above = source.parents.get(node)
    while above is not None and not isinstance(above, ast.If):
        above = source.parents.get(above)
    return above


def place_of(source: Source, jump: RateJump) -> tuple[ast.expr, str]:
    """The number that set the jump, and what stands there without it.

    Raises:
        CannotPatchError: no line of the script sets that rate, or several do.
    """
    several = len(list(optimizers(source))) > 1
    found: dict[ast.expr, str] = {}
    for node in written_rates(source):
        target = number_of(source, node)
        if target is not None and _near(number(target), jump.after) and _fits(source, node, several):
            found[target] = f"{jump.before:.6g}"
    for factor in _factors(source):
        if _near(number(factor), jump.after / jump.before) and _fits(source, factor, several):
            found[factor] = "1"
    if len(found) != 1:
        raise CannotPatchError(
            f"the learning rate jumped from {jump.before:.6g} to {jump.after:.6g} at step {jump.step}, and "
            + (f"{len(found)} lines set it to that" if found else "no line that sets it to that was found")
        )
    return next(iter(found.items()))


def _fits(source: Source, node: ast.AST, several: bool) -> bool:
    return not several or is_of(source, node, source.optimizer)


def _factors(source: Source) -> Iterator[ast.expr]:
    """The numbers that the rate is multiplied by: ``g["lr"] *= 10``, ``g["lr"] = g["lr"] * 10``."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult) and is_rate(node.target):
            yield node.value
        if isinstance(node, ast.Assign) and any(is_rate(one) for one in node.targets):
            made = node.value
            if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mult):
                pair = (made.left, made.right)
                yield from (own for own, other in (pair, pair[::-1]) if is_rate(other))


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=TOLERANCE)
