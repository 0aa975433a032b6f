"""Recovers the arguments of a running function that the function has since deleted or overwritten.

A caller's local variables cannot change while it waits. They are the passed values if the call names them plainly, as
in ``step(model, batch)`` or ``super().step(*args, **kwargs)``. Other expressions are left out. If the recovered values
contradict those that still exist (a wrapper changed the arguments), nothing is returned.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Mapping
from types import FrameType
from typing import Any

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.script_frames import assigned_names

OWN_NAMES = ("self", "cls")
"""By convention, the names of a method's bound object, which is not among the arguments of the call."""


def passed_arguments(frame: FrameType) -> dict[str, Any]:
    """The arguments of ``frame``'s function by name, as far as its caller still holds them in variables."""
    caller = frame.f_back
    call = _running_call(caller, frame.f_code.co_name) if caller is not None else None
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
    kept = found.keys() & set(now) - assigned_names(code)
    fits = all(found[name] is now[name] for name in kept)
    return found if fits and (kept or _called_name(call) == code.co_name) else {}


def _running_call(frame: FrameType, called: str) -> ast.Call | None:
    """The call of the function ``called`` that ``frame`` waits for; None if its line has several candidates."""
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
    if hasattr(frame.f_code, "co_positions"):  # Python 3.11 and newer
        place = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        calls = [
            node for node in calls if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == place
        ]
    elif len(calls) > 1:  # super().step(batch) is two calls in one line
        calls = [node for node in calls if _called_name(node) == called]
    return calls[0] if len(calls) == 1 else None


def _values(call: ast.Call, caller: FrameType) -> tuple[list[Any], dict[str, Any]]:
    """The values of a call's arguments; ``MISSING`` for anything but a local variable of the caller."""
    variables = caller.f_locals
    own = set(caller.f_code.co_varnames)  # variables of a closure or a module may change while the caller waits

    def value(node: ast.expr) -> Any:
        return variables.get(node.id, MISSING) if isinstance(node, ast.Name) and node.id in own else MISSING

    positional: list[Any] = []
    for node in call.args:
        if not isinstance(node, ast.Starred):
            positional.append(value(node))
        elif isinstance(several := value(node.value), tuple):
            positional += several
        else:
            break  # their number is unknown, so the positions of the following arguments are too
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is not None:
            named[keyword.arg] = value(keyword.value)
        elif isinstance(mapping := value(keyword.value), Mapping):
            named |= {str(name): entry for name, entry in mapping.items()}
    return positional, named


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
