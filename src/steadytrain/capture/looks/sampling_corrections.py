"""Finds a correction for sampled negatives that is added to the scores: it has to be subtracted.

A softmax over the items of a batch, or over drawn ones, sees an item as often as it is drawn. Taking the logarithm of
that probability off its score makes up for it (Bengio and Senecal, 2008; Yi et al., 2019). Where it is added, common
items count twice. A logarithm of class frequencies that is added to all classes is another matter (Menon et al., 2021).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import last_name, names_called, scopes, statements, walk

NAMES = re.compile(
    r"(?i)^_*(log_?q(_?\w+)?|log_?(pop|freq|sampl|propos|unigram|noise|expected|draw)\w*|\w*log_?q"
    r"|(pop\w*|freq\w*|sampl\w*|propos\w*|unigram|noise|neg\w*)_log_?(p\w*|q|counts?|freqs?)?)$"
)
"""What such a logarithm is called."""

LOGARITHM = re.compile(r"(?i)^_*log_?(p|probs?|weights?|counts?)$")
COUNTED = re.compile(r"(?i)freq|pop|sampl|propos|unigram|expected|q_?(dist|probs?|item)|^q$|noise_?(dist|probs?|p$)")
LOGARITHMS = frozenset({"log", "log_softmax", "log1p"})
SCORES = re.compile(r"(?i)scor|logit|simil|sims?\b|sims?_|dots?\b|cosine|inner")
PRODUCTS = frozenset({"matmul", "mm", "bmm", "einsum", "baddbmm", "addmm"})
FIRST_OR_OWN = frozenset({"arange", "zeros", "zeros_like", "new_zeros"})
PICKED = frozenset({"diag", "diagonal"})
DRAWING = frozenset({"softmax", "Categorical", "multinomial", "gumbel_softmax", "sigmoid"})
JOINED = frozenset({"cat", "concat", "concatenate", "hstack"})


def added_corrections(tree: ast.Module) -> Iterator[int]:
    """The lines that add such a logarithm to scores, in a source whose labels are those of sampled choices."""
    if not _has_sampled_labels(tree):
        return
    common = _logarithms(statements(tree))
    for scope in scopes(tree):
        nodes = statements(scope)
        logs = common | _logarithms(nodes)
        drawn = {id(one) for node in nodes if _draws(node) for one in walk(node)}
        for node in nodes:
            if id(node) in drawn:
                continue
            pairs: list[tuple[ast.expr, ast.expr]]
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                pairs = [(node.target, node.value)]
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                pairs = [(node.left, node.right), (node.right, node.left)]
            elif isinstance(node, ast.Call) and last_name(node.func) in ("add", "add_") and node.args:
                pairs = [(node.func, node.args[0])]
            else:
                continue
            if any(_are_scores(one, nodes) and _is_correction(other, logs) for one, other in pairs):
                yield node.lineno


def _logarithms(nodes: tuple[ast.AST, ...]) -> set[str]:
    """The names that are given such a logarithm."""
    given = [one for one in nodes if isinstance(one, ast.Assign) and _is_logarithm(one.value, set())]
    return {name for one in given for target in one.targets if (name := _id(target))}


def _draws(node: ast.AST) -> bool:
    """Whether the call makes probabilities to draw from: such data may follow any popularity."""
    return isinstance(node, ast.Call) and last_name(node.func) in DRAWING


def _has_sampled_labels(tree: ast.Module) -> bool:
    """Whether a loss is given the places of the batch, or the first place, as labels, or picks those itself."""
    made = {
        one.targets[0].id
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_of_places(one.value)
    }
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if len(node.args) > 1 and (_is_of_places(node.args[1]) or _id(node.args[1]) in made):
            return True
        if last_name(node.func) == "logsumexp" and names_called(node) & JOINED:
            return True  # the score of the right one beside those of the drawn ones
        if last_name(node.func) in PICKED and any("softmax" in one for one in names_called(node)):
            return True
    return False


def _is_of_places(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in FIRST_OR_OWN


def _id(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _are_scores(node: ast.expr, nodes: tuple[ast.AST, ...]) -> bool:
    """Whether the expression is a product of two encodings, or is called like scores."""
    if isinstance(node, ast.Name) and not SCORES.search(node.id):
        given = [one.value for one in nodes if isinstance(one, ast.Assign) and _id(one.targets[0]) == node.id]
        return any(_has_product(one) for one in given)
    names = {last_name(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
    return _has_product(node) or any(SCORES.search(one) for one in names)


def _has_product(node: ast.AST) -> bool:
    if any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.MatMult) for one in walk(node)):
        return True
    return not names_called(node).isdisjoint(PRODUCTS)


def _is_correction(node: ast.expr, logs: set[str]) -> bool:
    """Whether the expression is such a logarithm with a positive sign, or a part of one."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not _is_logarithm(node, logs):
            if last_name(node.func) in ("neg", "negative"):
                return False
            node = node.func.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if any(isinstance(one, ast.UnaryOp) for one in (node.left, node.right)):
                return False
            return _is_correction(node.left, logs) or _is_correction(node.right, logs)
        else:
            break
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _is_correction(node.left, logs)
    if _is_logarithm(node, logs):
        return True
    if isinstance(node, ast.Attribute) and LOGARITHM.search(node.attr) and COUNTED.search(last_name(node.value)):
        return True
    return isinstance(node, (ast.Name, ast.Attribute)) and bool(NAMES.match(last_name(node)))


def _is_logarithm(node: ast.expr, logs: set[str]) -> bool:
    """Whether it is the logarithm of a frequency or a probability of being drawn."""
    if isinstance(node, ast.Name):
        return node.id in logs
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Call) or last_name(node.func) not in LOGARITHMS:
        return False
    names = {last_name(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
    return any(COUNTED.search(one) for one in names - LOGARITHMS)
