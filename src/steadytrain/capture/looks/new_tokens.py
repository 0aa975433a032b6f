"""Finds tokens that are added to a model whose embedding stays frozen under adapters.

The mistake has three parts: the table grows (``add_tokens`` and ``resize_token_embeddings``, or a larger ``Embedding``
that takes the old rows); all weights but those of adapters are frozen; and nothing in the file trains the table. A
token for padding alone is none: its row is never read for anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, walk

ADAPTER = re.compile(r"(?i).*lora.*|.*adapter.*|get_peft_model|IA3Config")
TABLE = re.compile(r"(?i).*(embed|emb\b|wte|token|lm_head|vocab|tok_).*")
THAWED = frozenset({"modules_to_save", "trainable_token_indices"})
FREEZES = frozenset({"get_peft_model", "add_adapter", "mark_only_lora_as_trainable"})
PADDING = frozenset({"pad_token"})


def frozen_new_tokens(tree: ast.Module) -> Iterator[int]:
    """The line that makes the table larger."""
    calls = [one for one in walk(tree) if isinstance(one, ast.Call)]
    if not any(ADAPTER.fullmatch(last_name(one.func)) for one in calls):
        return
    grown = _resized(calls) or _copied_rows(tree)
    if grown and not _thaws(tree, calls):
        frozen = [_reached(tree, calls, line) for line in _freezes(tree, calls)]
        if frozen and max(frozen) > _reached(tree, calls, grown):  # a table made after it has a gradient
            yield grown


def _reached(tree: ast.Module, calls: list[ast.Call], line: int) -> int:
    """The line of the last call of the function that holds ``line``; ``line`` itself in none."""
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and one.lineno <= line <= (one.end_lineno or line):
            return max((each.lineno for each in calls if last_name(each.func) == one.name), default=line)
    return line


def _resized(calls: list[ast.Call]) -> int:
    """The line of ``resize_token_embeddings`` after tokens other than padding were added; 0 if there is none."""
    added = any(
        last_name(one.func) == "add_tokens" or (last_name(one.func) == "add_special_tokens" and not _is_padding(one))
        for one in calls
        if one.args
    )
    lines = [one.lineno for one in calls if last_name(one.func) == "resize_token_embeddings" and one.args]
    return lines[0] if added and lines else 0


def _is_padding(call: ast.Call) -> bool:
    given = call.args[0]
    if not isinstance(given, ast.Dict):
        return False
    return {one.value for one in given.keys if isinstance(one, ast.Constant)} <= PADDING


def _copied_rows(tree: ast.Module) -> int:
    """The line of ``new.weight[:n] = old.weight`` or ``new.weight.data[:n].copy_(old.weight)`` of a new table."""
    tables = {
        dotted(target)
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and last_name(one.value.func) == "Embedding"
        for target in one.targets
    }
    for node in walk(tree):
        target = value = None
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.Call) and last_name(node.func) == "copy_" and node.args:
            assert isinstance(node.func, ast.Attribute)
            target, value = node.func.value, node.args[0]
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice) and target.slice.lower is None:
            name = dotted(target.value).removesuffix(".data")
            owner = name.removesuffix(".weight")
            if name != owner and owner in tables and value is not None and _reads_weight(value):
                return node.lineno if isinstance(node, (ast.Assign, ast.Call)) else 0
    return 0


def _reads_weight(value: ast.expr) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "weight" for one in walk(value))


def _freezes(tree: ast.Module, calls: list[ast.Call]) -> Iterator[int]:
    """The lines that freeze the base: by a library, or by ``requires_grad`` of all parameters."""
    yield from (one.lineno for one in calls if last_name(one.func) in FREEZES)
    yield from (line for line, value in _settings(tree, calls) if value is not True)


def _thaws(tree: ast.Module, calls: list[ast.Call]) -> bool:
    """Whether anything in the file may train the table."""
    for call in calls:
        for one in call.keywords:
            of_table = one.arg == "target_modules" and _names_table(one.value)
            if of_table or (one.arg in THAWED and not _is_none(one.value)):
                return True
        if last_name(call.func) == "register_hook":
            return True
    return any(value is True for _, value in _settings(tree, calls)) or any(
        isinstance(one, ast.Compare) and _names_table(one) for one in walk(tree)
    )


def _settings(tree: ast.Module, calls: list[ast.Call]) -> Iterator[tuple[int, bool | None]]:
    """Lines that set ``requires_grad``, with the value; None if that depends."""
    for call in calls:
        if last_name(call.func) == "requires_grad_":
            yield call.lineno, _constant(call.args[0]) if call.args else True
    for node in walk(tree):
        if isinstance(node, ast.Assign) and any(last_name(one) == "requires_grad" for one in node.targets):
            yield node.lineno, _constant(node.value)


def _constant(value: ast.expr) -> bool | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, bool) else None


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _names_table(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) and bool(TABLE.fullmatch(one.value))
        for one in walk(node)
    )
