"""Patches: the smallest change of a script's own lines that mends a cause. Pure: text in, text and diff out.

A patch is made only where the syntax tree leaves no doubt: one optimizer, one backward, one operation on the named
line. Everywhere else ``patches_for`` says why there is none. Nothing here runs or writes a script: that is
``trial_runs.patched_run``.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steadytrain.core.incident import Located
from steadytrain.core.json_values import JsonValue
from steadytrain.diagnosis.patch_edits import (
    BARE,
    CannotPatchError,
    Edit,
    Source,
    applied,
    assigned,
    calls,
    keyword,
    name_of,
    number,
    only_optimizer,
    receiver,
    step_of,
)

TINY = "1e-12"
"""Smallest argument of log, root and division: far below values of data, and its logarithm (-27.6) is harmless."""

EPSILON = "1e-08"
MOMENTUM = "0.9"
CLIP_NORM = 1.0
IGNORED = "-100"
MASK_NAME = re.compile(
    r"(?:^|_)(mask|masks|valid|keep|kept|count|counts|counted|selected|supervised|nonpad|notpad)(?:_|$)"
)
"""Names of what says which elements count. A sum of other numbers may be less than 1 in a sound step."""


@dataclass(frozen=True)
class Patch(JsonValue):
    """A change of a script. ``diff`` is its unified diff, ``text`` the whole changed script."""

    cause: str
    what: str
    diff: str
    text: str


@dataclass(frozen=True)
class Wound:
    """What a patch needs besides the script. ``line`` is that of the first bad operation in the script itself, None if
    it lies elsewhere; ``operation`` its name. ``norm`` is the usual norm of the gradients."""

    line: int | None = None
    operation: str = ""
    norm: float | None = None


def wound_of(script: str, located: Located | None, norm: float | None) -> Wound:
    """The wound of the script at path ``script``."""
    if located is None:
        return Wound(norm=norm)
    line = located.line if located.file is not None and located.file == script else None
    return Wound(line, located.operation.removeprefix("aten.").partition(".")[0].strip("_"), norm)


def patches_for(cause: str, text: str, wound: Wound, *, name: str) -> tuple[list[Patch], str]:
    """The patches of a cause, the one that changes least first, and why there are none ("" if there are some).

    Args:
        name: of the script, for the head of the diff.
    """
    makers = _MAKERS.get(cause, ())
    if not makers:
        return [], "its mend is not a change of a line that can be read from the script"
    found, refused = [], []
    for what, maker in makers:
        try:
            source = Source(text)
            made = applied(source, list(maker(source, wound)))
        except CannotPatchError as error:
            refused.append(str(error))
            continue
        if made != text:
            found.append(Patch(cause, what, diff_of(text, made, name), made))
    return found, "" if found else "; ".join(dict.fromkeys(refused)) or "no line to change was found"


def diff_of(old: str, new: str, name: str) -> str:
    """The unified diff, which `patch -p1` and `git apply` take."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=2
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


Maker = Callable[[Source, Wound], Iterator[Edit]]


def _zero_grad(source: Source, wound: Wound) -> Iterator[Edit]:
    optimizer, _ = only_optimizer(source)
    step = source.statement(step_of(source, optimizer))
    there = [call for call in calls(source, lambda one: name_of(one) == "zero_grad") if source.loop(call) is not None]
    if any(receiver(call) == optimizer for call in there):
        raise CannotPatchError(f"{optimizer}.zero_grad() is called in a loop already")
    backward = [source.statement(one) for one in calls(source, lambda one: name_of(one) == "backward")]
    beside = [one for one in backward if source.parents[one] is source.parents[step]]
    if len(backward) == 1 and beside:
        yield source.before(beside[0], f"{optimizer}.zero_grad()")
    else:
        yield source.after(step, f"{optimizer}.zero_grad()")


def _unscale_first(source: Source, wound: Wound) -> Iterator[Edit]:
    optimizer, _ = only_optimizer(source)
    step = step_of(source, optimizer)
    scaler = receiver(step)
    if scaler == optimizer:
        raise CannotPatchError("no gradient scaler makes the step")
    clips = calls(source, lambda one: name_of(one) in ("clip_grad_norm_", "clip_grad_value_"))
    if len(clips) != 1:
        raise CannotPatchError(f"gradients are clipped at {len(clips)} places, not one")
    for call in calls(source, lambda one: name_of(one) == "unscale_"):
        if call.lineno < clips[0].lineno:
            raise CannotPatchError("gradients are unscaled before they are clipped already")
        yield source.without(source.statement(call))
    yield source.before(source.statement(clips[0]), f"{scaler}.unscale_({optimizer})")


def _safe_operation(source: Source, wound: Wound) -> Iterator[Edit]:
    if wound.line is None:
        raise CannotPatchError("the first bad operation lies in no line of the script itself")
    parts = set(wound.operation.replace("backward0", "").lower().split("_"))
    here = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.expr) and node.lineno <= wound.line <= (node.end_lineno or node.lineno)
    ]
    found: list[Edit] = []
    for name in ("log", "sqrt", "rsqrt"):
        if name in parts:
            found += [_clamped(source, node) for node in here if isinstance(node, ast.Call) and name_of(node) == name]
    if parts & {"div", "divide"}:
        found += [
            _denominator(source, node.right)
            for node in here
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and number(node.right) is None
        ]
    if "mean" in parts or "div" in parts:
        found += [edit for node in here if (edit := _mean_of_selected(source, node)) is not None]
    if len(found) != 1:
        raise CannotPatchError(f"line {wound.line} holds {len(found) or 'no'} operations that can be clamped, not one")
    yield found[0]


def _clamped(source: Source, call: ast.Call) -> Edit:
    """``torch.log(x)`` or ``x.log()`` with the argument clamped."""
    if call.args:
        argument: ast.expr = call.args[0]
    elif isinstance(call.func, ast.Attribute):
        argument = call.func.value
    else:
        raise CannotPatchError(f"line {call.lineno}: the call has no argument that can be read")
    return source.replaced(argument, f"{_bare(source, argument)}.clamp(min={TINY})")


def _denominator(source: Source, node: ast.expr, called: str = "") -> Edit:
    """A count is at least 1; a deviation or norm at least tiny. Others may be negative, or below 1 in a sound step."""
    name = name_of(node) if isinstance(node, ast.Call) else ""
    if name == "count_nonzero" or (name == "sum" and _counts(node, called)):
        return source.replaced(node, f"{source.text(node)}.clamp(min=1)")
    if name in ("std", "var", "norm", "sqrt", "exp", "abs", "vector_norm"):
        return source.replaced(node, f"{source.text(node)}.clamp(min={TINY})")
    if name == "len":
        return source.replaced(node, f"max(1, {source.text(node)})")
    if isinstance(node, ast.Name):
        values = assigned(source, node.id)
        if len(values) == 1 and isinstance(values[0], ast.Call):
            return _denominator(source, values[0], node.id)
    raise CannotPatchError(f"line {node.lineno}: the denominator is no count, so no bound is safe")


def _counts(total: ast.expr, called: str) -> bool:
    """Whether a sum counts what a mask selects: by the mask's name, that of its result, or because it compares."""
    if any(isinstance(node, ast.Compare) for node in ast.walk(total)):
        return True
    names = {called, *(node.id for node in ast.walk(total) if isinstance(node, ast.Name))}
    names |= {node.attr for node in ast.walk(total) if isinstance(node, ast.Attribute)}
    return bool(names & {"ne", "eq"}) or any(MASK_NAME.search(name.lower()) for name in names - {"sum"})


def _mean_of_selected(source: Source, node: ast.expr) -> Edit | None:
    """``x[mask].mean()`` as a sum over the count, at least 1."""
    if not isinstance(node, ast.Call) or name_of(node) != "mean" or node.args or node.keywords:
        return None
    chosen = node.func.value if isinstance(node.func, ast.Attribute) else None
    if not isinstance(chosen, ast.Subscript):
        return None
    inside = source.text(chosen)
    return source.replaced(node, f"({inside}.sum() / max(1, {inside}.numel()))")


def _bare(source: Source, node: ast.expr) -> str:
    return source.text(node) if isinstance(node, BARE) else f"({source.text(node)})"


def _counted_labels(source: Source, wound: Wound) -> Iterator[Edit]:
    """Cross entropy as a sum over the count of labels, at least 1."""
    found = [one for one in calls(source, lambda one: name_of(one) == "cross_entropy") if len(one.args) == 2]
    if len(found) != 1 or any(one.arg not in ("ignore_index", "label_smoothing") for one in found[0].keywords):
        raise CannotPatchError("no single cross_entropy(scores, labels) stands in the script")
    call = found[0]
    ignored = keyword(call, "ignore_index")
    labels, whole = call.args[1], source.text(call)
    if not isinstance(labels, ast.Name | ast.Attribute | ast.Call):
        raise CannotPatchError(f"line {call.lineno}: the labels are no plain expression")
    summed = f'{whole[:-1].rstrip().rstrip(",")}, reduction="sum")'
    mask = f"({source.text(labels)} != {source.text(ignored) if ignored is not None else IGNORED})"
    yield source.replaced(call, f"({summed} / {mask}.sum().clamp(min=1))")


def _option(name: str, value: Callable[[float], str | None]) -> Maker:
    """Changes the number of an option of the only optimizer."""

    def maker(source: Source, wound: Wound) -> Iterator[Edit]:
        optimizer, made = only_optimizer(source)
        node = keyword(made, name)
        if isinstance(node, ast.Name):
            values = assigned(source, node.id)
            node = values[0] if len(values) == 1 else node
        old = number(node)
        if node is None or old is None or (new := value(old)) is None:
            raise CannotPatchError(f"{name} of {optimizer} is no number in the script that this would change")
        yield source.replaced(node, new)

    return maker


def _clip(source: Source, wound: Wound) -> Iterator[Edit]:
    optimizer, made = only_optimizer(source)
    step = step_of(source, optimizer)
    if receiver(step) != optimizer:
        raise CannotPatchError("a gradient scaler makes the step: unscale and clip by hand")
    if calls(source, lambda one: name_of(one).startswith("clip_grad")):
        raise CannotPatchError("gradients are clipped already")
    if not made.args or not isinstance(made.args[0], ast.Call) or name_of(made.args[0]) != "parameters":
        raise CannotPatchError("the parameters of the optimizer are no plain `model.parameters()`")
    norm = wound.norm if wound.norm is not None and math.isfinite(wound.norm) and wound.norm > 0 else CLIP_NORM
    clip = f"torch.nn.utils.clip_grad_norm_({source.text(made.args[0])}, max_norm={norm:.3g})"
    if not any(
        isinstance(node, ast.Import) and any(a.name == "torch" for a in node.names) for node in source.tree.body
    ):
        raise CannotPatchError("the script does not import torch by that name")
    yield source.before(source.statement(step), clip)


def _one_shape(source: Source, wound: Wound) -> Iterator[Edit]:
    """The target in the shape of the prediction."""
    names = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
    found = [one for one in calls(source, lambda one: name_of(one) in names) if len(one.args) == 2]
    if len(found) != 1:
        raise CannotPatchError("no single loss of two tensors stands in the script")
    given, wanted = found[0].args
    if isinstance(given, ast.Name):
        yield source.replaced(wanted, f"{_bare(source, wanted)}.reshape({given.id}.shape)")
    else:
        yield source.replaced(given, f"{_bare(source, given)}.reshape({_bare(source, wanted)}.shape)")


def _no_softmax(source: Source, wound: Wound) -> Iterator[Edit]:
    """Cross entropy from the scores: the softmax before it is removed."""
    for call in calls(source, lambda one: name_of(one) == "cross_entropy" and bool(one.args)):
        given: ast.expr = call.args[0]
        if isinstance(given, ast.Name):
            values = assigned(source, given.id)
            given = values[0] if len(values) == 1 else given
        if isinstance(given, ast.Call) and name_of(given) in ("softmax", "sigmoid"):
            inner = _softened(given)
            yield source.replaced(given, source.text(inner))
            return
    for call in calls(source, lambda one: name_of(one) == "Sequential" and bool(one.args)):
        last = call.args[-1]
        if isinstance(last, ast.Call) and name_of(last) in ("Softmax", "Sigmoid") and len(call.args) > 1:
            yield Edit(source.span(call.args[-2])[1], source.span(last)[1], "")
            return
    raise CannotPatchError("no softmax stands before a cross entropy of the script")


def _softened(call: ast.Call) -> ast.expr:
    if receiver(call) in ("torch", "F", "nn.functional", "torch.nn.functional", "") and call.args:
        return call.args[0]
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _softmax_over_classes(source: Source, wound: Wound) -> Iterator[Edit]:
    found = [
        node
        for call in calls(source, lambda one: name_of(one).lower() in ("softmax", "log_softmax", "logsoftmax"))
        if (node := keyword(call, "dim")) is not None and number(node) == 0
    ]
    if len(found) != 1:
        raise CannotPatchError(f"a softmax over dim=0 stands at {len(found) or 'no'} places, not one")
    yield source.replaced(found[0], "-1")


def _train_mode(source: Source, wound: Wound) -> Iterator[Edit]:
    names = {receiver(one) for one in calls(source, lambda one: name_of(one) == "eval" and not one.args)} - {""}
    backward = calls(source, lambda one: name_of(one) == "backward")
    loop = source.loop(backward[0]) if len(backward) == 1 else None
    if len(names) != 1 or loop is None:
        raise CannotPatchError("no single model.eval() and no single training loop stand in the script")
    yield source.before(loop.body[0], f"{names.pop()}.train()")


def _scheduler_after(source: Source, wound: Wound) -> Iterator[Edit]:
    """``scheduler.step()`` after ``optimizer.step()``: moved, or added where it is missing."""
    optimizer, _ = only_optimizer(source)
    step = source.statement(step_of(source, optimizer))
    made = [
        ast.unparse(node.targets[0])
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and "lr_scheduler" in receiver(node.value)
    ]
    if len(made) != 1:
        raise CannotPatchError(f"the script makes {len(made) or 'no'} schedules that can be read, not one")
    steps = calls(source, lambda one: name_of(one) == "step" and receiver(one) == made[0])
    if not steps:
        yield source.after(step, f"{made[0]}.step()")
        return
    other = source.statement(steps[0])
    if len(steps) > 1 or source.parents[other] is not source.parents[step] or other.lineno > step.lineno:
        raise CannotPatchError(f"{made[0]}.step() already follows the update, or stands elsewhere")
    yield source.without(other)
    yield source.after(step, source.text(other))


def _shuffled(source: Source, wound: Wound) -> Iterator[Edit]:
    found = [
        call
        for call in calls(source, lambda one: name_of(one) == "DataLoader" and bool(one.args))
        if not any(one.arg in ("sampler", "batch_sampler", None) for one in call.keywords)
        and not (isinstance(now := keyword(call, "shuffle"), ast.Constant) and now.value is True)
    ]
    if len(found) != 1:
        raise CannotPatchError(f"the script makes {len(found) or 'no'} loaders without shuffle=True, not one")
    given = keyword(found[0], "shuffle")
    if given is not None:
        yield source.replaced(given, "True")
    else:
        last = [*found[0].args, *(one.value for one in found[0].keywords)][-1]
        end = source.span(last)[1]
        yield Edit(end, end, ", shuffle=True")


_THIRD = _option("lr", lambda old: f"{old / 3:.3g}" if old > 0 else None)
_TENTH = _option("lr", lambda old: f"{old / 10:.3g}" if old > 0 else None)
_CLAMP = ("bound the argument or the denominator of the named operation", _safe_operation)
_CLIP = ("clip the norm of the gradients before the update", _clip)

_MAKERS: Mapping[str, Sequence[tuple[str, Maker]]] = {
    "missing-zero-grad": (("clear the gradients in each step", _zero_grad),),
    "clip-before-unscale": (("unscale the gradients before they are clipped", _unscale_first),),
    "singular-operation": (_CLAMP,),
    "no-supervised-tokens": (_CLAMP, ("divide by the count of labels, at least 1", _counted_labels)),
    "optimizer-epsilon-underflow": (
        ("the usual epsilon", _option("eps", lambda old: EPSILON if old < float(EPSILON) else None)),
    ),
    "shape-broadcast": (("one shape on both sides of the loss", _one_shape),),
    "loss-function-misuse": (
        ("give the loss the scores, without a softmax", _no_softmax),
        ("softmax over the classes, not over the rows", _softmax_over_classes),
    ),
    "train-eval-mode": (("training mode in each training step", _train_mode),),
    "scheduler-misstep": (("step the schedule after the update", _scheduler_after),),
    "unshuffled-data": (("shuffle the data", _shuffled),),
    "unclipped-gradients": (_CLIP,),
    "momentum-too-high": (("a momentum of 0.9", _option("momentum", lambda old: MOMENTUM if old > 0.9 else None)),),
    "learning-rate-too-high": (("a third of the learning rate", _THIRD), ("a tenth of the learning rate", _TENTH)),
    "missing-warmup": (("a third of the learning rate", _THIRD), _CLIP),
}
