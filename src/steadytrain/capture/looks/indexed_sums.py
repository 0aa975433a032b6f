"""Finds sums over repeated indices that overwrite each other: ``total[index] += values`` of a tensor.

Python reads ``total[index]``, adds, and writes it back once: of several values with the same index only the last one
counts. Only a tensor of zeros that the function makes is looked at. Its index must be an argument, be computed, or come
from edges or pairs. Its name must say that it repeats, or it must gather something as well. Masks, and indices that a
search returned, are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import (
    Scope,
    argument_names,
    assignments,
    dotted,
    last_name,
    scopes,
    statements,
)

ZEROS = ("zeros", "zeros_like", "new_zeros", "full", "new_full")
INDEX = re.compile(
    r"(?i)dst|src|rows?|cols?|recv|receivers?|senders?|targets?|sources?|heads?|tails?|idx|index|indices|seg(ment)?(s|_ids)?"
    r"|(node|edge|graph|cell|item|user|word|token|group|batch|voxel|bin)s?_?(idx|index|ids?|indices)|clusters?|groups?|bins?"
    r"|cells?|voxels?|pixels?|tok(en)?s?"
)
REPEATS = re.compile(
    r"(?i)dst|recv|receivers?|seg(ment)?(s|_ids)?|cells?|voxels?|pixels?|tok(en)?s?|batch_?(idx|index)"
)
"""Names of indices that repeat by what they stand for. Others must gather something, too."""

EDGES = re.compile(r"(?i).*(edge|pair|adj|links?|index|senders|receivers).*")


def indexed_sums(tree: ast.Module) -> Iterator[int]:
    """The lines of such sums."""
    for scope in scopes(tree):
        zeros, indices = _zeros(scope), _indices(scope)
        if not zeros or not indices:
            continue
        gathered = {name for one in statements(scope) for name in _gathers(one)}
        for node in statements(scope):
            target = _summed(node)
            name = _index_of(target) if target is not None else ""
            if (
                target is not None
                and dotted(target.value) in zeros
                and name in indices
                and (name in gathered or REPEATS.fullmatch(name))
                and not _is_counted(name, scope)
            ):
                yield target.lineno


def _summed(node: ast.AST) -> ast.Subscript | None:
    """``total[index]`` of ``total[index] += values`` and of ``total[index] = total[index] + values``."""
    target: ast.expr
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        target, value = node.target, node.value
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        target, value = node.targets[0], node.value.right
        if ast.unparse(target) != ast.unparse(node.value.left):
            return None
    else:
        return None
    return target if isinstance(target, ast.Subscript) and not isinstance(value, ast.Constant) else None


def _index_of(node: ast.Subscript) -> str:
    """``dst`` of ``total[dst]`` and of ``total[:, dst]``, "" of all others."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    names = [one.id for one in parts if isinstance(one, ast.Name)]
    return names[0] if len(names) == 1 and all(isinstance(one, (ast.Name, ast.Slice)) for one in parts) else ""


def _gathers(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and (name := _index_of(node)):
        yield name


def _zeros(scope: Scope) -> set[str]:
    """The tensors that this scope fills with one number by a function of torch."""
    return {
        dotted(target)
        for target, value in assignments(statements(scope))
        if isinstance(value, ast.Call) and last_name(value.func) in ZEROS and not dotted(value.func).startswith("np")
    } - {""}


def _indices(scope: Scope) -> set[str]:
    """The names of indices that repeat: arguments, and what is computed, or taken from edges or pairs."""
    found = {name for name in argument_names(scope) if INDEX.fullmatch(name)}
    for node in statements(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                source = node.value.value if isinstance(node.value, ast.Subscript) else node.value
                for one in names:
                    if isinstance(one, ast.Name) and INDEX.fullmatch(one.id):
                        if EDGES.fullmatch(dotted(source)) or isinstance(node.value, ast.BinOp):
                            found.add(one.id)
                        else:
                            found.discard(one.id)
    return found


def _is_counted(name: str, scope: Scope) -> bool:
    """Whether ``name`` is the variable of a loop, and so one index at a time."""
    return any(
        isinstance(one, ast.Name) and one.id == name
        for node in statements(scope)
        if isinstance(node, (ast.For, ast.comprehension))
        for one in ast.walk(node.target)
    )
