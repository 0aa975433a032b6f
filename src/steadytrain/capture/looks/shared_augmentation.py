"""Finds one data set with random augmentation that is split into training and validation rows.

The mistake has four parts: a data set that is made with a random transform, or whose row flips or crops by a draw; a
split of this very object; a part that is named as held out; and an evaluation of that part. A part whose transform is
replaced is none, and neither are two views of one image, which are the task.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from steadytrain.capture.looks.split_names import holds_held_out, words
from steadytrain.capture.looks.syntax_trees import dotted, draws, last_name, scopes, statements, walk

RANDOM = re.compile(
    r"Random(ResizedCrop|HorizontalFlip|VerticalFlip|Crop|Rotation|Affine|Perspective|Erasing|Rotate90|Flip)|ColorJitter"
    r"|(Auto|Rand|TrivialAugment)(Augment|Wide)|AugMix|HorizontalFlip|VerticalFlip|ShiftScaleRotate|CoarseDropout"
)
MOVES = re.compile(r"(?i).*(flip|crop|rot|affine|jitter|erase|cutout|roll).*")
SWITCHES = re.compile(r"(?i).*(transforms?|augment\w*|train(ing)?|dataset|mode|split)")
OTHER_TASKS = frozenset(
    {"simclr", "byol", "moco", "contrastive", "views", "view", "mae", "denoise", "denoising", "dino"}
)
SUBSETS = frozenset({"Subset", "random_split"})
LOADERS = re.compile(r"\w*(Loader|Sampler)|len|print|iter|enumerate|next|list|range")


def shared_augmentation(tree: ast.Module) -> Iterator[int]:
    """The line of the split."""
    nodes = list(walk(tree))
    switched = any(
        isinstance(target, ast.Attribute) and dotted(target.value) != "self" and SWITCHES.fullmatch(target.attr)
        for one in nodes
        if isinstance(one, ast.Assign)
        for target in one.targets
    )
    if switched or words(tree) & OTHER_TASKS or not any(_evaluates(one) for one in nodes):
        return
    classes = {one.name for one in nodes if isinstance(one, ast.ClassDef) and _draws_rows(one)}
    transforms: set[str] = set()
    for one in nodes:
        if isinstance(one, ast.Assign) and _is_random(one.value, transforms):
            transforms |= set(map(dotted, one.targets)) - {""}
    for scope in scopes(tree):
        augmented: set[str] = set()
        split: dict[str, int] = {}
        for node in statements(scope):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                names = [dotted(each) for target in node.targets for each in getattr(target, "elts", [target])]
                if last_name(node.value.func) in SUBSETS:
                    of = node.value.args[0] if node.value.args else node.value
                    if dotted(of) in augmented or _makes_augmented(of, classes, transforms):
                        split |= dict.fromkeys(names, node.lineno)
                elif _makes_augmented(node.value, classes, transforms):
                    augmented |= set(names) - {""}
                else:
                    augmented -= set(names)
        held_out = [name for name in split if name and holds_held_out(ast.Name(name.replace(".", "_")))]
        others = [name for name in split if name not in held_out and name.strip("_")]
        lines = [split[name] for name in held_out if others and _is_loaded(name, tree)]
        if lines:
            yield lines[0]
            return


def _evaluates(node: ast.AST) -> bool:
    return (isinstance(node, ast.Call) and last_name(node.func) in ("eval", "no_grad", "inference_mode")) or (
        isinstance(node, ast.Attribute) and node.attr in ("no_grad", "inference_mode")
    )


def _is_random(value: ast.expr, transforms: set[str]) -> bool:
    """Whether an expression makes a chain of transforms, or one, of which one draws."""
    if not isinstance(value, ast.Call) or not last_name(value.func)[:1].isupper():
        return False
    calls = [last_name(one.func) for one in walk(value) if isinstance(one, ast.Call)]
    made = last_name(value.func) in ("Compose", "Sequential") or RANDOM.fullmatch(last_name(value.func)) is not None
    return made and (any(map(RANDOM.fullmatch, calls)) or any(dotted(one) in transforms for one in value.args))


def _makes_augmented(value: ast.expr, classes: set[str], transforms: set[str]) -> bool:
    """Whether a data set is made that augments each row that is read."""
    if not isinstance(value, ast.Call) or LOADERS.fullmatch(last_name(value.func)):
        return False
    if last_name(value.func) in classes:
        return True
    given = [*value.args, *(one.value for one in value.keywords if "target" not in (one.arg or ""))]
    is_set = last_name(value.func)[:1].isupper() and last_name(value.func) not in ("Compose", "Sequential")
    return is_set and any(dotted(one) in transforms or _is_random(one, transforms) for one in given)


def _draws_rows(made: ast.ClassDef) -> bool:
    """Whether the row of a data set is moved by a draw, under no switch of its own."""
    for one in made.body:
        if not isinstance(one, ast.FunctionDef) or one.name != "__getitem__":
            continue
        tests = [each.test for each in walk(one) if isinstance(each, (ast.If, ast.IfExp))]
        switched = any(dotted(each).startswith("self.") for test in tests for each in walk(test) if _is_place(each))
        calls = [last_name(each.func) for each in walk(one) if isinstance(each, ast.Call)]
        return draws(one) and not switched and any(map(MOVES.fullmatch, calls))
    return False


def _is_place(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute)


def _is_loaded(name: str, tree: ast.Module) -> bool:
    """Whether a part goes to a loader or a loop, and not into a data set of other transforms."""
    loaded = False
    for one in walk(tree):
        if isinstance(one, ast.Call) and any(dotted(each) == name for each in one.args):
            called = last_name(one.func)
            if called[:1].isupper() and not LOADERS.fullmatch(called):
                return False
            loaded = loaded or called.endswith("Loader")
        if isinstance(one, ast.For) and dotted(one.iter) == name:
            loaded = True
    return loaded
