"""Finds images that OpenCV reads, in the order blue, green, red, and that go into a pretrained model as they are.

The mistake has three parts in one file: a read of a colour image; no change of its order anywhere; and weights that
were trained before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, walk

CHANGES = re.compile(r"(?i).*(bgr|rgb|gr[ae]y).*")
NO_COLOURS = re.compile(r"(?i).*(mask|seg|label|depth|gt|gr[ae]y|annot).*")
MEANS_OF_CAFFE = frozenset({103.939, 116.779, 123.68, 104, 117, 123})
PRETRAINED = frozenset({"from_pretrained", "load_state_dict_from_url", "load_url"})
RED_FIRST = [2, 1, 0]


def swapped_channels(tree: ast.Module) -> Iterator[int]:
    """The line that reads the image."""
    nodes = list(walk(tree))
    if not any(_is_pretrained(one) for one in nodes) or any(_changes_order(one) for one in nodes):
        return
    for one in nodes:
        if isinstance(one, ast.Assign) and not any(NO_COLOURS.fullmatch(ast.unparse(each)) for each in one.targets):
            for call in walk(one.value):
                if isinstance(call, ast.Call) and dotted(call.func) == "cv2.imread" and _in_colour(call):
                    yield call.lineno
                    return


def _in_colour(call: ast.Call) -> bool:
    given = [*call.args[1:], *(one.value for one in call.keywords)]
    colour = all(last_name(one) == "IMREAD_COLOR" or getattr(one, "value", None) == 1 for one in given)
    return colour and not any(NO_COLOURS.fullmatch(ast.unparse(one)) for one in call.args[:1])


def _is_pretrained(node: ast.AST) -> bool:
    """``resnet18(weights="DEFAULT")``, ``create_model(name, pretrained=True)``, ``from_pretrained(name)``."""
    if not isinstance(node, ast.Call):
        return False
    if last_name(node.func) in PRETRAINED:
        return True
    for one in node.keywords:
        value = getattr(one.value, "value", "given")
        if one.arg == "pretrained" and value is True:
            return True
        named = isinstance(one.value, ast.Attribute) or (isinstance(value, str) and isinstance(one.value, ast.Constant))
        if one.arg in ("weights", "encoder_weights") and named:
            return True
    return False


def _changes_order(node: ast.AST) -> bool:
    """Whether the order of colours is changed, or said to be another one."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return CHANGES.fullmatch(last_name(node)) is not None
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float) and node.value in MEANS_OF_CAFFE
    if isinstance(node, ast.Slice):
        return node.step is not None and ast.unparse(node.step) == "-1"
    if isinstance(node, (ast.List, ast.Tuple)):
        return [getattr(one, "value", None) for one in node.elts] == RED_FIRST
    return isinstance(node, ast.FunctionDef) and CHANGES.fullmatch(node.name) is not None
