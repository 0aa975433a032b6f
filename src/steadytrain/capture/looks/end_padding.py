"""Finds padding with the id of the end of a text, in a source that masks labels by it, and ends that are put in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, walk

PAD = re.compile(r"(?i)(^|_)pad(ding)?(_|$|[A-Z])|^pad")
END = re.compile(r"(?i)(^|_)(eos|eot|end|stop|endoftext|im_end)(_|$)")
FILLED_WITH = ("padding_value", "value", "fill_value")
COLLATOR = "DataCollatorForLanguageModeling"


def end_as_padding(tree: ast.Module) -> Iterator[int]:
    """The line that makes the id of the end that of padding, where labels are masked by comparing with either.

    As ``PAD = EOS``, two constants of one value, or ``padding_value=EOS``; and as ``labels[labels == PAD] = -100``,
    ``ignore_index=PAD`` or the collator of transformers that masks so. Whether the end is masked, only data show.
    """
    lines = [*_assigned(tree), *_constants(tree), *_filled(tree)]
    if lines and any(map(_masks, walk(tree))):
        yield min(lines)


def ends_put_in(tree: ast.Module) -> Iterator[int]:
    """The first line that puts the end into a text: ``ids + [EOS]``, ``ids.append(EOS)`` or ``ids[length] = EOS``."""
    yield from sorted(node.lineno for node in walk(tree) if isinstance(node, (ast.expr, ast.stmt)) and _puts(node))[:1]


def _puts(node: ast.AST) -> bool:
    if isinstance(node, ast.List):
        return any(END.search(last_name(one)) for one in node.elts)
    if isinstance(node, ast.Assign):
        return END.search(last_name(node.value)) is not None and any(
            isinstance(one, ast.Subscript) for one in node.targets
        )
    if isinstance(node, ast.Call) and last_name(node.func) == "append":
        return any(END.search(last_name(one)) for one in node.args)
    return False


def _assigned(tree: ast.Module) -> Iterator[int]:
    for node in walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [*map(last_name, targets), last_name(node.value)]
            if any(map(PAD.search, names)) and any(map(END.search, names)):
                yield node.lineno


def _constants(tree: ast.Module) -> Iterator[int]:
    """Where two constants of one value are called as padding and as the end."""
    given: dict[str, dict[int, int]] = {"pad": {}, "end": {}}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is int:
            for name in map(last_name, node.targets):
                kind = "pad" if PAD.search(name) else "end" if END.search(name) else ""
                if kind:
                    given[kind][node.value.value] = node.lineno
    for value in given["pad"].keys() & given["end"].keys():
        yield max(given["pad"][value], given["end"][value])


def _filled(tree: ast.Module) -> Iterator[int]:
    for node in walk(tree):
        if isinstance(node, ast.Call) and PAD.search(last_name(node.func)):
            for keyword in node.keywords:
                if keyword.arg in FILLED_WITH and END.search(last_name(keyword.value)):
                    yield keyword.value.lineno


def _masks(node: ast.AST) -> bool:
    """Whether ``node`` compares with padding or the end, ignores it, or makes the collator that does."""
    if isinstance(node, ast.Compare):
        sides = map(last_name, [node.left, *node.comparators])
        equal = isinstance(node.ops[0], (ast.Eq, ast.NotEq))
        return equal and any(PAD.search(one) or END.search(one) for one in sides)
    if isinstance(node, ast.keyword) and node.arg == "ignore_index":
        name = last_name(node.value)
        return bool(PAD.search(name) or END.search(name))
    return isinstance(node, ast.Call) and last_name(node.func) == COLLATOR
