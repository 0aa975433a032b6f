"""Finds a term of a loss that has the wrong sign, so that training drives it the wrong way.

Followed are three quantities with a known sense: the product of log-probabilities and advantages, and the entropy of a
policy, which are to be maximised, and the divergence of a code from its prior, which is to be minimised. The sign of
each is followed through sums, means, coefficients, lists and functions of the script up to the loss that is
backpropagated. Nothing is said of a term that occurs with both signs, of a factor whose sign is not known, and where an
optimizer maximises.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from steadytrain.capture.looks.syntax_trees import dotted, given_values, last_name, number_of, scopes, statements, walk

LOG_PROBABILITY = re.compile(r"(?i)(.*_)?(log_?prob\w*|logp\w*|log_pi\w*|saved_log\w*|ratios?|prob_ratio)")
ADVANTAGE = re.compile(
    r"(?i)(.*_)?(adv\w*|returns?|rets?|rewards?|rews?|gae|discounted\w*|disc_r\w*|td_errors?|deltas?|credits?)(_t)?|[GRA]"
)
COST = re.compile(r"(?i)(.*_)?(costs?|regrets?|penalt\w+)")
LOG_VARIANCE = re.compile(r"(?i)(.*_)?(log_?var\w*|log_?sigma\w*|lv|logv|log_?std\w*)")
PASSES_ON = frozenset(
    {"mean", "sum", "squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "to", "detach", "clamp", "stack"}
    | {"cat", "min", "minimum", "abs_", "div", "nanmean", "tensor", "scale", "item"}
)
Signs = Mapping[str, frozenset[int]]
UNKNOWN = 0
DEPTH_MAX = 4
"""Functions within functions whose result is followed."""


@dataclass(frozen=True)
class _Known:
    """The functions of a source by name, its constants, and the depth of the calls followed so far."""

    functions: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, float]
    results: dict[str, list[Signs]]
    """The signs of each part of what functions return, as far as they were asked for."""

    depth: int = 0


def wrong_signs(tree: ast.Module) -> Iterator[int]:
    """The line of the backward of a loss with such a term."""
    if _maximises(tree):
        return
    known = _Known(_functions(tree), _constants(tree), {})
    is_of_policy = any(_is_policy(one) for one in walk(tree))
    of_costs = any(isinstance(one, ast.Name) and COST.fullmatch(one.id) for one in walk(tree))
    for scope in scopes(tree):
        if not _backpropagates(scope):
            continue
        signs = _signs_of_names(statements(scope), known)
        for loss, line in _losses(statements(scope)):
            found = _signs(loss, signs, known)
            entropy = is_of_policy and ("policy" in found or not found.keys() - {"entropy"})
            if (
                (_is_only(found, "policy", 1) and not of_costs)
                or _is_only(found, "divergence", -1)
                or (entropy and _is_only(found, "entropy", 1))
            ):
                yield line


# -- what is minimised -------------------------------------------------------------------------------------------------


def _losses(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, int]]:
    """The expressions that are backpropagated: ``loss.backward()``, ``accelerator.backward(loss)``."""
    for one in nodes:
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "backward":
            given = one.args[0] if one.args else one.func.value
            yield given, one.lineno


def _backpropagates(scope: ast.AST) -> bool:
    return any(True for _ in _losses(statements(scope)))


def _maximises(tree: ast.Module) -> bool:
    return any(
        isinstance(one, ast.keyword) and one.arg == "maximize" and getattr(one.value, "value", None) is not False
        for one in walk(tree)
    )


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions and methods whose name is unique."""
    found = [one for one in walk(tree) if isinstance(one, ast.FunctionDef)]
    names = [one.name for one in found]
    return {one.name: one for one in found if names.count(one.name) == 1}


def _constants(tree: ast.Module) -> dict[str, float]:
    """Numbers that are given to a name once: ``BETA = -0.01``, ``beta: float = 0.01``, ``"beta": 0.1`` not."""
    found: dict[str, list[float]] = {}
    for one in walk(tree):
        if isinstance(one, ast.Assign) and len(one.targets) == 1:
            found.setdefault(last_name(one.targets[0]), []).append(_number(one.value))
        elif isinstance(one, ast.AnnAssign) and one.value is not None:
            found.setdefault(last_name(one.target), []).append(_number(one.value))
        elif isinstance(one, ast.keyword) and one.arg is not None:
            found.setdefault(one.arg, []).append(_number(one.value))
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0]}


def _number(value: ast.expr) -> float:
    """The number that ``value`` is, 0 of all others."""
    return float(number_of(value) or 0.0)


# -- signs -------------------------------------------------------------------------------------------------------------


def _signs_of_names(nodes: Sequence[ast.AST], known: _Known) -> dict[str, Signs]:
    """The signs of what each variable of a scope holds, in the order of the source."""
    signs: dict[str, Signs] = {}
    for one in nodes:
        if isinstance(one, ast.Assign):
            _give(signs, one, known)
        elif isinstance(one, ast.AugAssign) and isinstance(one.op, (ast.Add, ast.Sub)):
            added = _signs(one.value, signs, known)
            name = dotted(one.target)
            signs[name] = _both(signs.get(name, {}), _negative(added) if isinstance(one.op, ast.Sub) else added)
        elif isinstance(one, ast.Call) and last_name(one.func) == "append" and isinstance(one.func, ast.Attribute):
            name = dotted(one.func.value)
            for given in one.args:
                signs[name] = _both(signs.get(name, {}), _signs(given, signs, known))
    return signs


def _give(signs: dict[str, Signs], node: ast.Assign, known: _Known) -> None:
    for name, value in given_values(node):
        if isinstance(name, ast.Tuple):
            parts = _parts(value, known) if isinstance(value, ast.Call) else []
            signs |= {dotted(each): found for each, found in zip(name.elts, parts, strict=False)}
        else:
            signs[dotted(name)] = _signs(value, signs, known)


def _signs(value: ast.expr, names: Mapping[str, Signs], known: _Known) -> Signs:
    """Whether each quantity grows with ``value`` (1) or falls (-1); 0 stands for a sign that is not known."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return _negative(_signs(value.operand, names, known))
    if isinstance(value, ast.BinOp):
        return _of_two(value, names, known)
    if isinstance(value, (ast.Name, ast.Attribute)):
        return names.get(dotted(value)) or _by_name(last_name(value))
    if isinstance(value, ast.Call):
        return _of_call(value, names, known)
    if isinstance(value, (ast.Tuple, ast.List)):
        return _all(_signs(one, names, known) for one in value.elts)
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return _signs(value.elt, names, known)
    if isinstance(value, ast.Subscript):
        return _signs(value.value, names, known)
    return {}


def _by_name(name: str) -> Signs:
    if LOG_PROBABILITY.fullmatch(name):
        return {"log-probability": frozenset({1})}
    if ADVANTAGE.fullmatch(name):
        return {"advantage": frozenset({1})}
    return {"advantage": frozenset({-1})} if COST.fullmatch(name) else {}


def _of_two(value: ast.BinOp, names: Mapping[str, Signs], known: _Known) -> Signs:
    divergence = _divergence(value)
    if divergence:
        return {"divergence": frozenset({divergence})}
    left, right = (_signs(one, names, known) for one in (value.left, value.right))
    if isinstance(value.op, ast.Add):
        return _both(left, right)
    if isinstance(value.op, ast.Sub):
        return _sums(_both(left, _negative(right)))
    if isinstance(value.op, ast.Div):
        return left
    if not isinstance(value.op, ast.Mult):
        return {}
    weighted = _weighted(left, right) or _weighted(right, left)
    if weighted:
        return weighted
    if left and right:
        return {kind: frozenset({UNKNOWN}) for kind in (*left, *right)}
    factor = value.right if left else value.left
    return _times(left or right, _sign_of(factor, known))


def _sums(signs: Signs) -> Signs:
    """A difference of advantages is one: ``returns - values``."""
    return {**signs, "advantage": frozenset({max(signs["advantage"])})} if "advantage" in signs else signs


def _weighted(one: Signs, other: Signs) -> Signs:
    """The product of log-probabilities and advantages."""
    if "log-probability" not in one or "advantage" not in other or len(one) > 1:
        return {}
    return {"policy": frozenset(a * b for a in one["log-probability"] for b in other["advantage"])}


def _divergence(value: ast.BinOp) -> int:
    """The sign with which ``1 + logvar - mu**2 - logvar.exp()`` holds a divergence, 0 if it is none."""
    terms = list(_terms(value, 1))
    spreads = [sign for sign, term in terms if _is_exponential(term)]
    logs = [sign for sign, term in terms if LOG_VARIANCE.fullmatch(last_name(term))]
    return spreads[0] if len(terms) >= 3 and len(spreads) == 1 and logs == [-spreads[0]] else 0


def _terms(value: ast.expr, sign: int) -> Iterator[tuple[int, ast.expr]]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        yield from _terms(value.left, sign)
        yield from _terms(value.right, -sign if isinstance(value.op, ast.Sub) else sign)
    elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        yield from _terms(value.operand, -sign)
    else:
        yield sign, value


def _is_exponential(value: ast.expr) -> bool:
    """Whether ``value`` is ``logvar.exp()`` or ``torch.exp(logvar)``."""
    if not isinstance(value, ast.Call) or last_name(value.func) != "exp":
        return False
    inner = value.args[0] if value.args else value.func.value if isinstance(value.func, ast.Attribute) else value
    return LOG_VARIANCE.fullmatch(last_name(inner)) is not None


def _of_call(value: ast.Call, names: Mapping[str, Signs], known: _Known) -> Signs:
    name = last_name(value.func)
    holder = value.func.value if isinstance(value.func, ast.Attribute) else None
    of_torch = holder is None or dotted(holder) in ("torch", "F", "nn.functional", "torch.nn.functional")
    if name == "entropy" and not value.args:
        return {"entropy": frozenset({1})}
    if name == "log_prob":
        return {"log-probability": frozenset({1})}
    if name == "kl_divergence":
        return {"divergence": frozenset({1})}
    if name in ("cross_entropy", "nll_loss") and any(one.arg == "reduction" for one in value.keywords):
        return {"log-probability": frozenset({-1})}
    if name == "neg" and holder is not None:
        return _negative(_signs(value.args[0] if of_torch and value.args else holder, names, known))
    if name in known.functions and known.depth < DEPTH_MAX:
        results = _parts(value, known)
        return results[0] if len(results) == 1 else {}
    if name in PASSES_ON:
        parts = value.args if of_torch else [holder, *(value.args if name in ("min", "minimum") else [])]
        return _all(_signs(one, names, known) for one in parts if one is not None)
    if name == "gather" and not of_torch and holder is not None:
        return _signs(holder, names, known)
    return {"log-probability": frozenset({1})} if name == "log_softmax" else {}


def _parts(call: ast.Call, known: _Known) -> list[Signs]:
    """The signs of what a function of the script returns, of each part of a tuple; empty if that is not known."""
    function = known.functions.get(last_name(call.func))
    if function is None or known.depth >= DEPTH_MAX:
        return []
    if function.name not in known.results:
        known.results[function.name] = []  # of one that calls itself
        known.results[function.name] = _returned(function, replace(known, depth=known.depth + 1))
    return known.results[function.name]


def _returned(function: ast.FunctionDef, known: _Known) -> list[Signs]:
    nodes = statements(function)
    returned = [one.value for one in nodes if isinstance(one, ast.Return) and one.value is not None]
    if len(returned) != 1:
        return []
    signs = _signs_of_names(nodes, known)
    parts = returned[0].elts if isinstance(returned[0], ast.Tuple) else returned
    return [_signs(one, signs, known) for one in parts]


def _is_only(signs: Signs, kind: str, sign: int) -> bool:
    return signs.get(kind, frozenset()) == frozenset({sign})


# -- algebra -----------------------------------------------------------------------------------------------------------


def _sign_of(factor: ast.expr, known: _Known) -> int:
    """The sign of a factor: that of its number, of the constant of its name, 1 of a name that no number is given to."""
    number = _number(factor)
    if number:
        return 1 if number > 0 else -1
    if isinstance(factor, ast.UnaryOp) and isinstance(factor.op, ast.USub):
        return -_sign_of(factor.operand, known)
    if isinstance(factor, ast.BinOp) and isinstance(factor.op, (ast.Mult, ast.Div)):
        return _sign_of(factor.left, known) * _sign_of(factor.right, known)
    named = known.constants.get(last_name(factor), 1.0) if isinstance(factor, (ast.Name, ast.Attribute)) else 0.0
    return (named > 0) - (named < 0)


def _times(signs: Signs, sign: int) -> Signs:
    return {kind: frozenset(sign * one for one in found) for kind, found in signs.items()}


def _negative(signs: Signs) -> Signs:
    return _times(signs, -1)


def _both(one: Signs, other: Signs) -> Signs:
    return {kind: one.get(kind, frozenset()) | other.get(kind, frozenset()) for kind in {*one, *other}}


def _all(parts: Iterator[Signs]) -> Signs:
    found: Signs = {}
    for one in parts:
        found = _both(found, one)
    return found


def _is_policy(node: ast.AST) -> bool:
    """Whether ``node`` asks a distribution for the log-probability of an action."""
    return isinstance(node, ast.Call) and last_name(node.func) == "log_prob"
