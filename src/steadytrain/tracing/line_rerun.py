"""Reruns the script's own lines, from the model call to backward, on a copy of their variables.

At backward, the function that computed the loss still runs, with the batch in its variables. This module extracts the
statements that the loss depends on from the source and executes them on a copy of the variables. New values stay in
the copy. Logging and counting statements are not executed. If the extracted statements overwrite a variable that they
read (``weights = weights / weights.sum()``), or the script deleted one (``del batch``), the extract starts further up,
at the statement that made the variable, or from the function's arguments as its caller holds them.

Lines that may do more than compute (step, save, leave the function) are not rerun.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

from torch import Tensor

from steadytrain.capture.step.script_frames import LoopLines
from steadytrain.tracing.call_arguments import passed_arguments

UNSAFE_METHODS = frozenset({"step", "backward", "save", "update", "barrier", "all_reduce", "exit", "close"})
"""Methods that change the run, or that synchronise ranks. Lines that call one are not rerun."""

UNSAFE_FUNCTIONS = frozenset({"next", "input", "open", "exit", "quit"})

CHANGING_METHODS = frozenset({"append", "extend", "insert", "add", "setdefault", "pop", "remove", "discard", "clear"})
"""Methods that change their object, besides torch's in-place methods with an underscore."""

BACKWARD_METHODS = frozenset({"backward", "manual_backward", "_backward_fn"})
"""Of torch and Accelerate, of Lightning's manual optimization, and of Lightning's closure."""

_LOSS = "__steadytrain_loss"


class CannotRunAgainError(Exception):
    """The lines cannot run again; the text says why."""


@dataclass(frozen=True)
class Lines:
    """Compiled statements that end in the root of backward.

    ``own_context``: they open their own ``with`` around the model call (autocast, for example). ``from_further_up``:
    they
    start before the model call, and may draw random numbers before it. ``arguments``: call arguments that the function
    no
    longer holds. ``root``: the variable on which backward runs, None if that is an expression.
    """

    code: CodeType
    own_context: bool
    from_further_up: bool
    arguments: Mapping[str, Any]
    root: str | None = None


@dataclass(frozen=True)
class _Cut:
    """The start, the statements from there on which the loss depends, and the arguments that they need."""

    start: int
    statements: list[ast.stmt]
    arguments: Mapping[str, Any]


def compile_lines(loop: LoopLines, *, above_nan: bool = False) -> Lines:
    """Extracts and compiles the statements.

    Args:
        above_nan: with the lines above the model call that made a NaN that the others read.

    Raises:
        CannotRunAgainError: the source is missing, or the lines cannot run again.
    """
    filename = loop.frame.f_code.co_filename
    source = "".join(linecache.getlines(filename, loop.frame.f_globals))
    if not source:
        raise CannotRunAgainError(f"the source of {filename} is not available")
    try:
        tree = ast.parse(source)
    except SyntaxError:
        raise CannotRunAgainError(f"{filename} was changed since it was loaded") from None
    if loop.loss is not None:
        block, first, last, root = _block_of_loss(tree, loop.first_line, loop.loss)
    else:
        block, first, last = _common_block(tree, loop.first_line, loop.last_line)
        root = _backward_root(block[last], loop.last_line)
        inside = sorted(_stored(block[last]) & _loaded(root))
        if inside:
            raise CannotRunAgainError(f"{inside[0]} is computed by the statement that calls backward, not before it")
    before, is_function = _before(tree, block)
    block, first, last = [*before, *block], first + len(before), last + len(before)
    if above_nan:
        cut = _with_makers_of_nan(block, first, last, root, loop.frame)
    else:
        cut = _slice(block, first, last, root, loop.frame, is_function=is_function)
    statements = cut.statements
    _refuse_unsafe([*statements, root], filename)
    target = ast.copy_location(ast.Name(_LOSS, ast.Store()), root)
    assignment = ast.copy_location(ast.Assign([target], root), root)
    # A loop of one turn catches `continue` and `break`; then there is no loss.
    once = ast.copy_location(ast.Tuple([ast.copy_location(ast.Constant(0), root)], ast.Load()), root)
    turn = ast.copy_location(ast.Name("__steadytrain_turn", ast.Store()), root)
    loop_once = ast.copy_location(ast.For(turn, once, [*statements, assignment], []), root)
    module = ast.fix_missing_locations(ast.Module([loop_once], []))
    code = compile(module, filename, "exec", dont_inherit=True)
    return Lines(
        code,
        own_context=isinstance(block[first], ast.With),
        from_further_up=cut.start < first,
        arguments=cut.arguments,
        root=root.id if isinstance(root, ast.Name) else None,
    )


def run_lines(loop: LoopLines, lines: Lines) -> Tensor:
    """Executes the lines on a copy of the function's variables. Returns the root of backward."""
    return run_with({**loop.frame.f_globals, **loop.frame.f_locals, **lines.arguments}, lines)


def run_with(variables: dict[str, Any], lines: Lines) -> Tensor:
    """Executes the lines on ``variables``, which they may change. Returns the root of backward."""
    # One dictionary serves as globals and locals: a comprehension in the lines must see the function's variables.
    variables.pop(_LOSS, None)
    exec(lines.code, variables)
    loss = variables.get(_LOSS)
    if not isinstance(loss, Tensor):
        raise CannotRunAgainError("the lines returned no loss when they ran again")
    return loss


def _slice(
    block: Sequence[ast.stmt], first: int, last: int, root: ast.expr, frame: FrameType, *, is_function: bool
) -> _Cut:
    """Starts at the model call, and moves up while an input variable is changed on the way or is gone."""
    variables = {**frame.f_globals, **frame.f_locals}
    modules = {name for name, value in variables.items() if isinstance(value, ModuleType)}
    deleted = {name for statement in block for name in _deleted(statement)} - set(variables)
    for start in range(first, -1, -1):
        statements, needed = _dependencies(block[start:last], root)
        overwritten = needed & (_changed(statements) | deleted) - modules
        if not overwritten:
            return _Cut(start, statements, {})
    arguments = passed_arguments(frame) if is_function else {}
    if overwritten <= set(arguments):
        return _Cut(0, statements, {name: arguments[name] for name in overwritten})
    names = ", ".join(sorted(overwritten))
    raise CannotRunAgainError(f"{names} comes from outside the loop, and the lines to rerun change it")


def _with_makers_of_nan(block: Sequence[ast.stmt], first: int, last: int, root: ast.expr, frame: FrameType) -> _Cut:
    """The lines from the model call on, and of those above it only the ones that made a NaN that these read. What they
    read themselves must be as it was then.

    Raises:
        CannotRunAgainError: the NaN came from further up, or a variable was changed since.
    """
    bad = {name for name, value in frame.f_locals.items() if _holds_nan(value)}
    statements, needed = _dependencies(block[first:last], root)
    since, wanted, start = _changed(block[first:last]), needed & bad, first
    above: list[ast.stmt] = []
    if needed & _changed(statements):
        raise CannotRunAgainError("the lines to rerun change what they read")
    for at in range(first - 1, -1, -1):
        part, changed = block[at], _changed(block[at : at + 1])
        if changed & wanted:
            read = _loaded(part)
            if read & (changed | since):
                raise CannotRunAgainError(f"what line {part.lineno} reads was changed since")
            above, start, wanted = [part, *above], at, (wanted - changed) | (read & bad)
        since |= changed
    if wanted or not above:
        raise CannotRunAgainError("the NaN was there before the lines that can run again")
    _refuse_methods(above, frame)
    return _Cut(start, [*above, *statements], {})


def _changed(statements: Sequence[ast.stmt]) -> set[str]:
    return {name for statement in statements for name in _stored(statement) | _touched(statement)}


def _holds_nan(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and bool(value.detach().isnan().any())


def _before(tree: ast.AST, block: list[ast.stmt]) -> tuple[list[ast.stmt], bool]:
    """The statements that run once before ``block``, outermost first, and whether they start at their function.

    They precede it in the enclosing ``with``, ``if`` and ``try`` blocks. Statements before a loop do not count, because
    they ran before its first turn.
    """
    places = {id(body[0]): (node, body) for node in ast.walk(tree) for body in _blocks(node)}
    held_in = {id(part): body for _, body in places.values() for part in body}
    before: list[ast.stmt] = []
    holder, body = places[id(block[0])]
    while isinstance(holder, (ast.With, ast.If, ast.Try)) and body is holder.body and not _stored_by_header(holder):
        outer = held_in[id(holder)]
        before = [*outer[: outer.index(holder)], *before]
        holder, body = places[id(outer[0])]
    return before, isinstance(holder, ast.FunctionDef)


def _stored_by_header(holder: ast.With | ast.If | ast.Try) -> set[str]:
    """The names that ``with f() as x:`` and ``if (x := f()):`` bind, which are lost if only the body is extracted."""
    if isinstance(holder, ast.With):
        return {name for item in holder.items for name in _stored(item)}
    return _stored(holder.test) if isinstance(holder, ast.If) else set()


def _dependencies(block: Sequence[ast.stmt], root: ast.expr) -> tuple[list[ast.stmt], set[str]]:
    """The statements of ``block`` on which ``root`` depends, and the names that they need from before."""
    needed = _loaded(root)
    statements: list[ast.stmt] = []
    for statement in reversed(block):
        stored = _stored(statement)
        if not (stored & needed or _touched(statement) & needed):
            continue
        statements.insert(0, statement)
        # A stored name may still keep its earlier value, if a branch is not taken again.
        needed = (needed - stored) | _loaded(statement)
    return statements, needed - set(dir(builtins))


def _loaded(node: ast.AST) -> set[str]:
    if isinstance(node, ast.With):  # its body may make a value before reading it
        needed: set[str] = set()
        for statement in reversed(node.body):
            needed = (needed - _stored(statement)) | _loaded(statement)
        return (needed - _stored_by_header(node)).union(*(_loaded(item) for item in node.items))
    loaded = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    updated = {p.target.id for p in ast.walk(node) if isinstance(p, ast.AugAssign) and isinstance(p.target, ast.Name)}
    own = _names(node.target) if isinstance(node, ast.For) else set()  # the loop binds its own variables
    return (loaded - own - _comprehended(node)) | updated


def _stored(node: ast.AST) -> set[str]:
    stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored - _comprehended(node)


def _deleted(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del)}


def _comprehended(node: ast.AST) -> set[str]:
    """The variables of comprehensions, which exist only inside them."""
    return {name for part in ast.walk(node) if isinstance(part, ast.comprehension) for name in _names(part.target)}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _touched(statement: ast.stmt) -> set[str]:
    """The variables that a statement may change without assignment: ``x.clamp_()``, ``f(y, out=x)``, ``x[i] = 0``.

    A method counts as changing its object by its name alone, so that logging (``self.log(loss)``) is not rerun.
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
            raise CannotRunAgainError(f"{filename}:{node.lineno} leaves the lines to rerun")
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in (UNSAFE_METHODS if isinstance(node.func, ast.Attribute) else UNSAFE_FUNCTIONS):
            raise CannotRunAgainError(f"{filename}:{node.lineno} calls {name}(), which must not run twice")


def _refuse_methods(parts: Sequence[ast.AST], frame: FrameType) -> None:
    """Refuses calls of methods of the script's own objects: they may change them (a buffer that is emptied)."""
    variables = {**frame.f_globals, **frame.f_locals}
    for call in (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)):
        if not isinstance(call.func, ast.Attribute):
            continue
        owner = call.func.value
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        own = isinstance(owner, ast.Name) and not isinstance(variables.get(owner.id), (Tensor, ModuleType))
        if own or call.func.attr in CHANGING_METHODS:
            raise CannotRunAgainError(f"{call.func.attr}() of line {call.lineno} may change what it is called on")


def _common_block(tree: ast.AST, first_line: int, last_line: int) -> tuple[list[ast.stmt], int, int]:
    """The innermost statement list that holds both lines, and the positions of their statements in it."""
    found: tuple[list[ast.stmt], int, int] | None = None
    for node in ast.walk(tree):
        for block in _blocks(node):
            firsts, lasts = _positions(block, first_line), _positions(block, last_line)
            if firsts and lasts and firsts[0] <= lasts[-1]:
                # If several statements share a line, choose the one that calls backward.
                last = next((at for at in lasts if _backward_calls(block[at], last_line)), lasts[-1])
                found = (block, firsts[0], last)  # ast.walk goes from outside in, so the last hit is the innermost
    if found is None:
        raise CannotRunAgainError("the model call and backward are in different blocks, or backward comes first")
    return found


def _block_of_loss(tree: ast.AST, line: int, loss: str) -> tuple[list[ast.stmt], int, int, ast.expr]:
    """The innermost statements that call the model on ``line`` and then make ``loss``, and the expression of the
    loss."""
    root = ast.parse(loss, mode="eval").body
    found: tuple[list[ast.stmt], int, int] | None = None
    for node in ast.walk(tree):
        for block in _blocks(node):
            positions = _positions(block, line)
            if not positions:
                continue
            made = [at for at in range(positions[0], len(block)) if _stored(block[at]) & _loaded(root)]
            changed = [at for at in made if _loaded(block[at]) & _loaded(root)]
            if made:
                found = (block, positions[0], max(made[0], *changed, 0) + 1)
    if found is None:
        raise CannotRunAgainError(f"{loss} is not computed where the model is called")
    block, first, last = found
    for part in ast.walk(root):
        ast.copy_location(part, block[first])
    return block, first, last, root


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    bodies = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [body for body in bodies if isinstance(body, list) and body and isinstance(body[0], ast.stmt)]


def _positions(block: list[ast.stmt], line: int) -> list[int]:
    """The positions of the statements of ``block`` that span ``line``."""
    return [at for at, part in enumerate(block) if part.lineno <= line <= (part.end_lineno or part.lineno)]


def _backward_root(statement: ast.stmt, line: int) -> ast.expr:
    """The root of backward: ``x`` in ``x.backward()``, the first argument in ``engine.backward(x)``."""
    calls = _backward_calls(statement, line)
    if len(calls) != 1:
        raise CannotRunAgainError("the line of backward is not a plain backward call")
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
