"""Finds graphs that are joined to one batch with an offset that is not the number of nodes before them.

The indices of a graph's edges go up by the nodes of the graphs before it. Where the offset grows by the largest index
of its edges, nodes without an edge at the end of a graph are not counted, and the edges of later graphs are shifted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    assignments,
    body_of,
    dotted,
    last_name,
    names_read,
    names_stored,
    scopes,
    statements,
    walk,
)

PUTS = frozenset({"append", "extend"})
LARGEST = frozenset({"max", "amax", "nanmax"})
WORDS = re.compile(
    r"(?i)edge|bond|graph|node|atom|mesh|face|vert|adj|mol|link|neighbo|contact|src|dst|triang|senders|triple|relation|subj"
)


def graph_offsets(tree: ast.Module) -> Iterator[int]:
    """The lines where such an offset grows."""
    for scope in scopes(tree):
        yield from _summed(scope)
    for loop in walk(tree):
        if not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
            continue
        nodes = body_of(loop)
        said = " ".join(last_name(one) for one in nodes if isinstance(one, (ast.Name, ast.Attribute)))
        if not WORDS.search(said):
            continue
        made = {
            dotted(one.targets[0]): one.value for one in nodes if isinstance(one, ast.Assign) and len(one.targets) == 1
        }
        for node in nodes:
            grown = _grown(node)
            if grown is None:
                continue
            offset, by = grown
            indices = _largest_of(made.get(by.id, by) if isinstance(by, ast.Name) else by)
            if indices and _is_added(nodes, offset, indices, made):
                yield by.lineno


def _summed(scope: ast.AST) -> Iterator[int]:
    """The lines of ``[e.max() + 1 for e in edges]``, if a cumulative sum of it makes the offsets."""
    nodes = statements(scope)
    summed = [one for one in nodes if isinstance(one, ast.Call) and last_name(one.func) in ("cumsum", "accumulate")]
    read = set().union(*(names_read(one) for one in summed)) if summed else set()
    inside = {id(each) for one in summed for each in walk(one)}
    for target, value in assignments(nodes):
        for one in walk(value):
            if isinstance(one, (ast.ListComp, ast.GeneratorExp)) and (dotted(target) in read or id(one) in inside):
                each, of = one.generators[0].target, one.generators[0].iter
                if _largest_of(one.elt) & names_stored(each) and WORDS.search(" ".join(names_read(of))):
                    yield one.lineno


def _grown(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The variable that grows, and by what: ``o += n`` and ``o = o + n``; for ``o = (e + o).max() + 1`` the whole."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return dotted(node.target), node.value
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        name, value = dotted(node.targets[0]), node.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and name:
            if dotted(value.left) == name:
                return name, value.right
            if dotted(value.right) == name:
                return name, value.left
        if name and (name in names_read(value) or _largest_of(value)):
            return name, value
    return None


def _largest_of(value: ast.expr) -> set[str]:
    """The variables of which a value is the largest entry and one; none if it is something else."""
    if (
        isinstance(value, ast.Call)
        and last_name(value.func) in ("int", "item")
        and not isinstance(value.func, ast.Attribute)
    ):
        return _largest_of(value.args[0]) if value.args else set()
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _largest_of(value.left) | _largest_of(value.right)
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("item", "long", "int")
    ):
        return _largest_of(value.func.value)
    if isinstance(value, ast.Call) and last_name(value.func) in LARGEST:
        owner = value.func.value if isinstance(value.func, ast.Attribute) else None
        of = owner if owner is not None and dotted(owner) not in ("torch", "np", "numpy") else None
        read = [of] if of is not None else value.args[:1]
        return set().union(*(names_read(one) | {dotted(one)} for one in read)) - {""} if read else set()
    return _different_ones(value)


def _different_ones(value: ast.expr) -> set[str]:
    """The variables whose different entries a value counts: ``torch.unique(e).numel()``, ``len(set(e))``."""
    if not isinstance(value, ast.Call):
        return set()
    if last_name(value.func) == "len" and value.args:
        inner: ast.expr = value.args[0]
    elif isinstance(value.func, ast.Attribute) and value.func.attr in ("numel", "size"):
        inner = value.func.value
    else:
        return set()
    if not isinstance(inner, ast.Call) or last_name(inner.func) not in ("unique", "set"):
        return set()
    owner = inner.func.value if isinstance(inner.func, ast.Attribute) else None
    of = [owner] if owner is not None and dotted(owner) not in ("torch", "np", "numpy") else inner.args[:1]
    return set().union(*(names_read(one) | {dotted(one)} for one in of)) - {""} if of else set()


def _is_added(nodes: tuple[ast.AST, ...], offset: str, indices: set[str], made: dict[str, ast.expr]) -> bool:
    """Whether the offset is added to the same indices, or to what is put to them."""
    put_to = {id(value): name for name, value in made.items()}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func) in PUTS:
            put_to |= {id(each): dotted(node.func.value) for one in node.args for each in walk(one)}
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            others = [one for one in (node.left, node.right) if dotted(one) != offset]
            if len(others) == 1:
                touched = names_read(others[0]) | {dotted(others[0]), put_to.get(id(node), "")}
                if touched & indices:
                    return True
    return False
