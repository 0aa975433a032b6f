"""Run the script's own lines again, from the model's call to backward, with the variables that they had.

At the moment of backward the function that computed the loss is still running, with its batch still in its variables.
The statements that the loss depends on are cut out of the source and executed on a copy of these variables: new values
stay in the copy, and what only logs or counts is not executed at all. Where a variable was overwritten by what is to be
run again (``weights = weights / weights.sum()``), the cut starts further up, at the statement that made it.

Lines that may do more than compute (they step, save or leave the function) are left alone.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from torch import Tensor

from steadytrain.capture.frames import LoopLines

UNSAFE_METHODS = frozenset({"step", "backward", "save", "update", "barrier", "all_reduce", "exit", "close"})
"""Methods that change the run, or that other processes wait for: lines that call one are not run again."""

UNSAFE_FUNCTIONS = frozenset({"next", "input", "open", "exit", "quit"})

CHANGING_METHODS = frozenset({"append", "extend", "insert", "add", "setdefault", "pop", "remove", "discard", "clear"})
"""Methods without the underscore of torch's in-place ones that change the object they are called on."""

BACKWARD_METHODS = frozenset({"backward", "manual_backward", "_backward_fn"})
"""Torch's and Accelerate's, Lightning's in manual optimization, and the one inside Lightning's closure."""

_LOSS = "__steadytrain_loss"


class CannotRunAgainError(Exception):
    """These lines cannot be run again; the text says why."""


@dataclass(frozen=True)
class Lines:
    """Compiled statements that end in what backward starts from.

    ``own_context`` tells that they open their own ``with`` around the model's call (autocast, for one);
    ``from_further_up`` that they start before the model's call, and so may draw random numbers before it.
    """

    code: CodeType
    own_context: bool
    from_further_up: bool


def compile_lines(loop: LoopLines) -> Lines:
    """Cut the statements out of the source.

    Raises:
        CannotRunAgainError: the source is not there, or the lines are not of a form that can be run again.
    """
    filename = loop.frame.f_code.co_filename
    source = "".join(linecache.getlines(filename, loop.frame.f_globals))
    if not source:
        raise CannotRunAgainError(f"the source of {filename} is not at hand")
    try:
        tree = ast.parse(source)
    except SyntaxError:
        raise CannotRunAgainError(f"{filename} was changed since it was loaded") from None
    block, first, last = _common_block(tree, loop.first_line, loop.last_line)
    root = _backward_root(block[last], loop.last_line)
    inside = sorted(_stored(block[last]) & _loaded(root))
    if inside:
        raise CannotRunAgainError(f"{inside[0]} is made by the statement that holds backward, not before it")
    variables = {**loop.frame.f_globals, **loop.frame.f_locals}
    modules = {name for name, value in variables.items() if isinstance(value, ModuleType)}
    start, statements = _slice(block, first, last, root, constant=modules)
    _refuse_unsafe([*statements, root], filename)
    target = ast.copy_location(ast.Name(_LOSS, ast.Store()), root)
    assignment = ast.copy_location(ast.Assign([target], root), root)
    # A loop of one turn gives `continue` and `break` something to act on; then no loss comes out.
    once = ast.copy_location(ast.Tuple([ast.copy_location(ast.Constant(0), root)], ast.Load()), root)
    turn = ast.copy_location(ast.Name("__steadytrain_turn", ast.Store()), root)
    loop_once = ast.copy_location(ast.For(turn, once, [*statements, assignment], []), root)
    module = ast.fix_missing_locations(ast.Module([loop_once], []))
    code = compile(module, filename, "exec", dont_inherit=True)
    return Lines(code, own_context=isinstance(block[first], ast.With), from_further_up=start < first)


def run_lines(loop: LoopLines, lines: Lines) -> Tensor:
    """Execute the lines on a copy of the function's variables; returns what backward would start from."""
    # One dictionary for globals and locals: a comprehension inside the lines must see the function's variables.
    variables: dict[str, Any] = {**loop.frame.f_globals, **loop.frame.f_locals}
    variables.pop(_LOSS, None)
    exec(lines.code, variables)
    loss = variables.get(_LOSS)
    if not isinstance(loss, Tensor):
        raise CannotRunAgainError("the lines came to no loss when they were run again")
    return loss


def _slice(
    block: Sequence[ast.stmt], first: int, last: int, root: ast.expr, *, constant: set[str]
) -> tuple[int, list[ast.stmt]]:
    """Where to start, and the statements from there on that ``root`` depends on.

    Starts at the model's call, and further up as long as a variable that goes in is overwritten or changed on the way.
    """
    for start in range(first, -1, -1):
        statements, needed = _dependencies(block[start:last], root)
        changed = {name for statement in statements for name in _stored(statement) | _touched(statement)}
        overwritten = needed & changed - constant
        if not overwritten:
            return start, statements
    names = ", ".join(sorted(overwritten))
    raise CannotRunAgainError(f"{names} is changed by what would be run again, and comes from outside the loop")


def _dependencies(block: Sequence[ast.stmt], root: ast.expr) -> tuple[list[ast.stmt], set[str]]:
    """The statements of ``block`` that ``root`` depends on, and the names that they need from before."""
    needed = _loaded(root)
    statements: list[ast.stmt] = []
    for statement in reversed(block):
        stored = _stored(statement)
        if not (stored & needed or _touched(statement) & needed):
            continue
        statements.insert(0, statement)
        # What it stores need not come from before: a branch that is not taken again leaves the variable as it is.
        needed = (needed - stored) | _loaded(statement)
    return statements, needed - set(dir(builtins))


def _loaded(node: ast.AST) -> set[str]:
    loaded = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    updated = {p.target.id for p in ast.walk(node) if isinstance(p, ast.AugAssign) and isinstance(p.target, ast.Name)}
    # What a compound statement makes for itself does not come from before.
    own = _stored(node) if isinstance(node, ast.With) else _names(node.target) if isinstance(node, ast.For) else set()
    return (loaded - own - _comprehended(node)) | updated


def _stored(node: ast.AST) -> set[str]:
    stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored - _comprehended(node)


def _comprehended(node: ast.AST) -> set[str]:
    """The variables of comprehensions, which live in these alone."""
    return {name for part in ast.walk(node) if isinstance(part, ast.comprehension) for name in _names(part.target)}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _touched(statement: ast.stmt) -> set[str]:
    """The variables that a statement may change without assigning: ``x.clamp_()``, ``f(y, out=x)``, ``x[i] = 0``.

    A method is taken to change its object by its name alone: what logs (``self.log(loss)``) is not to be run again.
    """
    touched = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            changed: list[ast.AST] = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
            if isinstance(call.func, ast.Attribute) and (name.endswith("_") or name in CHANGING_METHODS):
                changed.append(call.func.value)
            if name.endswith("_"):
                changed += call.args
            touched |= {variable for part in changed for variable in _loaded(part)}
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            touched |= _loaded(node.value)
    return touched


def _refuse_unsafe(parts: Sequence[ast.AST], filename: str) -> None:
    for node in (inner for part in parts for inner in ast.walk(part)):
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)):
            raise CannotRunAgainError(f"{filename}:{node.lineno} leaves the lines that would be run again")
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in (UNSAFE_METHODS if isinstance(node.func, ast.Attribute) else UNSAFE_FUNCTIONS):
            raise CannotRunAgainError(f"{filename}:{node.lineno} calls {name}(), which is not done twice")


def _common_block(tree: ast.AST, first_line: int, last_line: int) -> tuple[list[ast.stmt], int, int]:
    """The innermost list of statements that holds both lines, and the positions of the statements that do."""
    found: tuple[list[ast.stmt], int, int] | None = None
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                continue
            firsts, lasts = _positions(block, first_line), _positions(block, last_line)
            if firsts and lasts and firsts[0] <= lasts[-1]:
                # Several statements may share a line: the one that calls backward is meant.
                last = next((at for at in lasts if _backward_calls(block[at], last_line)), lasts[-1])
                found = (block, firsts[0], last)  # ast.walk goes from the outside in: the last hit is the innermost
    if found is None:
        raise CannotRunAgainError("the model's call and backward stand in different blocks, or backward comes first")
    return found


def _positions(block: list[ast.stmt], line: int) -> list[int]:
    """Which statements of ``block`` stand (with their bodies) on ``line``."""
    return [at for at, part in enumerate(block) if part.lineno <= line <= (part.end_lineno or part.lineno)]


def _backward_root(statement: ast.stmt, line: int) -> ast.expr:
    """What backward starts from: ``x`` of ``x.backward()``, the first argument of ``engine.backward(x)``."""
    calls = _backward_calls(statement, line)
    if len(calls) != 1:
        raise CannotRunAgainError("the line of backward is not a plain call of it")
    call = calls[0]
    assert isinstance(call.func, ast.Attribute)
    is_tensor_method = not call.args or any(keyword.arg == "gradient" for keyword in call.keywords)
    return call.func.value if is_tensor_method else call.args[0]


def _backward_calls(statement: ast.stmt, line: int) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in BACKWARD_METHODS
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
