"""Finds statements that compute something and drop it: ``scores.masked_fill(mask, -1e9)``.

The call makes a new tensor, array or table; nothing takes it, and what was meant to change stays as it was. Most names
work out of place wherever they are known. A name that other objects use for an effect (``clamp``, ``add``, ``detach``)
counts only on what the source shows to be a tensor (``tensor_names``). Calls that are timed, tried or made to warm up
are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steadytrain.capture.looks.syntax_trees import dotted, last_name, names_read, names_stored, scopes, walk
from steadytrain.capture.looks.tensor_names import TensorNames

TENSORS = frozenset(
    {"masked_fill", "masked_scatter", "index_fill", "index_add", "index_copy", "index_put", "scatter_add"}
    | {"scatter_reduce", "nan_to_num", "clamp_min", "clamp_max", "unsqueeze"}
)
"""Methods of tensors that no other object is known to have."""

TABLES = frozenset({"dropna", "fillna", "astype"})
"""The same of arrays and tables."""

SHARED = frozenset(
    {"clamp", "clip", "roll", "detach", "scatter", "softmax", "log_softmax", "sigmoid", "tanh", "relu", "permute"}
    | {"transpose", "squeeze", "tril", "triu", "mul", "add", "sub", "div", "lerp", "addcmul", "addcdiv"}
)
"""Methods of tensors whose names other objects use for an effect."""

BARE = frozenset(
    {"clamp", "clip", "nan_to_num", "masked_fill", "index_fill", "index_add", "scatter", "scatter_add", "roll", "flip"}
    | {"relu", "sigmoid", "tanh", "softmax", "log_softmax", "tril", "triu", "squeeze", "unsqueeze", "permute"}
)
FUNCTIONAL = frozenset(
    {"normalize", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "sigmoid", "tanh", "softmax", "log_softmax"}
    | {"dropout", "pad", "interpolate", "layer_norm"}
)
ARRAYS = {
    "clip": 3,
    "nan_to_num": 1,
    "roll": 3,
    "sort": 3,
    "flip": 2,
    "squeeze": 2,
    "where": 3,
    "maximum": 2,
    "minimum": 2,
}
"""Functions of NumPy, with as many arguments as they take before ``out`` or ``copy``."""

LIBRARIES = {
    **dict.fromkeys(("torch",), BARE),
    **dict.fromkeys(("F", "functional", "nn.functional", "torch.nn.functional"), FUNCTIONAL),
}
NUMPY = frozenset({"np", "numpy"})
MODULES = frozenset({"torch", "np", "numpy", "F", ""})
"""What is called on no variable has no variable to change."""

DRAWS = frozenset({"permutation", "permuted"})
GENERATORS = re.compile(r"(?i)(\w*_)?(rng\w*|random|random_state|generator|gen|rs)")
ANY = sorted(TENSORS | TABLES | SHARED | BARE | FUNCTIONAL | set(ARRAYS) | DRAWS | {"sorted", "reversed"})
WORDS = (rf"(?m)(?:^|[;:])[ \t]*(?!return\b|yield\b)[^=#\n]*?\b(?:{'|'.join(ANY)})\(",)

EFFECTS = frozenset({"inplace", "out", "copy"})
PROBES = re.compile(
    r"(?i)raises|warns|assert|suppress|catch|profil|timer|timeit|record|counter|capture|trace|fails|graph"
)
TIMES = re.compile(
    r"(?i)perf_counter|monotonic|process_time|time\.time\(|synchronize|timeit|profil|elapsed|memory_alloc"
)
TRIES = re.compile(r"(?i)_*(test|bench|warm|time_|profile|probe|check|try_)\w*")


@dataclass(frozen=True)
class Known:
    """The names of a source: methods of its own classes, its functions, what it imports, what it assigns."""

    methods: frozenset[str]
    functions: frozenset[str]
    imported: frozenset[str]
    stored: frozenset[str]


def dropped_results(tree: ast.Module) -> Iterator[str]:
    """The line and the call of each: ``7:scores.masked_fill``."""
    known = _known(tree)
    for scope in scopes(tree):
        if not isinstance(scope, ast.Module) and TRIES.fullmatch(scope.name):
            continue
        called = [one for one in _statements_of(scope.body) if last_name(one.func) not in known.methods]
        names = TensorNames(scope) if called else None
        for call in called:
            if names is not None and (_is_function(call, known) or _is_method(call, known, names)):
                yield f"{call.lineno}:{_said(call)}"


def _known(tree: ast.Module) -> Known:
    methods: set[str] = set()
    functions: set[str] = set()
    imported: set[str] = set()
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            methods |= {one.name for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imported |= {(one.asname or one.name).partition(".")[0] for one in node.names}
    return Known(frozenset(methods), frozenset(functions), frozenset(imported), frozenset(names_stored(tree)))


def _statements_of(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that are statements of their own, but those that are timed, tried, or made to warm up."""
    for at, one in enumerate(body):
        if isinstance(one, ast.Expr):
            beside = [each for each in body[max(0, at - 1) : at + 2] if each is not one]
            if isinstance(one.value, ast.Call) and not any(map(_takes_time, beside)):
                yield one.value
        elif isinstance(one, (ast.With, ast.AsyncWith)):
            if not any(PROBES.search(ast.unparse(item.context_expr)) for item in one.items):
                yield from _statements_of(one.body)
        elif isinstance(one, (ast.For, ast.AsyncFor, ast.While)):
            if not _warms_up(one):
                yield from _statements_of([*one.body, *one.orelse])
        elif isinstance(one, ast.If):
            yield from _statements_of(one.body)
            yield from _statements_of(one.orelse)
        elif isinstance(one, ast.Try):
            tried = [each for each in one.body if not (one.handlers and isinstance(each, ast.Expr))]
            for part in (tried, *(each.body for each in one.handlers), one.orelse, one.finalbody):
                yield from _statements_of(part)


def _takes_time(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Expr, ast.Assign)) and TIMES.search(ast.unparse(node)) is not None


def _warms_up(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop only repeats calls: it counts, and reads nothing of its counter."""
    if isinstance(loop, ast.While) or not isinstance(loop.iter, ast.Call) or last_name(loop.iter.func) != "range":
        return False
    read = {name for one in loop.body for name in names_read(one)}
    return all(isinstance(one, ast.Expr) for one in loop.body) and not names_stored(loop.target) & read


def _is_function(call: ast.Call, known: Known) -> bool:
    """``torch.clamp(x, 0, 1)``, ``np.clip(x, 0, 1)``, ``np.random.permutation(x)``, ``sorted(x)``."""
    name = last_name(call.func)
    if not call.args or _may_act(call) or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    if isinstance(call.func, ast.Name):
        return name in ("sorted", "reversed") and name not in known.functions | known.imported | known.stored
    library = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in DRAWS:
        return bool(GENERATORS.fullmatch(library.rpartition(".")[2])) and not isinstance(call.args[0], ast.Constant)
    if not library or library.partition(".")[0] in known.stored:
        return False
    return name in LIBRARIES.get(library, ()) or (library in NUMPY and len(call.args) <= ARRAYS.get(name, 0))


def _is_method(call: ast.Call, known: Known, names: TensorNames) -> bool:
    """``scores.masked_fill(mask, 0)``, ``table.dropna()``, ``p.grad.clamp(-1, 1)``."""
    if not isinstance(call.func, ast.Attribute) or _may_act(call):
        return False
    name, on = call.func.attr, call.func.value
    root = _root(on)
    if (root in known.imported and root not in known.stored) or root in MODULES or dotted(on) in ("self", "cls"):
        return False
    given = len(call.args) + len(call.keywords)
    if name in TENSORS:
        return given > 0 or name == "nan_to_num"
    if name in TABLES:
        return given > 0 or name == "dropna"
    if name == "detach":
        return not given and (names.is_tensor(on) or names.is_carried(on))
    if name == "scatter":
        return given >= 3 and names.is_tensor(on)
    if name == "clip" and len(call.args) > 2:
        return False
    return name in SHARED and names.is_tensor(on)


def _may_act(call: ast.Call) -> bool:
    """Whether an argument may make the call work in place."""
    return any(
        one.arg is None
        or (one.arg in EFFECTS and not (isinstance(one.value, ast.Constant) and one.value.value in (False, None)))
        or (one.arg == "copy" and isinstance(one.value, ast.Constant) and one.value.value is False)
        for one in call.keywords
    )


def _root(value: ast.expr) -> str:
    """The variable that an expression begins with; "" of a constant and of ``super()``."""
    while isinstance(value, (ast.Attribute, ast.Subscript, ast.Call)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) and value.id != "super" else ""


def _said(call: ast.Call) -> str:
    """``scores.masked_fill``; ``masked_fill`` of a longer expression."""
    return dotted(call.func) or last_name(call.func)
