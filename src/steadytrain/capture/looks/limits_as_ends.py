"""Finds a time limit that is kept as the end of an episode: of ``obs, reward, terminated, truncated, info`` that a step
gives, ``truncated`` alone goes into the buffer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from steadytrain.capture.looks.bootstrapped_ends import FIELDS_MIN, PLAIN_END, STORES
from steadytrain.capture.looks.syntax_trees import assignments, last_name, names_read, scopes, statements

ENDED = re.compile(r"(?i)(.*_)?term(inated|inals?|inations?|s)?(_.*)?")
LIMITED = re.compile(r"(?i)(.*_)?trunc(ated|ations?|s)?(_.*)?|(.*_)?time_?(limit|out)s?(_.*)?")
FLAGS_AT, VALUES = 2, 5
"""The place of the two flags among the values that a step returns."""

EITHER = (ast.Or, ast.BitOr)

Flags = tuple[set[str], set[str]]


def limits_as_ends(tree: ast.Module) -> Iterator[int]:
    """The lines where the flag is stored."""
    for scope in scopes(tree):
        nodes = statements(scope)
        ended, limited = _flags(nodes)
        if not limited:
            continue
        for node in nodes:
            stored = _stored(node)
            read = [names_read(one) for one in stored]
            if any(one & limited for one in read) and not any(one & ended for one in read):
                yield node.lineno  # type: ignore[attr-defined]


def _flags(nodes: Sequence[ast.AST]) -> Flags:
    """The variables for the end of an episode, and those for its time limit alone."""
    ended: set[str] = set()
    limited: set[str] = set()
    for target, value in assignments(nodes):
        names = [last_name(one) for one in target.elts] if isinstance(target, ast.Tuple) else []
        flags = names[FLAGS_AT : FLAGS_AT + 2] if isinstance(value, ast.Call) else []
        if len(flags) == 2 and len(names) == VALUES and _are_flags(flags, nodes):
            ended.add(flags[0])
            limited.add(flags[1])
        elif isinstance(target, ast.Name):
            read = _flags_in(value)
            alone = bool(read & limited) and not read & ended
            (limited.add if alone else limited.discard)(target.id)
            (ended.add if read & ended else ended.discard)(target.id)
    return ended, limited


def _flags_in(value: ast.expr) -> set[str]:
    """The variables of which a flag is made, by ``or``, ``not`` or a conversion."""
    if isinstance(value, ast.Name):
        return {value.id}
    parts: list[ast.expr] = []
    if isinstance(value, ast.Call):
        parts = value.args[:1] or ([value.func.value] if isinstance(value.func, ast.Attribute) else [])
    elif isinstance(value, ast.BoolOp):
        parts = value.values
    elif isinstance(value, ast.BinOp):
        parts = [value.left, value.right]
    elif isinstance(value, ast.UnaryOp):
        parts = [value.operand]
    return {name for one in parts for name in _flags_in(one)}


def _are_flags(flags: Sequence[str], nodes: Sequence[ast.AST]) -> bool:
    """Whether two variables are the end of an episode and its time limit: by their names, or because either of them
    ends the episode."""
    if LIMITED.fullmatch(flags[1]):
        return ENDED.fullmatch(flags[0]) is not None
    either = (one for one in nodes if isinstance(one, (ast.BoolOp, ast.BinOp)) and isinstance(one.op, EITHER))
    return PLAIN_END.fullmatch(flags[1]) is not None and any(set(flags) <= names_read(one) for one in either)


def _parts(given: ast.expr) -> list[ast.expr]:
    """The fields of a tuple, or of a transition that is made on the spot."""
    if isinstance(given, ast.Call) and len(given.args) + len(given.keywords) >= FIELDS_MIN:
        return [*given.args, *(word.value for word in given.keywords)]
    return given.elts if isinstance(given, ast.Tuple) else [given]


def _stored(node: ast.AST) -> list[ast.expr]:
    """What a call or an assignment puts into a buffer: a whole transition, or its end alone."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and STORES.fullmatch(node.func.attr):
        given = [*node.args, *(word.value for word in node.keywords)]
        fields = [part for one in given for part in _parts(one)]
        alone = len(fields) == 1 and PLAIN_END.fullmatch(last_name(node.func.value))
        return fields if len(fields) >= FIELDS_MIN or alone else []
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        base = node.targets[0].value
        return [node.value] if PLAIN_END.fullmatch(last_name(base)) else []
    return []
