"""Finds masks of classes that are resized or turned with interpolation.

The mistake has three parts: a call that interpolates, by its default or by what it is told; something that is named as
a mask of classes; and a conversion of such a mask to integers. Between class 1 and class 3 then lies class 2, which is
not there. Masks that are compared with a threshold afterwards, soft masks, and images of a palette are none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.syntax_trees import dotted, last_name, scopes, statements, walk

MASK = re.compile(
    r"(?i)(.*_)?(masks?|seg|segs|segmentation|segmaps?|label_?maps?|label_im(g|age)s?|lbls?|gt|annot\w*)\d*(_.*)?"
)
OTHERWISE = re.compile(
    r"(?i).*(soft|pred|prob|logit|score|out|attn|attention|pad|valid|alpha|heat|depth|weight|noise|loss|key|query|box|rcnn"
    r"|coarse|roi).*"
)
"""Masks that are no classes, or that a model gives."""

EXACT = re.compile(r"(?i).*nearest.*")
SMOOTH = re.compile(r"(?i).*(bilinear|bicubic|trilinear|lanczos|inter_linear|inter_cubic|inter_area|antialias|box)")
INTEGERS = re.compile(r"long|LongTensor|int64|int32|int16|int")
FUNCTIONAL = re.compile(r"(TF|tF|F|FF|VF|tvf|functional|(torchvision\.)?(transforms\.)?(v2\.)?functional)")
CV2 = frozenset({"resize", "warpAffine", "warpPerspective"})
BY_DEFAULT = frozenset({"resize", "resized_crop", "perspective"})
"""Functions of torchvision that interpolate unless told otherwise; a rotation takes the nearest."""

CLASSES = frozenset({"Resize", "RandomResizedCrop", "RandomPerspective"})
DECIDES = re.compile(r"round_?|argmax|max|threshold\w*|bool|gt|ge|where|rint")
"""What makes classes of the values between them; comparisons do, too."""

TWO = re.compile(r"(?i).*(bce|binary).*")
MORE = re.compile(r"(?i)cross_?entropy.*|nll.*|.*multi_?class.*")
SPLINES = frozenset({"zoom", "rotate", "affine_transform", "map_coordinates"})


def smoothed_masks(tree: ast.Module) -> Iterator[int]:
    """The line of the call that interpolates."""
    if any(isinstance(one, (ast.Name, ast.Attribute)) and last_name(one) == "tv_tensors" for one in walk(tree)):
        return
    if _has_two_classes(tree):
        return
    transforms = _interpolating(tree)
    integers = {root for one in walk(tree) if isinstance(one, ast.Call) for root in _made_integer(one)}
    told = False
    for scope in scopes(tree):
        nodes = list(statements(scope))
        cut = _decided(nodes)
        palette = {
            _root(one) for node in nodes if isinstance(node, ast.Assign) and _opens(node.value) for one in node.targets
        }
        opened = any(isinstance(one, ast.Call) and _gives_grey(one) for one in nodes)
        for node in nodes:
            if not isinstance(node, ast.Call) or not (root := _interpolated(node, transforms, greys=opened)):
                continue
            stored = {root} | {_root(one) for one in _targets(nodes, node)}
            if not told and stored & integers and not stored & (cut | palette):
                told = True
                yield node.lineno


def _decided(nodes: list[ast.AST]) -> set[str]:
    """What is compared or rounded, and what is assigned from that: a mask of two classes knows no class between."""
    found: set[str] = set()
    for node in nodes:
        parts = list(walk(node)) if isinstance(node, (ast.Compare, ast.Call, ast.Assign)) else []
        decides = [
            one for one in parts if isinstance(one, ast.Compare) or (isinstance(one, ast.Call) and _decides(one))
        ]
        if decides:
            found |= {_root(each) for one in decides for each in walk(one) if isinstance(each, ast.expr)}
            found |= {_root(one) for one in node.targets} if isinstance(node, ast.Assign) else set()
    return found


def _decides(call: ast.Call) -> bool:
    return DECIDES.fullmatch(last_name(call.func)) is not None


def _has_two_classes(tree: ast.Module) -> bool:
    """Whether the losses of a module are those of two classes."""
    names = {last_name(one) for one in walk(tree) if isinstance(one, (ast.Name, ast.Attribute))}
    return any(map(TWO.fullmatch, names)) and not any(map(MORE.fullmatch, names))


def _interpolated(call: ast.Call, transforms: set[str], *, greys: bool) -> str:
    """The mask that a call interpolates, "" if it does none."""
    name, holder = last_name(call.func), call.func.value if isinstance(call.func, ast.Attribute) else None
    says = [one for each in (*call.args[1:], *call.keywords) for one in _words(each)]
    if any(map(EXACT.fullmatch, says)):
        return ""
    smooth = any(map(SMOOTH.fullmatch, says))
    first = _mask(call.args[0]) if call.args else ""
    if dotted(call.func) in transforms:
        return first
    if name in ("interpolate", "grid_sample"):
        return first if smooth else ""
    told = any(one.arg in ("interpolation", "resample", "mode", "order") for one in call.keywords)
    if told and not smooth:
        return ""  # by a number, or by a variable
    of = dotted(holder) if holder is not None else ""
    if of == "cv2":
        return first if name in CV2 else ""
    if FUNCTIONAL.fullmatch(of):
        return first if name in BY_DEFAULT or (smooth and name in ("rotate", "affine")) else ""
    if of.endswith("ndimage"):
        return first if name in SPLINES else ""
    of_image = name == "resize" and holder is not None and greys and len(call.args) == 1
    return _mask(holder) if of_image and holder is not None else ""


def _interpolating(tree: ast.Module) -> set[str]:
    """Variables that hold a transform, or a chain of them, that interpolates what it is given."""
    return {
        dotted(target)
        for one in walk(tree)
        if isinstance(one, ast.Assign)
        for made in walk(one.value)
        if isinstance(made, ast.Call)
        and last_name(made.func) in CLASSES
        and not _is_told(made)
        and dotted(made.func).split(".")[0] not in ("A", "albumentations", "v2")
        for target in one.targets
    } - {""}


def _is_told(call: ast.Call) -> bool:
    return any(one.arg == "interpolation" for one in call.keywords) or len(call.args) > 1


def _made_integer(call: ast.Call) -> Iterator[str]:
    """The roots of what ``mask.long()``, ``torch.tensor(mask, dtype=torch.long)`` or ``astype(int)`` makes integers."""
    name = last_name(call.func)
    to = [last_name(one) for one in (*call.args, *(each.value for each in call.keywords))]
    to += [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    by_type = name in ("to", "type", "astype", "tensor", "as_tensor", "array", "asarray") and any(
        map(INTEGERS.fullmatch, to)
    )
    of_tensor = name == "int" and isinstance(call.func, ast.Attribute)
    if name in ("long", "LongTensor") or of_tensor or by_type:
        yield from (root for one in (*_holder(call), *call.args) if (root := _root(one)))


def _holder(call: ast.Call) -> list[ast.expr]:
    return [call.func.value] if isinstance(call.func, ast.Attribute) else []


def _gives_grey(call: ast.Call) -> bool:
    """Whether an image is made that interpolates when it is resized: one of a palette never does."""
    letters = [getattr(one, "value", None) for one in call.args]
    return last_name(call.func) == "fromarray" or (
        last_name(call.func) == "convert" and bool({"L", "I", "F"} & {*letters})
    )


def _opens(value: ast.expr) -> bool:
    """Whether an image is read from a file and its palette is kept, which no resize interpolates."""
    calls = [last_name(one.func) for one in walk(value) if isinstance(one, ast.Call)]
    return "open" in calls and "convert" not in calls


def _targets(nodes: list[ast.AST], call: ast.Call) -> Iterator[ast.expr]:
    """What the value of ``call`` is assigned to, alone or inside of more."""
    for one in nodes:
        if isinstance(one, ast.Assign) and any(each is call for each in walk(one.value)):
            yield from one.targets


def _mask(node: ast.expr) -> str:
    root = _root(node)
    return root if MASK.fullmatch(root) and not OTHERWISE.fullmatch(root) else ""


def _root(node: ast.expr) -> str:
    """``mask`` of ``self.mask[i]``, ``mask.unsqueeze(0)``, ``np.array(mask)`` and ``Image.fromarray(mask)``."""
    while True:
        if isinstance(node, (ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Call):
            held = node.func.value if isinstance(node.func, ast.Attribute) else None
            of_module = held is None or dotted(held) in ("np", "numpy", "torch", "Image", "cv2", "F", "TF", "PIL.Image")
            if of_module and not node.args:
                return ""
            node = node.args[0] if of_module or held is None else held
        elif isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Call, ast.Subscript)):
            node = node.value
        else:
            return last_name(node)


def _words(node: ast.AST) -> Iterator[str]:
    for one in walk(node):
        if isinstance(one, (ast.Name, ast.Attribute)):
            yield last_name(one)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
