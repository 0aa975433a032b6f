"""Finds a partial likelihood whose risk sets are the wrong way round.

The risk set of an event holds everybody who is followed at least as long. A cumulative sum from the front gives it only
if rows are sorted by falling time. Found is a cumulative sum of exponentials that is never flipped, beside a sort by
rising time, in a file that sorts no time downwards; or a mask of pairs that holds those who left earlier.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import assignments, dotted, last_name, number_of, scopes, statements, walk

TIME = re.compile(
    r"(?i)(\w+[._])?(y?_?times?|durations?|months|days|years|weeks|hours|surv(ival)?|follow_?up|t|tte|os|pfs|ttes?|t_obs"
    r"|obs_?t(ime)?s?|event_?times?|survival_?times?|followup_?\w*|tenure|lifetimes?|exit)(_\w+)?"
)
SORTS = frozenset({"argsort", "sort", "sorted", "lexsort", "sort_values"})
RISK = re.compile(r"(?i)cox|partial_?lik|hazard|risk|event|censor|surviv|breslow|efron")


def reversed_risk_sets(tree: ast.Module) -> Iterator[int]:
    """The lines of such sorts and masks."""
    for scope in scopes(tree):
        yield from _masks_of_earlier(scope)
    rising: list[ast.Call] = []
    falling = False
    for node in walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in SORTS and (key := _key(node)) is not None:
            if _falls(node, key):
                falling = True
            elif TIME.fullmatch(_named(key)):
                rising.append(node)
    if falling or not rising or not any(_sums_from_the_front(scope) for scope in scopes(tree)):
        return
    flips = any(isinstance(one, ast.Call) and last_name(one.func) in ("flip", "flipud") for one in walk(tree))
    backwards = any(_is_reversed(one) for one in walk(tree))
    if not flips and not backwards:
        yield min(one.lineno for one in rising)


def _key(call: ast.Call) -> ast.expr | None:
    """What a sort goes by: ``t`` of ``torch.argsort(t)`` and of ``t.argsort()``."""
    said = next((one.value for one in call.keywords if one.arg in ("key", "by")), None)
    if said is not None:
        return said.body if isinstance(said, ast.Lambda) else said
    if last_name(call.func) == "sort_values":
        return call.args[0] if call.args else None
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is not None and dotted(owner) not in ("torch", "np", "numpy", "jnp"):
        return owner
    return call.args[0] if call.args else None


def _named(key: ast.expr) -> str:
    """The name of what a sort goes by: of a variable, an attribute or a column."""
    if isinstance(key, ast.Subscript):
        return _named(key.slice)
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else dotted(key)


def _masks_of_earlier(scope: ast.AST) -> Iterator[int]:
    """The lines of ``t[None, :] <= t[:, None]``, if the scope sums over the second dimension: then the risk set of each
    row is those who left before it."""
    nodes = statements(scope)
    sums = [one for one in nodes if isinstance(one, ast.Call) and last_name(one.func) in ("logsumexp", "sum")]
    over = {each for one in sums for each in _dimensions(one)}
    said = " ".join(one.id for one in nodes if isinstance(one, ast.Name)) + getattr(scope, "name", "")
    grows = any(last_name(one.func) == "logsumexp" for one in sums) or any(
        isinstance(one, ast.Call) and last_name(one.func) == "exp" for one in nodes
    )
    if not over or not over <= {1, -1} or not grows or not RISK.search(said):
        return
    for one in nodes:
        if isinstance(one, ast.Compare) and len(one.ops) == 1:
            left, right = _axis_of(one.left), _axis_of(one.comparators[0])
            if left is None or right is None or left[0] != right[0] or not TIME.fullmatch(left[0]):
                continue
            smaller = isinstance(one.ops[0], (ast.Lt, ast.LtE))
            larger = isinstance(one.ops[0], (ast.Gt, ast.GtE))
            if (smaller and (left[1], right[1]) == ("row", "column")) or (
                larger and (left[1], right[1]) == ("column", "row")
            ):
                yield one.lineno


def _dimensions(call: ast.Call) -> Iterator[int]:
    """The dimension that a sum goes over, if it names one."""
    given = next((one.value for one in call.keywords if one.arg in ("dim", "axis")), None)
    place = 1 if dotted(call.func) in ("torch.logsumexp", "torch.sum", "np.sum") else 0
    given = given or (call.args[place] if len(call.args) > place else None)
    value = number_of(given)
    if isinstance(value, int):
        yield value


def _axis_of(value: ast.expr) -> tuple[str, str] | None:
    """The name of a vector that is made a ``row`` (``t[None, :]``) or a ``column`` (``t[:, None]``)."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Tuple) and len(value.slice.elts) == 2:
        first, second = (isinstance(one, ast.Constant) and one.value is None for one in value.slice.elts)
        if first != second:
            return dotted(value.value), "row" if first else "column"
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        numbers = tuple(number_of(one) for one in value.args)
        kinds: dict[tuple[str, tuple[int | float | None, ...]], str] = {
            ("unsqueeze", (0,)): "row",
            ("unsqueeze", (1,)): "column",
            ("unsqueeze", (-1,)): "column",
            ("view", (1, -1)): "row",
            ("view", (-1, 1)): "column",
            ("reshape", (1, -1)): "row",
            ("reshape", (-1, 1)): "column",
        }
        kind = kinds.get((value.func.attr, numbers))
        return (dotted(value.func.value), kind) if kind else None
    return None


def _falls(call: ast.Call, key: ast.expr) -> bool:
    """Whether a sort goes downwards, or may."""
    for one in call.keywords:
        if one.arg in ("descending", "reverse") and not (isinstance(one.value, ast.Constant) and not one.value.value):
            return True
        if one.arg == "ascending":
            return True
    return any(isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub) for one in walk(key)) or any(
        isinstance(one, ast.Constant) and one.value is True for one in call.args[1:]
    )


def _is_reversed(node: ast.AST) -> bool:
    """``order[::-1]``."""
    step = node.step if isinstance(node, ast.Slice) else None
    return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)


def _is_taken_off(nodes: tuple[ast.AST, ...]) -> bool:
    """Whether a cumulative sum is subtracted from something: from the whole, which leaves those at risk."""
    summed = {
        dotted(target)
        for target, value in assignments(nodes)
        if any(isinstance(one, ast.Call) and last_name(one.func) == "cumsum" for one in walk(value))
    }
    return any(
        (isinstance(part, ast.Call) and last_name(part.func) == "cumsum")
        or (isinstance(part, ast.Name) and part.id in summed)
        for one in nodes
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)
        for part in _summands(one.right)
    )


def _summands(value: ast.expr) -> Iterator[ast.expr]:
    """A value, and what it is added up of."""
    yield value
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        yield from _summands(value.left)
        yield from _summands(value.right)


def _sums_from_the_front(scope: ast.AST) -> bool:
    """Whether a scope of a partial likelihood sums up exponentials."""
    nodes = statements(scope)
    said = " ".join((getattr(scope, "name", ""), *(one.id for one in nodes if isinstance(one, ast.Name))))
    arguments = getattr(scope, "args", None)
    said += " ".join(one.arg for one in arguments.args) if arguments is not None else ""
    if not RISK.search(said):
        return False
    if _is_taken_off(nodes):
        return False
    grown = {
        dotted(target)
        for target, value in assignments(nodes)
        if any(isinstance(one, ast.Call) and last_name(one.func) == "exp" for one in walk(value))
    }
    for one in nodes:
        if not isinstance(one, ast.Call):
            continue
        name = last_name(one.func)
        if name == "logcumsumexp":
            return True
        if name == "cumsum":
            parts = [each for value in (one.func, *one.args) for each in walk(value)]
            exp = any(isinstance(each, ast.Call) and last_name(each.func) == "exp" for each in parts)
            if exp or any(isinstance(each, ast.Name) and each.id in grown for each in parts):
                return True
    return False
