"""Finds a view with the sizes of a tensor in another order: ``b, h, w, c = x.shape``, then ``x.view(b, c, h, w)``.

By itself it is no mistake: an axis of size one may be moved so. It names the line of a view that scrambles axes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

VIEWS = frozenset({"view", "reshape"})
SAME_ORDER = frozenset({"contiguous", "clone", "float", "detach", "to"})


def swapped_sizes(tree: ast.Module) -> Iterator[int]:
    """The line of the view. A tensor that is assigned anew after its sizes were read is another one."""
    for scope in scopes(tree):
        sizes: dict[str, tuple[str, int]] = {}
        checked: set[int] = set()
        for node in statements(scope):
            for call in walk(node.value) if isinstance(node, ast.Assign) else (node,):
                if isinstance(call, ast.Call) and id(call) not in checked:
                    checked.add(id(call))
                    if _swaps(call, sizes):
                        yield call.lineno
            if isinstance(node, ast.Assign):
                _read(node, sizes)


def _swaps(call: ast.Call, sizes: dict[str, tuple[str, int]]) -> bool:
    """Whether ``call`` views a tensor with two or more of its own sizes in another order."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in VIEWS:
        return False
    tensor = _plain(call.func.value)
    arguments = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple) else call.args
    known = [place for one in arguments if (place := _place(one, tensor, sizes)) is not None]
    return bool(tensor) and len(known) >= 2 and known != sorted(known) and len(set(known)) == len(known)


def _plain(value: ast.expr) -> str:
    """The tensor of ``x`` and ``x.contiguous()``, "" of what has moved axes."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME_ORDER:
        value = value.func.value
    return dotted(value)


def _place(value: ast.expr, tensor: str, sizes: dict[str, tuple[str, int]]) -> int | None:
    """The axis of ``tensor`` that ``value`` is the size of."""
    if isinstance(value, ast.Name):
        of, place = sizes.get(value.id, ("", 0))
        return place if of and of == tensor else None
    index: ast.expr | None = None
    if isinstance(value, ast.Call) and last_name(value.func) == "size" and len(value.args) == 1:
        index = value.args[0] if isinstance(value.func, ast.Attribute) and dotted(value.func.value) == tensor else None
    if isinstance(value, ast.Subscript) and dotted(value.value) == f"{tensor}.shape":
        index = value.slice
    return index.value if isinstance(index, ast.Constant) and type(index.value) is int and index.value >= 0 else None


def _read(node: ast.Assign, sizes: dict[str, tuple[str, int]]) -> None:
    for target in node.targets:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for name in names:
            if isinstance(name, ast.Name):
                sizes.pop(name.id, None)
                for held in [key for key, (tensor, _) in sizes.items() if tensor == name.id]:
                    del sizes[held]
        shape = node.value
        of_size = isinstance(shape, ast.Call) and last_name(shape.func) == "size" and not shape.args
        if of_size or (isinstance(shape, ast.Attribute) and shape.attr == "shape"):
            owner = shape.func if isinstance(shape, ast.Call) else shape
            tensor = dotted(owner.value) if isinstance(owner, ast.Attribute) else ""
            for place, name in enumerate(names if isinstance(target, ast.Tuple) and tensor else ()):
                if isinstance(name, ast.Name) and name.id != "_":
                    sizes[name.id] = tensor, place
        elif isinstance(target, ast.Name):
            found = _place_of_any(shape)
            if found is not None:
                sizes[target.id] = found


def _place_of_any(value: ast.expr) -> tuple[str, int] | None:
    """The tensor and the axis of ``x.size(1)`` and ``x.shape[1]``."""
    tensor = ""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size":
        tensor = dotted(value.func.value)
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute) and value.value.attr == "shape":
        tensor = dotted(value.value.value)
    place = _place(value, tensor, {}) if tensor else None
    return (tensor, place) if place is not None else None
