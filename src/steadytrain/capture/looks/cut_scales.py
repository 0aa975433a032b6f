"""Finds a scale that the script makes positive by a cut or a bare square: ``variance = relu(raw) + 1e-6``.

Where the network's output is negative, the variance stands at the floor: a likelihood divides by it, explodes, and its
gradient does not reach the network. A square has the same floor where the output passes 0. Asked for are a name of a
scale, a cut or square of what a layer gives, a floor near 0, and a use as a scale: in a logarithm, below a fraction, or
in a distribution.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import assignments, dotted, last_name, number_of, scopes, statements, walk

SCALES = re.compile(
    r"(?i)(.*_)?(var|variance|sigmas?|std|stddev|std_?dev|scales?|sd|temperature|conc|concentrations?|kappa|sigma_?sq|sigma2|spread"
    r"|precision|width)(_.*)?\d?"
)
CUTS = frozenset({"relu", "relu6", "threshold", "clamp", "clamp_min", "clip"})
POSITIVE = frozenset(
    {
        "softplus",
        "exp",
        "expm1",
        "sigmoid",
        "square",
        "abs",
        "pow",
        "elu",
        "celu",
        "norm",
        "var",
        "std",
        "softmax",
        "cumsum",
    }
    | {
        "mean",
        "sum",
        "logsumexp",
        "sqrt",
        "rsqrt",
        "cosh",
        "std_mean",
        "var_mean",
        "max",
        "min",
        "amax",
        "quantile",
        "item",
    }
)
"""What gives values above 0, or a statistic: a floor under those is a guard against a division by 0."""

LIKELIHOODS = frozenset(
    {
        "Normal",
        "Laplace",
        "Cauchy",
        "LogNormal",
        "StudentT",
        "Gumbel",
        "VonMises",
        "gaussian_nll_loss",
        "GaussianNLLLoss",
    }
    | {
        "MultivariateNormal",
        "Independent",
        "Gamma",
        "Beta",
        "NegativeBinomial",
        "HalfNormal",
        "Logistic",
        "log",
        "log2",
    }
)
FLOOR_MAX = 1e-2
SQUARE_FLOOR_MAX = 1e-6
"""Under a square, larger floors are common and harmless."""


def cut_scales(tree: ast.Module) -> Iterator[int]:
    """The lines of such cuts."""
    modules = {dotted(target): value for target, value in assignments(walk(tree)) if isinstance(value, ast.Call)}
    used = {name for node in walk(tree) for name in _used_as_scale(node)}
    losses = {last_name(target) for target, value in assignments(walk(tree)) if _makes_likelihood(value)}
    used |= {
        name
        for node in walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func) in losses
        for name in _given(node)
    }
    for scope in scopes(tree):
        given = {
            dotted(one): value
            for target, value in assignments(statements(scope))
            for one in (target.elts if isinstance(target, ast.Tuple) else [target])
        }
        for target, value in assignments(statements(scope)):
            name = last_name(target)
            if SCALES.fullmatch(name) and name in used and _is_cut(value, given, modules):
                yield value.lineno


def _makes_likelihood(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == "GaussianNLLLoss"


def _used_as_scale(node: ast.AST) -> Iterator[str]:
    """The names that stand in a logarithm, below a fraction or in a distribution."""
    if isinstance(node, ast.Call) and last_name(node.func) in LIKELIHOODS:
        yield from _given(node)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from (
            last_name(one) for one in (node.right, *walk(node.right)) if isinstance(one, (ast.Name, ast.Attribute))
        )


def _given(call: ast.Call) -> Iterator[str]:
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    for one in (*call.args, *(word.value for word in call.keywords), *owner):
        yield from (last_name(each) for each in (one, *walk(one)) if isinstance(each, (ast.Name, ast.Attribute)))


def _is_cut(value: ast.expr, given: dict[str, ast.expr], modules: dict[str, ast.Call]) -> bool:
    """Whether ``value`` is a layer's output, cut off at 0 or a tiny number."""
    floor, inner = _without_floor(value)
    if isinstance(value, ast.BinOp) and (squared := _squared(inner)) is not None:
        floors = [float(one) for one in map(number_of, (value.left, value.right)) if one is not None]
        return min(floors, default=1.0) <= SQUARE_FLOOR_MAX and _is_raw(squared, given)
    if not isinstance(inner, ast.Call):
        return False
    name = last_name(inner.func)
    if name in CUTS:
        if name in ("clamp", "clamp_min", "clip"):
            lowest = _lowest(inner)
            if lowest is None or not 0.0 <= lowest <= FLOOR_MAX:
                return False
        elif not floor:
            return False
        raw = _cut_value(inner)
        return raw is not None and _is_raw(raw, given)
    ends = modules.get(dotted(inner.func))
    return (
        floor
        and ends is not None
        and bool(ends.args)
        and _is_relu(ends.args[-1])
        and last_name(ends.func) == "Sequential"
    )


def _squared(node: ast.expr) -> ast.expr | None:
    """``raw`` of ``raw ** 2``, ``raw.square()`` and ``torch.square(raw)``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and number_of(node.right) == 2:
        return node.left
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("square", "pow"):
        return None
    if last_name(node.func) == "pow" and (not node.args or number_of(node.args[-1]) != 2):
        return None
    return _cut_value(node)


def _without_floor(value: ast.expr) -> tuple[bool, ast.expr]:
    """Whether a tiny number is added, and the other term."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        for number, other in ((value.left, value.right), (value.right, value.left)):
            found = number_of(number)
            named = re.fullmatch(r"(?i)(.*[._])?(eps\w*|tiny|min_\w+|floor|jitter)", dotted(number) or "-")
            if named or (found is not None and 0.0 < found <= FLOOR_MAX):
                return True, other
    return False, value


def _lowest(call: ast.Call) -> float | None:
    """The lower bound of a clamp, with nothing above; None if it is none."""
    if any(word.arg == "max" for word in call.keywords):
        return None
    by_name = [word.value for word in call.keywords if word.arg in ("min", "a_min")]
    plain = [one for one in call.args if number_of(one) is not None]
    if len(plain) > 1:
        return None
    found = (by_name or plain)[:1]
    return number_of(found[0]) if found else None


def _cut_value(call: ast.Call) -> ast.expr | None:
    """``raw`` of ``F.relu(raw)`` and of ``raw.clamp(min=0)``."""
    values = [one for one in call.args if number_of(one) is None]
    if values:
        return values[0]
    return (
        call.func.value
        if isinstance(call.func, ast.Attribute) and not isinstance(call.func.value, ast.Constant)
        else None
    )


def _is_raw(node: ast.expr, given: dict[str, ast.expr]) -> bool:
    """Whether it comes from a layer and passed nothing that makes it positive."""
    parts: list[ast.AST] = [node, *walk(node)]
    for one in list(parts):
        value = given.get(dotted(one)) if isinstance(one, ast.Name) else None
        if value is not None:
            parts += [value, *walk(value)]
    if any(
        isinstance(one, ast.Pow) or (isinstance(one, ast.Call) and last_name(one.func) in POSITIVE) for one in parts
    ):
        return False
    return any(_is_layer(one) for one in parts)


def _is_layer(node: ast.AST) -> bool:
    """A call of a module, such as ``self.head(h)``, ``head(h)`` or ``net(x).chunk(2)``."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    name = last_name(node.func)
    return name not in CUTS and name not in (
        "chunk",
        "split",
        "view",
        "reshape",
        "squeeze",
        "unsqueeze",
        "tensor",
        "range",
        "len",
    )


def _is_relu(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("ReLU", "ReLU6")
