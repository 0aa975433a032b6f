"""What a running function was called with, where it has deleted or overwritten that since.

A caller cannot change its local variables while it waits, so they are what it passed, as long as its call names them
plainly: ``step(model, batch)``, ``super().step(*args, **kwargs)``. Anything else is left out. Where what can be
compared does not fit (something stood between the two that changed the arguments), nothing is given.
"""

from __future__ import annotations

import ast
import dis
import itertools
import linecache
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

from steadytrain.capture.hooks.patches import MISSING

OWN_NAMES = ("self", "cls")
"""By which Python's custom calls what a method is bound to; it is not among the arguments of the call."""

CHANGES_OF_VARIABLES = ("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF")


def passed_arguments(frame: FrameType) -> dict[str, Any]:
    """The arguments of ``frame``'s function by name, as far as its caller still has them in variables."""
    caller = frame.f_back
    call = _running_call(caller) if caller is not None else None
    if caller is None or call is None:
        return {}
    positional, named = _values(call, caller)
    code = frame.f_code
    names = list(code.co_varnames[: code.co_argcount])
    now = frame.f_locals
    if names and names[0] in OWN_NAMES and not (positional and positional[0] is now.get(names[0])):
        names = names[1:]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    found = dict(zip(names, positional, strict=False))
    found |= {name: named[name] for name in (*names, *keyword_only) if name in named}
    found = {name: value for name, value in found.items() if value is not MISSING}
    kept = found.keys() & now.keys() - _assigned(code)
    fits = all(found[name] is now[name] for name in kept)
    return found if fits and (kept or _called_name(call) == code.co_name) else {}


def _running_call(frame: FrameType) -> ast.Call | None:
    """The one call that ``frame`` waits for, None where it cannot be told from others on its line."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
    ]
    if hasattr(frame.f_code, "co_positions"):  # from Python 3.11 on
        place = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        calls = [
            node for node in calls if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == place
        ]
    return calls[0] if len(calls) == 1 else None


def _values(call: ast.Call, caller: FrameType) -> tuple[list[Any], dict[str, Any]]:
    """The values of a call's arguments; ``MISSING`` for what is no plain variable of the caller's own."""
    variables = caller.f_locals
    own = set(caller.f_code.co_varnames)  # others, of a closure or a module, may be changed by whoever has them too

    def value(node: ast.expr) -> Any:
        return variables.get(node.id, MISSING) if isinstance(node, ast.Name) and node.id in own else MISSING

    positional: list[Any] = []
    for node in call.args:
        if not isinstance(node, ast.Starred):
            positional.append(value(node))
        elif isinstance(several := value(node.value), tuple):
            positional += several
        else:
            break  # how many they are is not known, so neither is the place of what follows
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is not None:
            named[keyword.arg] = value(keyword.value)
        elif isinstance(mapping := value(keyword.value), Mapping):
            named |= {str(name): entry for name, entry in mapping.items()}
    return positional, named


def _assigned(code: CodeType) -> set[str]:
    """The variables that a function gives another value, or deletes."""
    return {str(step.argval) for step in dis.get_instructions(code) if step.opname.startswith(CHANGES_OF_VARIABLES)}


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
