"""Finds an overlap of masks (Dice, IoU, Tversky) that a loss computes of logits in place of probabilities.

``(2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)`` lies between 0 and 1 for probabilities. Of logits it is unbounded
and its denominator may be 0. Asked for are the whole ratio, a prediction that is an argument of the function and passes
nothing but changes of its shape, and that the same values are logits: they go into a cross entropy of logits, too, or
the file with the model has no sigmoid and no softmax.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    argument_names,
    assignments,
    dotted,
    last_name,
    scopes,
    stops_graph,
    walk,
    with_graph,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef

SHAPES = frozenset(
    {
        "view",
        "reshape",
        "flatten",
        "contiguous",
        "float",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "to",
        "double",
    }
    | {
        "type",
        "type_as",
        "size",
        "dim",
        "sum",
        "mean",
        "item",
        "len",
        "range",
        "tuple",
        "list",
        "numel",
        "moveaxis",
        "cuda",
    }
)
"""What a prediction passes without becoming a probability."""

OF_LOGITS = frozenset(
    {"binary_cross_entropy_with_logits", "cross_entropy", "sigmoid_focal_loss", "BCEWithLogitsLoss", "CrossEntropyLoss"}
)
TARGETS = re.compile(r"(?i)(.*_)?(targets?|labels?|masks?|gts?|y|y_?true|true|truth|ys|yb|lbl|seg|one_?hot)(_.*)?")
BOUNDS = re.compile(r"(?i)sigmoid|softmax|expit|activation|\bact\b|probs?\b")
DEPTH_MAX = 4


def overlaps_of_logits(tree: ast.Module) -> Iterator[int]:
    """The lines of such ratios."""
    makers = {name for target, value in assignments(walk(tree)) for name in _made_of_logits(target, value)}
    bounded = any(BOUNDS.search(name) for name in _words(tree))
    has_model = any(isinstance(one, ast.FunctionDef) and one.name == "forward" for one in walk(tree))
    functions = [one for one in scopes(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for function in functions:
        if any(stops_graph(one) for one in function.decorator_list):
            continue
        for line, argument in _overlaps(function):
            alone = not bounded and has_model and _is_trained(function, tree)
            if alone or _is_logit_here(function, argument, makers) or _is_logit_there(function, argument, tree, makers):
                yield line


def _words(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield last_name(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
            yield node.value


def _made_of_logits(target: ast.expr, value: ast.expr) -> Iterator[str]:
    """The names of losses that take logits: ``self.bce = nn.BCEWithLogitsLoss()``."""
    if isinstance(value, ast.Call) and last_name(value.func) in OF_LOGITS:
        yield dotted(target)


def _overlaps(function: Function) -> Iterator[tuple[int, str]]:
    """The line of each overlap in ``function``, and the argument that is its prediction."""
    given: dict[str, list[ast.expr]] = {}
    for target, value in assignments(with_graph(function)):
        given.setdefault(dotted(target), []).append(value)
    for node in with_graph(function):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
            continue
        above, below = _parts(node.left, given), _parts(node.right, given)
        summed = {name for one in below for name in _summed(one)}
        for first, second in (pair for one in above for pair in _products(one)):
            if {first, second} <= summed and first != second:
                yield from _predictions(function, given, first, second, node.lineno)
                break


def _parts(node: ast.expr, given: dict[str, list[ast.expr]]) -> list[ast.AST]:
    """All nodes of an expression, and of what its names were given, a few names deep."""
    found, names = [node, *walk(node)], set[str]()
    for _ in range(DEPTH_MAX):
        read = {dotted(one) for one in found if isinstance(one, ast.Name)} & set(given) - names
        names |= read
        values = [value for name in sorted(read) for value in given[name] if not _reads(value, name)]
        if not values:
            break
        found += [each for value in values for each in (value, *walk(value))]
    return found


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in (node, *walk(node)))


def _products(node: ast.AST) -> Iterator[tuple[str, str]]:
    """``p`` and ``y`` of ``(p * y).sum()``, of ``torch.sum(p * y)`` and of ``p * y`` elsewhere."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        names = dotted(node.left), dotted(node.right)
        if all(names):
            yield names


def _summed(node: ast.AST) -> Iterator[str]:
    """The names in a sum: ``p`` of ``p.sum()``, ``torch.sum(p)`` and ``(p + y).sum()``."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("sum", "mean", "einsum"):
        inside = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        for one in inside:
            yield from (dotted(each) for each in (one, *walk(one)) if isinstance(each, ast.Name))


def _predictions(
    function: Function, given: dict[str, list[ast.expr]], first: str, second: str, line: int
) -> Iterator[tuple[int, str]]:
    """The factor that is no target, if it comes from an argument by changes of its shape alone."""
    named = [one for one in (first, second) if not TARGETS.fullmatch(one)]
    if len(named) != 1:
        return
    name = named[0]
    origin = _origin(name, given, argument_names(function))
    if origin:
        yield line, origin


def _origin(name: str, given: dict[str, list[ast.expr]], arguments: set[str]) -> str:
    """The argument that ``name`` is, or is a view of; "" of all others."""
    for _ in range(DEPTH_MAX):
        values = given.get(name, [])
        read = {dotted(one) for value in values for one in (value, *walk(value)) if isinstance(one, ast.Name)} - {
            "torch",
            "F",
        }
        if not all(_only_shapes(value) for value in values):
            return ""
        others = read - {name}
        if not others:
            return name if name in arguments else ""
        if len(others) > 1 or name in arguments:
            found = others & arguments
            return found.pop() if len(found) == 1 and name not in arguments and len(others) == 1 else ""
        (name,) = others
    return ""


def _only_shapes(value: ast.expr) -> bool:
    calls = [one for one in (value, *walk(value)) if isinstance(one, ast.Call)]
    plain = not any(isinstance(one, (ast.Compare, ast.BinOp, ast.IfExp)) for one in (value, *walk(value)))
    return plain and all(last_name(one.func) in SHAPES for one in calls)


def _takes_logits(call: ast.Call, makers: set[str]) -> bool:
    return last_name(call.func) in OF_LOGITS or dotted(call.func) in makers


def _is_logit_here(function: Function, argument: str, makers: set[str]) -> bool:
    """Whether the function gives the argument to a cross entropy of logits, too."""
    calls = [one for one in walk(function) if isinstance(one, ast.Call) and one.args]
    return any(_takes_logits(one, makers) and dotted(one.args[0]) == argument for one in calls)


def _is_logit_there(function: Function, argument: str, tree: ast.Module, makers: set[str]) -> bool:
    """Whether a caller gives the same variable to the function and to a cross entropy of logits."""
    names = [one.arg for one in function.args.args if one.arg != "self"]
    place = names.index(argument) if argument in names else -1
    for scope in scopes(tree):
        calls = [one for one in with_graph(scope) if isinstance(one, ast.Call)]
        given = {
            dotted(one.args[place]) for one in calls if _calls(one, function, tree) and -1 < place < len(one.args)
        } - {""}
        if given and any(_takes_logits(one, makers) and one.args and dotted(one.args[0]) in given for one in calls):
            return True
    return False


def _calls(call: ast.Call, function: Function, tree: ast.Module) -> bool:
    """Whether ``call`` calls the function, or an object of the class whose ``forward`` it is."""
    name = last_name(call.func)
    if name == function.name:
        return True
    if function.name not in ("forward", "__call__"):
        return False
    owner = next((one.name for one in walk(tree) if isinstance(one, ast.ClassDef) and function in one.body), "")
    made = {
        last_name(target)
        for target, value in assignments(walk(tree))
        if isinstance(value, ast.Call) and last_name(value.func) == owner
    }
    return bool(owner) and name in made


def _is_trained(function: Function, tree: ast.Module) -> bool:
    """Whether the function is called where a graph is made, beside a backward in the file."""
    called = any(
        isinstance(one, ast.Call) and _calls(one, function, tree) for scope in scopes(tree) for one in with_graph(scope)
    )
    return called and any(isinstance(one, ast.Attribute) and one.attr == "backward" for one in walk(tree))
