"""Tells that a script prunes its weights: they become 0 between steps, and their gradients with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk

PRUNES = re.compile(
    r"(?i)(?!should_)(.*_)?prun(e|es|er|ing)(_.*)?|(l1|ln|random|global)_(un)?structured|WeightNormSparsifier"
)


def pruning_code(tree: ast.Module) -> Iterator[int]:
    """The first line that calls a function which prunes."""
    yield from sorted(
        node.lineno
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and PRUNES.fullmatch(last_name(node.func))
    )[:1]
