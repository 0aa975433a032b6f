"""Finds files of inputs and of targets that are paired by two listings, of which at least one is in no order.

The mistake has four parts: listings of two folders; one of them is never sorted; one is named as targets; and one index
takes both, or ``zip`` pairs them. A path that is made from the other one's name is none, and neither are names that are
compared. Where one of the two is sorted the pairs are wrong; where none is, the file system decides, and it often gives
equal names the same order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

LISTS = frozenset({"listdir", "glob", "iglob", "rglob", "iterdir", "scandir"})
SORTS = re.compile(r"(?i).*sort.*")
TARGET = re.compile(
    r"(?i)(.*_)?(masks?|segs?|segmentations?|labels?|lbls?|targets?|tgts?|gts?|ground_?truths?|annot\w*|depths?|clean|clear"
    r"|sharp|hr)(_.*|\d*|s|masks?)"
)


def half_sorted_pairs(tree: ast.Module) -> Iterator[int]:
    """The line of the listing that is in no order, where the other one is sorted."""
    return _found(tree, alone=1)


def unsorted_pairs(tree: ast.Module) -> Iterator[int]:
    """The line of the second listing, where none is sorted."""
    return _found(tree, alone=2)


def _found(tree: ast.Module, *, alone: int) -> Iterator[int]:
    holders = [one for one in walk(tree) if isinstance(one, ast.ClassDef)]
    inside = {id(each) for one in holders for each in walk(one) if each is not one}
    free = [one for one in scopes(tree) if id(one) not in inside]
    for holder in (*holders, *free):
        nodes = list(walk(holder)) if isinstance(holder, ast.ClassDef) else list(statements(holder))
        line = _apart(nodes, alone)
        if line:
            yield line
            return


def _apart(nodes: list[ast.AST], alone: int) -> int:
    """The line of the last listing without an order, of a pair with so many of them; 0 without."""
    listed, lines = _listings(nodes)
    if len(listed) < 2:
        return 0
    ordered = {name for name, value in listed.items() if _sorts(value)}
    for node in nodes:
        if isinstance(node, ast.Call) and SORTS.fullmatch(last_name(node.func)):
            held = node.func.value if isinstance(node.func, ast.Attribute) else None
            ordered |= {dotted(one) for one in (held, *node.args) if one is not None}
        elif isinstance(node, ast.Compare) and _reads(node, set(listed)):
            return 0  # names are compared
    for one, other in _pairs(nodes, set(listed)):
        unsorted = [name for name in (one, other) if name not in ordered]
        folders = {ast.unparse(listed[name]) for name in (one, other)}
        of_targets = [TARGET.fullmatch(name.rpartition(".")[2]) is not None for name in (one, other)]
        if len(unsorted) == alone and len(folders) == 2 and of_targets[0] != of_targets[1]:
            return lines[unsorted[-1]]
    return 0


def _listings(nodes: list[ast.AST]) -> tuple[dict[str, ast.expr], dict[str, int]]:
    """The variables that hold a listing, with the call that lists, and the lines that assign them."""
    listed: dict[str, ast.expr] = {}
    lines: dict[str, int] = {}
    for node in nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not (name := dotted(node.targets[0])):
            continue
        value = node.value
        lists = any(isinstance(one, ast.Call) and last_name(one.func) in LISTS for one in walk(value))
        if lists and isinstance(value, (ast.Call, ast.ListComp)) and not _matches(value):
            listed[name], lines[name] = value, node.lineno
        elif dotted(value) in listed:
            listed[name], lines[name] = listed[dotted(value)], node.lineno
        elif _sorts(value) and name in listed:
            listed[name] = value
    return listed, lines


def _matches(value: ast.expr) -> bool:
    """Whether a listing is made of other names, or counts: a dictionary, a set, a number."""
    return isinstance(value, ast.Call) and last_name(value.func) in ("len", "set", "dict", "next")


def _sorts(value: ast.expr) -> bool:
    return any(isinstance(one, ast.Call) and SORTS.fullmatch(last_name(one.func)) for one in walk(value))


def _reads(node: ast.AST, names: set[str]) -> bool:
    """Whether a name out of a listing is read, and not its length alone."""
    if isinstance(node, ast.Call) and last_name(node.func) == "len":
        return False
    if isinstance(node, ast.Subscript) and dotted(node.value) in names:
        return True
    return any(_reads(one, names) for one in ast.iter_child_nodes(node))


def _pairs(nodes: list[ast.AST], names: set[str]) -> Iterator[tuple[str, str]]:
    """The listings that ``zip`` pairs, or that one index takes."""
    taken: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) == "zip":
            zipped = [dotted(one) for one in node.args if dotted(one) in names]
            yield from ((one, other) for i, one in enumerate(zipped) for other in zipped[i + 1 :])
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and dotted(node.value) in names:
            before = taken.setdefault(node.slice.id, [])
            yield from ((one, dotted(node.value)) for one in before if one != dotted(node.value))
            before.append(dotted(node.value))
