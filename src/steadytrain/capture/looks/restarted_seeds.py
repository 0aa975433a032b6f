"""Finds seeds of a data set that make each epoch, or each row, draw the same random numbers.

A ``worker_init_fn`` runs in each worker at the begin of each epoch: a seed of the worker's number alone starts the same
numbers anew. It counts where a data set or a transform of the file draws from that generator. A constant seed in
``__getitem__`` gives each row the same numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.repeated_seeds import always
from steadytrain.capture.looks.syntax_trees import DRAWN, dotted, last_name, names_read, names_stored, walk

SEEDS = {"seed": "random", "manual_seed": "torch"}
ROW_METHODS = ("__getitem__", "__getitems__")
DRAWING_METHODS = (*ROW_METHODS, "__call__", "forward", "augment", "transform", "_augment", "_transform")
HELD_OUT = re.compile(r"(?i).*(val|test|eval|dev|fixed|determin|frozen).*")
EPOCH = re.compile(r"(?i).*epoch.*")
FREE = ("int", "print", "abs")


def worker_seeds(tree: ast.Module) -> Iterator[int]:
    """The line of the seed in a ``worker_init_fn``."""
    functions = {one.name: one for one in walk(tree) if isinstance(one, ast.FunctionDef)}
    drawn = set(_drawn(tree))
    epochs = any(
        EPOCH.fullmatch(name)
        for loop in walk(tree)
        if isinstance(loop, ast.For)
        for name in names_stored(loop.target) | names_read(loop.iter)
    )
    changed = {name for loop in walk(tree) if isinstance(loop, (ast.For, ast.While)) for name in names_stored(loop)}
    seen: set[int] = set()
    for node in walk(tree):
        if not epochs or not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        options = {one.arg: one.value for one in node.value.keywords}
        begins = options.get("worker_init_fn")
        if last_name(node.value.func) != "DataLoader" or begins is None or not _has_workers(options):
            continue
        if any(HELD_OUT.fullmatch(last_name(one)) for one in node.targets):
            continue
        body: list[ast.AST] = [begins.body] if isinstance(begins, ast.Lambda) else []
        body += functions[begins.id].body if isinstance(begins, ast.Name) and begins.id in functions else []
        for line, generator in _constant(body, changed):
            if generator in drawn and line not in seen:
                seen.add(line)
                yield line


def row_seeds(tree: ast.Module) -> Iterator[int]:
    """The line of a constant seed in ``__getitem__`` of a data set that draws."""
    drawn = set(_drawn(tree))
    for kind in (one for one in walk(tree) if isinstance(one, ast.ClassDef) and not HELD_OUT.fullmatch(one.name)):
        later = {
            name
            for method in kind.body
            if isinstance(method, ast.FunctionDef) and method.name != "__init__"
            for name in _attributes_stored(method)
        }
        for method in (one for one in kind.body if isinstance(one, ast.FunctionDef) and one.name in ROW_METHODS):
            given = {one.arg for one in method.args.args[1:]} | names_stored(method)
            for node in always(method.body):
                generator = _generator(node)
                if not generator or not isinstance(node, ast.Call):
                    continue
                read = {name for one in node.args for name in names_read(one)}
                attributes = {dotted(one) for arg in node.args for one in walk(arg) if isinstance(one, ast.Attribute)}
                calls = any(isinstance(one, ast.Call) for arg in node.args for one in walk(arg))
                if read & given or attributes & later or calls or any(EPOCH.fullmatch(one) for one in attributes):
                    continue
                if generator in drawn:
                    yield node.lineno


def _constant(body: list[ast.AST], changed: set[str]) -> Iterator[tuple[int, str]]:
    """Seeds of a worker that nothing but its number tells apart, with their generator."""
    nodes = [one for each in body for one in walk(each)]
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    seeds = [one for one in calls if _generator(one)]
    others = [one for one in calls if one not in seeds and last_name(one.func) not in FREE]
    words = {last_name(one) for one in nodes if isinstance(one, (ast.Name, ast.Attribute))}
    if others or words & changed or any(EPOCH.fullmatch(one) or "time" in one or "base_seed" in one for one in words):
        return
    yield from ((one.lineno, _generator(one)) for one in seeds if one.args)


def _generator(node: ast.AST) -> str:
    """Which generator a call seeds: ``numpy``, ``random`` or ``torch``; "" of all else."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in SEEDS:
        return ""
    name = dotted(node.func)
    if name in ("np.random.seed", "numpy.random.seed"):
        return "numpy"
    return {"random.seed": "random", "torch.manual_seed": "torch"}.get(name, "")


def _drawn(tree: ast.Module) -> Iterator[str]:
    """The generators that the data sets and transforms of the file draw from."""
    for kind in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        methods = {one.name for one in kind.body if isinstance(one, ast.FunctionDef)}
        if not methods & {*ROW_METHODS, "__call__"} or "backward" in ast.unparse(kind):
            continue
        for node in (one for each in kind.body for one in walk(each) if isinstance(one, ast.Call)):
            name = dotted(node.func)
            if DRAWN.fullmatch(last_name(node.func)) or last_name(node.func) in ("shuffle", "sample"):
                head = name.partition(".")[0]
                yield {"np": "numpy", "numpy": "numpy", "random": "random", "torch": "torch"}.get(head, "")


def _has_workers(options: dict[str | None, ast.expr]) -> bool:
    workers, stays = options.get("num_workers"), options.get("persistent_workers")
    none = workers is None or (isinstance(workers, ast.Constant) and not workers.value)
    return not none and (stays is None or (isinstance(stays, ast.Constant) and not stays.value))


def _attributes_stored(method: ast.FunctionDef) -> Iterator[str]:
    nodes = (one for one in walk(method) if isinstance(one, ast.Attribute))
    return (dotted(one) for one in nodes if isinstance(one.ctx, ast.Store))
