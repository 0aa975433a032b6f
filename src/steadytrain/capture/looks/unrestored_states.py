"""Finds a state that a checkpoint holds and the resume never reads, although it reads the others.

The mistake has three parts: a dictionary of states is saved; what is loaded is read by key, that of the optimizer among
them, so the run goes on; and the key of another state is read nowhere in the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk

STATES = frozenset({"state_dict", "get_state", "get_rng_state", "get_rng_state_all", "getstate", "bit_generator"})
OPTIMIZER = re.compile(r"(?i)(.*_)?opt(im(izer)?)?s?(_.*)?")
FOR_LATER = re.compile(r"(?i)(.*_)?(model|net|config|cfg|args|best|metrics?|history|epoch|step|weights?)(_.*)?")
"""Keys of what is saved for evaluation, too."""


def unrestored_states(tree: ast.Module) -> Iterator[int]:
    """The line that saves the state."""
    read = _read_keys(tree)
    for saved in _saved(tree):
        states = {key: value.lineno for key, value in saved if _is_state(value)}
        if not any(OPTIMIZER.fullmatch(key) and key in read for key in states):
            continue
        yield from (line for key, line in states.items() if key not in read and not FOR_LATER.fullmatch(key))


def _is_state(value: ast.expr) -> bool:
    """Whether ``value`` asks an object for its state."""
    return isinstance(value, ast.Call) and last_name(value.func) in STATES


def _saved(tree: ast.Module) -> Iterator[list[tuple[str, ast.expr]]]:
    """The keys and values of dictionaries that hold several states."""
    for one in walk(tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(one, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in one.keys]
            pairs = [(key, value) for key, value in zip(keys, one.values, strict=True) if isinstance(key, str)]
        elif isinstance(one, ast.Call) and last_name(one.func) == "dict":
            pairs = [(each.arg, each.value) for each in one.keywords if each.arg is not None]
        if sum(_is_state(value) for _, value in pairs) > 1:
            yield pairs


def _read_keys(tree: ast.Module) -> set[str]:
    """All words that stand outside of dictionaries: in an index, a call or a comparison, each may read a key."""
    keys = {id(key) for one in walk(tree) if isinstance(one, ast.Dict) for key in one.keys}
    stored = {id(one.slice) for one in walk(tree) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)}
    return {
        one.value
        for one in walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in keys | stored
    }
