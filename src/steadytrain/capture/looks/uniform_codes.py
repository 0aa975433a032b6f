"""Finds a sampled code whose noise is uniform: ``mean + torch.rand_like(std) * std``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from steadytrain.capture.looks.syntax_trees import last_name, scopes, statements, walk

UNIFORM = ("rand_like", "rand")
SPREAD = re.compile(r"(?i)(.*_)?(std\w*|sigmas?|scale|stddev|log_?var\w*|log_?std\w*|log_?sigma)")
MEAN = re.compile(r"(?i)(.*_)?(mu\w*|means?|loc)")


def uniform_codes(tree: ast.Module) -> Iterator[int]:
    """The line of the draw."""
    for scope in scopes(tree):
        uniform: dict[str, int] = {}
        for node in statements(scope):
            if isinstance(node, ast.Assign):
                for name in (one.id for one in node.targets if isinstance(one, ast.Name)):
                    uniform.pop(name, None)
                    if _draws_uniform(node.value):
                        uniform[name] = node.lineno
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                for mean, product in ((node.left, node.right), (node.right, node.left)):
                    noise = _noise(mean, product, uniform)
                    if noise is not None:
                        yield uniform.get(last_name(noise), node.lineno)


def _noise(mean: ast.expr, product: ast.expr, uniform: Mapping[str, int]) -> ast.expr | None:
    """The uniform noise of ``mean + noise * spread``."""
    if (
        not MEAN.fullmatch(last_name(mean))
        or not isinstance(product, ast.BinOp)
        or not isinstance(product.op, ast.Mult)
    ):
        return None
    for noise, spread in ((product.left, product.right), (product.right, product.left)):
        words = {last_name(one) for one in walk(spread) if isinstance(one, (ast.Name, ast.Attribute))}
        drawn = _draws_uniform(noise) or (isinstance(noise, ast.Name) and noise.id in uniform)
        if drawn and any(SPREAD.fullmatch(one) for one in words):
            return noise
    return None


def _draws_uniform(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in UNIFORM
