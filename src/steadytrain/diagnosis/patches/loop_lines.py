"""Recipes that insert, move or take out one line of the training loop."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from steadytrain.diagnosis.patches.edits import (
    CannotPatchError,
    Edit,
    Source,
    assigned,
    calls,
    name_of,
    only_optimizer,
    receiver,
    step_of,
)
from steadytrain.diagnosis.patches.wound import Wound

CLIP_NORM = 1.0
CLIPS = ("clip_grad_norm_", "clip_grad_value_")


def zero_grad(source: Source, wound: Wound) -> Iterator[Edit]:
    optimizer, _ = only_optimizer(source)
    step = source.statement(step_of(source, optimizer))
    there = [call for call in calls(source, lambda one: name_of(one) == "zero_grad") if source.loop(call) is not None]
    if any(receiver(call) == optimizer for call in there):
        raise CannotPatchError(f"{optimizer}.zero_grad() is called in a loop already")
    backward = [source.statement(one) for one in calls(source, lambda one: name_of(one) == "backward")]
    beside = [one for one in backward if source.parents[one] is source.parents[step]]
    steps = [source.statement(one) for one in calls(source, lambda one: name_of(one) == "step")]
    # What another optimizer's backward leaves after this step is no gradient of the next one either.
    since = max((one.lineno for one in steps if one.lineno < step.lineno), default=0)
    own = [one for one in beside if since < one.lineno < step.lineno]
    if own and len(beside) == len(backward):
        yield source.before(min(own, key=lambda one: one.lineno), f"{optimizer}.zero_grad()")
    else:
        yield source.after(step, f"{optimizer}.zero_grad()")


def unscale_first(source: Source, wound: Wound) -> Iterator[Edit]:
    optimizer, _ = only_optimizer(source)
    step = step_of(source, optimizer)
    scaler = receiver(step)
    if scaler == optimizer:
        raise CannotPatchError("no gradient scaler makes the step")
    clips = calls(source, lambda one: name_of(one) in CLIPS)
    if len(clips) != 1:
        raise CannotPatchError(f"gradients are clipped at {len(clips)} places, not one")
    for call in calls(source, lambda one: name_of(one) == "unscale_"):
        if call.lineno < clips[0].lineno:
            raise CannotPatchError("gradients are unscaled before they are clipped already")
        yield source.without(source.statement(call))
    yield source.before(source.statement(clips[0]), f"{scaler}.unscale_({optimizer})")


def clip_in_place(source: Source, wound: Wound) -> Iterator[Edit]:
    """Clipping that sees no gradient of its step moves to right before the update."""
    if wound.facts.get("clip_before_backward") is not True:
        raise CannotPatchError("clipping saw the gradients of its step")
    optimizer, _ = only_optimizer(source)
    step = source.statement(step_of(source, optimizer))
    clips = [source.statement(call) for call in calls(source, lambda one: name_of(one) in CLIPS)]
    if len(clips) != 1 or not isinstance(clips[0], ast.Expr):
        raise CannotPatchError(f"gradients are clipped at {len(clips)} places, or as a part of a line, not in one line")
    if source.parents[clips[0]] is not source.parents[step]:
        raise CannotPatchError(f"lines {clips[0].lineno} and {step.lineno} are not in one block")
    yield source.without(clips[0])
    yield source.before(step, source.text(clips[0]))


def clip_a_list(source: Source, wound: Wound) -> Iterator[Edit]:
    """The parameters that the clip is given become a list: an iterator gives them once."""
    if "clipped-nothing" not in wound.symptoms:
        raise CannotPatchError("the clip was given parameters")
    given = {ast.unparse(call.args[0]) for call in calls(source, lambda one: name_of(one) in CLIPS) if call.args}
    made = assigned(source, given.pop()) if len(given) == 1 else []
    if len(made) != 1:
        raise CannotPatchError("the line that makes what the clip is given was not found")
    yield source.replaced(made[0], f"list({source.text(made[0])})")


def clip(source: Source, wound: Wound) -> Iterator[Edit]:
    """Clip the global norm before the update, at its median before the onset; with a scaler, unscaled."""
    optimizer, made = only_optimizer(source)
    step = step_of(source, optimizer)
    if calls(source, lambda one: name_of(one).startswith("clip_grad")):
        raise CannotPatchError("gradients are clipped already")
    if not any(
        isinstance(node, ast.Import) and any(a.name == "torch" and a.asname is None for a in node.names)
        for node in source.tree.body
    ):
        raise CannotPatchError("the script does not import torch by that name")
    norm = wound.norm if wound.norm is not None and math.isfinite(wound.norm) and wound.norm > 0 else CLIP_NORM
    place = source.statement(step)
    unscaled = any(receiver(call) == receiver(step) for call in calls(source, lambda one: name_of(one) == "unscale_"))
    if receiver(step) != optimizer and not unscaled:
        yield source.before(place, f"{receiver(step)}.unscale_({optimizer})")
    parameters = _parameters(source, optimizer, made, place)
    yield source.before(place, f"torch.nn.utils.clip_grad_norm_({parameters}, max_norm={norm:.3g})")


def _parameters(source: Source, optimizer: str, made: ast.Call, step: ast.stmt) -> str:
    """``model.parameters()`` as the optimizer got it, where the update knows that name; else by the groups."""
    given = made.args[0] if made.args else None
    if isinstance(given, ast.Call) and name_of(given) == "parameters" and not given.args:
        home = source.function(made)
        if home is None or home is source.function(step):
            return source.text(given)
    return f'[p for group in {optimizer}.param_groups for p in group["params"]]'


def train_mode(source: Source, wound: Wound) -> Iterator[Edit]:
    names = {receiver(one) for one in calls(source, lambda one: name_of(one) == "eval" and not one.args)} - {""}
    backward = calls(source, lambda one: name_of(one) == "backward")
    loop = source.loop(backward[0]) if len(backward) == 1 else None
    if len(names) != 1 or loop is None:
        raise CannotPatchError("no single model.eval() and no single training loop stand in the script")
    yield source.before(loop.body[0], f"{names.pop()}.train()")


def scheduler_after(source: Source, wound: Wound) -> Iterator[Edit]:
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
