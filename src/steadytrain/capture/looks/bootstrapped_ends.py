"""Finds a value that is bootstrapped past the end of an episode: the script knows of the end and does not read it.

It knows of it by a variable of a sampled transition, an argument, a mask that is computed and then not used, or a
buffer that ends are put into and whose batches are used without theirs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import Scope, last_name, names_read, scopes, statements, walk

DISCOUNT = re.compile(r"(?i)(.*_)?(gamma|discount\w*)")
NEXT = re.compile(r"(?i).*(next|nxt|target|tgt|max|best|bootstrap|q2|v2|s2|future).*")
END = re.compile(
    r"(?i)(.*_)?(b?d|dones?|terminals?|terminated|terminations?|ended|ends?|finished|dead|not_?dones?|nd)(_.*)?"
)
PLAIN_END = re.compile(r"(?i)(.*_)?(dones?|terminals?|terminated|terminations?|not_?dones?)(_.*)?")
REWARD = re.compile(r"(?i)rewards?|rews?|r")
SHAPE_ONLY = re.compile(r"(zeros|ones|empty|full|rand|randn)_like|len")
STORES = re.compile(r"add|push|append|store|remember|put|insert|save")
FIELDS_MIN = 4
"""Variables of a transition: state, action, reward, next state, and whether it was the last."""


def unused_ends(tree: ast.Module) -> Iterator[int]:
    """The line of the bootstrapped value."""
    for scope in scopes(tree):
        nodes = list(statements(scope))
        bootstrap = _bootstrap(nodes)
        if bootstrap is None:
            continue
        if _unread(scope, nodes) or _dead_mask(nodes) or (_batch_without_ends(bootstrap, nodes) and _stores_ends(tree)):
            yield bootstrap.lineno


def _unread(scope: Scope, nodes: list[ast.AST]) -> bool:
    """Whether the ends that the scope is given are read nowhere in it."""
    ends = {name for node in nodes for name in _ends_unpacked(node)} | _ends_given(scope)
    skipped = {id(one) for node in nodes if _is_of_shape(node) for one in walk(node)}
    read = (one for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    return bool(ends) and not ends & {one.id for one in read if id(one) not in skipped}


def _dead_mask(nodes: list[ast.AST]) -> bool:
    """Whether ``live = 1 - done`` is computed and never read."""
    read = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return any(
        isinstance(node, ast.Assign)
        and all(isinstance(target, ast.Name) and target.id not in read for target in node.targets)
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.Sub)
        and isinstance(node.value.left, ast.Constant)
        and any(map(PLAIN_END.fullmatch, names_read(node.value)))
        for node in nodes
    )


def _stores_ends(tree: ast.Module) -> bool:
    """Whether the ends of episodes are put into a buffer."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and STORES.fullmatch(node.func.attr)
        and len(node.args) >= FIELDS_MIN
        and any(PLAIN_END.fullmatch(last_name(one)) for one in node.args)
        for node in walk(tree)
    )


def _batch_without_ends(bootstrap: ast.BinOp, nodes: list[ast.AST]) -> bool:
    """Whether the reward is a field of a batch, and no end of this batch is read."""
    fields = [one for one in walk(bootstrap) if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)]
    batches = {one.value.id for one in fields if REWARD.fullmatch(one.attr) and isinstance(one.value, ast.Name)}
    read = (one for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name))
    ends = {one.value.id for one in read if END.fullmatch(one.attr) and isinstance(one.value, ast.Name)}
    return bool(batches) and not batches & ends


def _is_of_shape(node: ast.AST) -> bool:
    """A call such as ``torch.ones_like(done)``, which reads no value."""
    return isinstance(node, ast.Call) and SHAPE_ONLY.fullmatch(last_name(node.func)) is not None


def _bootstrap(nodes: list[ast.AST]) -> ast.BinOp | None:
    """``reward + gamma * value_of_next``."""
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side in (node.left, node.right):
                if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult) and is_discounted_next(side):
                    return node
    return None


def is_discounted_next(product: ast.BinOp) -> bool:
    """``gamma * value_of_next``."""
    words = {last_name(one) for one in walk(product) if isinstance(one, (ast.Name, ast.Attribute))}
    discount = {one for one in words if DISCOUNT.fullmatch(one)}
    return bool(discount) and any(NEXT.fullmatch(one) for one in words - discount)


def _ends_given(scope: Scope) -> set[str]:
    """Arguments of a function that are named as the ends of episodes."""
    if isinstance(scope, ast.Module):
        return set()
    return {one.arg for one in scope.args.args if len(one.arg) > 1 and END.fullmatch(one.arg)}


def _ends_unpacked(node: ast.AST) -> Iterator[str]:
    """The last variable of a sampled transition, if its name says that it is the end of an episode."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.For) else []
    for target in targets:
        names = [one.id for one in target.elts if isinstance(one, ast.Name)] if isinstance(target, ast.Tuple) else []
        if len(names) >= FIELDS_MIN and END.fullmatch(names[-1]):
            yield names[-1]
