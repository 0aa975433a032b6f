"""Edits of Python source at the positions of its syntax tree, and questions about the tree. Pure, torch-free.

Columns of ``ast`` count bytes of UTF-8, so edits work on bytes. Everything outside an edit stays as it was written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

BARE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
"""Expressions after which a method can be called without parentheses."""

Insert = tuple[int, int, bytes]


class CannotPatchError(Exception):
    """The change cannot be made safely; the text says why."""


@dataclass(frozen=True)
class Edit:
    """Replaces the bytes from ``begin`` to ``end`` of the source by ``text``."""

    begin: int
    end: int
    text: str


class Source:
    """A script and its syntax tree. ``optimizer`` is the variable of the one at fault, "" if it is not known.

    Raises:
        CannotPatchError: it is no valid Python.
    """

    def __init__(self, text: str, optimizer: str = "") -> None:
        self.optimizer = optimizer
        self.bytes = text.encode("utf-8")
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise CannotPatchError(f"the script cannot be parsed: {error}") from None
        self._newline = "\r\n" if b"\r\n" in self.bytes else "\n"
        self._starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.bytes[begin:end].decode("utf-8")

    def replaced(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(*self.span(node), text)

    def before(self, statement: ast.stmt, line: str) -> Edit:
        """Inserts ``line`` as a statement of its own before ``statement``."""
        indent = self._indent(statement)
        start = self.at(statement.lineno, 0)
        return Edit(start, start, f"{indent}{line}{self._newline}")

    def after(self, statement: ast.stmt, line: str) -> Edit:
        """Inserts ``line`` as a statement of its own after ``statement``."""
        indent = self._indent(statement)
        assert statement.end_lineno is not None
        self._ends_its_line(statement)
        start = self._starts[statement.end_lineno]
        gap = "" if self.bytes[:start].endswith(b"\n") else self._newline
        return Edit(start, start, f"{gap}{indent}{line}{self._newline}")

    def without(self, statement: ast.stmt) -> Edit:
        """Removes the lines of ``statement``."""
        self._indent(statement)
        self._ends_its_line(statement)
        assert statement.end_lineno is not None
        return Edit(self.at(statement.lineno, 0), self._starts[statement.end_lineno], "")

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """The innermost loop around ``node``, None if there is none."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, ast.For | ast.While):
                return node
        return None

    def function(self, node: ast.AST) -> ast.AST | None:
        """The innermost function around ``node``, None at the level of the module."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return node
        return None

    def _ends_its_line(self, statement: ast.stmt) -> None:
        assert statement.end_lineno is not None
        rest = self.bytes[self.span(statement)[1] : self._starts[statement.end_lineno]].decode("utf-8").strip()
        if rest and not rest.startswith("#"):
            raise CannotPatchError(f"line {statement.lineno} holds several statements")

    def _indent(self, statement: ast.stmt) -> str:
        start = self.at(statement.lineno, 0)
        lead = self.bytes[start : self.span(statement)[0]].decode("utf-8")
        if lead.strip():
            raise CannotPatchError(f"line {statement.lineno} holds several statements")
        return lead


def applied(source: Source, edits: Sequence[Edit]) -> str:
    """The source with all edits. They must not overlap.

    Raises:
        CannotPatchError: the result is no valid Python.
    """
    made = source.bytes
    in_order = sorted(edits, key=lambda one: (one.begin, one.end))  # at one place in the order given
    for edit in reversed(in_order):
        made = made[: edit.begin] + edit.text.encode("utf-8") + made[edit.end :]
    text = made.decode("utf-8")
    Source(text)
    return text


def calls(source: Source, fits: Callable[[ast.Call], bool]) -> list[ast.Call]:
    """The calls that fit, in the order of the source."""
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and fits(node)]
    return sorted(found, key=lambda one: (one.lineno, one.col_offset))


def name_of(call: ast.Call) -> str:
    """``step`` of ``self.optimizer.step()``, ``log`` of ``log(x)``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def receiver(call: ast.Call) -> str:
    """``self.optimizer`` of ``self.optimizer.step()``, "" of a plain function."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def bare(source: Source, node: ast.expr) -> str:
    """The text of an expression after which a method can be called."""
    return source.text(node) if isinstance(node, BARE) else f"({source.text(node)})"


def with_argument(source: Source, call: ast.Call, argument: str) -> Edit:
    """Adds ``argument`` (``name=value``) at the end of a call."""
    given = [*call.args, *(one.value for one in call.keywords)]
    end = max(source.span(one)[1] for one in given) if given else source.span(call)[1] - 1
    return Edit(end, end, f", {argument}" if given else argument)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def number(node: ast.expr | None) -> float | None:
    """The value of a number in the source, None if it is another expression."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    fits = isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return float(node.value) if fits else None  # type: ignore[union-attr]


def assigned(source: Source, name: str) -> list[ast.expr]:
    """The values that the source assigns to ``name``."""
    return [
        node.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets)
    ]


ADAPTIVE = ("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "NAdam", "RAdam", "RMSprop", "SparseAdam")
OPTIMIZERS = frozenset((*ADAPTIVE, "ASGD", "LBFGS", "Muon", "Rprop", "SGD"))


def optimizers(source: Source) -> Iterator[tuple[str, ast.Call]]:
    """Names of optimizers with the call that made each: ``torch.optim.X(...)``, ``optim.X``, or ``AdamW(...)``."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            made = node.value
            if name_of(made) in OPTIMIZERS and receiver(made) in ("", "optim", "torch.optim"):
                yield ast.unparse(node.targets[0]), made


def only_optimizer(source: Source) -> tuple[str, ast.Call]:
    """The only optimizer of the script, or the one at fault.

    Raises:
        CannotPatchError: it makes none that can be read, or several of which none is known to be at fault.
    """
    found = list(optimizers(source))
    if len(found) > 1:
        found = [one for one in found if one[0] == source.optimizer] or found
    if len(found) != 1:
        raise CannotPatchError(f"the script makes {len(found) or 'no'} optimizers that can be read, not one")
    return found[0]


def step_of(source: Source, optimizer: str) -> ast.Call:
    """The only ``optimizer.step()`` or ``scaler.step(optimizer)`` that is a statement of its own in a loop.

    Raises:
        CannotPatchError: there is none, or several.
    """

    def fits(call: ast.Call) -> bool:
        if name_of(call) != "step" or not isinstance(source.parents[call], ast.Expr) or source.loop(call) is None:
            return False
        return receiver(call) == optimizer or (bool(call.args) and ast.unparse(call.args[0]) == optimizer)

    found = calls(source, fits)
    if len(found) != 1:
        raise CannotPatchError(f"{optimizer}.step() is called at {len(found)} places, not one")
    return found[0]
