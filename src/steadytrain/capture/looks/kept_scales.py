"""Finds batches that are skipped for their gradients before the loss scale can be lowered.

``GradScaler.update`` lowers the scale after an overflow. A ``continue`` between the scaled backward and that call, or a
flag around it, leaves the scale as it is, so the next batch overflows as well, and is skipped, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import assignments, body_of, dotted, last_name, walk

COUNTED = re.compile(r"(?i).*(accum|micro|every).*")
OF_GRADIENTS = re.compile(r"(?i).*(grad|norm|overflow).*")


def kept_scales(tree: ast.Module) -> Iterator[int]:
    """The lines of the conditions that skip."""
    own = {one.name for one in walk(tree) if isinstance(one, ast.ClassDef)}
    theirs = {
        dotted(target)
        for target, value in assignments(walk(tree))
        if isinstance(value, ast.Call) and last_name(value.func) in own
    }
    loops = (one for one in walk(tree) if isinstance(one, (ast.For, ast.While)))
    yield from sorted({line for loop in loops for line in _skips(loop, theirs)})


def _skips(loop: ast.For | ast.While, theirs: set[str]) -> Iterator[int]:
    """The lines in one loop; ``theirs`` are scalers of a class of the script, which may lower their scale anywhere."""
    scaled = updated = None
    conditions: list[ast.If] = []
    around: list[ast.If] = []
    looks = False
    for node in body_of(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "scale" and scaled is None:
                scaled = (dotted(node.func.value), node.lineno)
            elif scaled and node.func.attr == "update" and dotted(node.func.value) == scaled[0]:
                updated = node.lineno
            elif scaled and updated is None and node.func.attr in ("isnan", "isinf", "isfinite"):
                looks = looks or any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in walk(node))
        elif isinstance(node, ast.If) and any(isinstance(one, ast.Continue) for one in node.body):
            conditions.append(node)
        elif isinstance(node, ast.If) and not node.orelse and isinstance(node.test, ast.Name):
            around.append(node)
    if scaled is None or updated is None or not scaled[0] or scaled[0] in theirs:
        return
    for one in around:
        called = {last_name(each.func) for each in walk(one) if isinstance(each, ast.Call)}
        if looks and scaled[1] < one.lineno <= updated and {"step", "update"} <= called:
            yield one.lineno
    for one in conditions:
        names = {last_name(each) for each in walk(one.test) if isinstance(each, (ast.Name, ast.Attribute))}
        if (
            scaled[1] < one.lineno < updated
            and any(OF_GRADIENTS.fullmatch(name) for name in names)
            and not any(COUNTED.fullmatch(name) for name in names)
            and not any(isinstance(each, ast.Mod) for each in walk(one.test))
            and not any(isinstance(each, ast.Call) and last_name(each.func) == "update" for each in walk(one))
        ):
            yield one.lineno
