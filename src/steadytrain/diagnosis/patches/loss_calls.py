"""Recipes at the call of a loss function: what it is given, and which one it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from steadytrain.diagnosis.patches.edits import (
    CannotPatchError,
    Edit,
    Source,
    assigned,
    bare,
    calls,
    keyword,
    name_of,
    number,
    receiver,
    with_argument,
)
from steadytrain.diagnosis.patches.wound import Wound

LOSS_CLASSES: Mapping[str, str] = {
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "MSELoss": "mse_loss",
    "L1Loss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
}
PAIRED = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
TAKES_SCORES = ("cross_entropy", "binary_cross_entropy_with_logits")


def loss_calls(source: Source, wanted: Sequence[str]) -> list[ast.Call]:
    """The calls that compute one of these losses: ``F.mse_loss(...)``, ``nn.MSELoss()(...)``, ``criterion(...)``."""
    made = {
        ast.unparse(target): LOSS_CLASSES[name_of(node.value)]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name_of(node.value) in LOSS_CLASSES
        for target in node.targets
    }

    def fits(call: ast.Call) -> bool:
        inner = call.func
        name = LOSS_CLASSES.get(name_of(inner), "") if isinstance(inner, ast.Call) else made.get(ast.unparse(inner), "")
        return (name or name_of(call)) in wanted

    return calls(source, fits)


def one_shape(source: Source, wound: Wound) -> Iterator[Edit]:
    """The target in the shape of the prediction."""
    found = [one for one in loss_calls(source, PAIRED) if len(one.args) == 2]
    if len(found) != 1:
        raise CannotPatchError("no single loss of two tensors stands in the script")
    given, wanted = found[0].args
    if isinstance(given, ast.Name):
        yield source.replaced(wanted, f"{bare(source, wanted)}.reshape({given.id}.shape)")
    else:
        yield source.replaced(given, f"{bare(source, given)}.reshape({bare(source, wanted)}.shape)")


def no_softmax(source: Source, wound: Wound) -> Iterator[Edit]:
    """A loss of scores gets scores: the softmax before it is removed."""
    for call in [one for one in loss_calls(source, TAKES_SCORES) if one.args]:
        given: ast.expr = call.args[0]
        if isinstance(given, ast.Name):
            values = assigned(source, given.id)
            given = values[0] if len(values) == 1 else given
        if isinstance(given, ast.Call) and name_of(given) in ("softmax", "sigmoid"):
            yield source.replaced(given, source.text(_softened(given)))
            return
    for call in calls(source, lambda one: name_of(one) == "Sequential" and bool(one.args)):
        last = call.args[-1]
        if isinstance(last, ast.Call) and name_of(last) in ("Softmax", "Sigmoid") and len(call.args) > 1:
            yield Edit(source.span(call.args[-2])[1], source.span(last)[1], "")
            return
    returned = _returned_softmax(source)
    if len(returned) == 1:
        yield source.replaced(returned[0], source.text(_softened(returned[0])))
        return
    raise CannotPatchError("no softmax stands before a cross entropy of the script")


def _returned_softmax(source: Source) -> list[ast.Call]:
    """The softmax calls that a ``forward`` returns."""
    return [
        node.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Call)
        and name_of(node.value) in ("softmax", "sigmoid")
        and getattr(source.function(node), "name", "") == "forward"
    ]


def _softened(call: ast.Call) -> ast.expr:
    if receiver(call) in ("torch", "F", "nn.functional", "torch.nn.functional", "") and call.args:
        return call.args[0]
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def softmax_over_classes(source: Source, wound: Wound) -> Iterator[Edit]:
    found = [
        node
        for call in calls(source, lambda one: name_of(one).lower() in ("softmax", "log_softmax", "logsoftmax"))
        if (node := keyword(call, "dim")) is not None and number(node) == 0
    ]
    if len(found) != 1:
        raise CannotPatchError(f"a softmax over dim=0 stands at {len(found) or 'no'} places, not one")
    yield source.replaced(found[0], "-1")


def loss_of_scores(source: Source, wound: Wound) -> Iterator[Edit]:
    """``nll_loss`` of scores becomes ``cross_entropy``."""
    if not wound.facts.get("logits_as_log_probabilities"):
        raise CannotPatchError("no loss gets scores in place of log-probabilities")
    found = loss_calls(source, ("nll_loss",))
    if len(found) != 1:
        raise CannotPatchError(f"nll_loss is called at {len(found) or 'no'} places, not one")
    own = found[0].func
    if isinstance(own, ast.Attribute) and name_of(found[0]) == "nll_loss":
        end = source.span(own)[1]
        yield Edit(end - len("nll_loss"), end, "cross_entropy")
        return
    made = [call.func for call in calls(source, lambda one: name_of(one) == "NLLLoss")]
    if len(made) != 1 or not isinstance(made[0], ast.Attribute):
        raise CannotPatchError("no single nn.NLLLoss() stands in the script")
    end = source.span(made[0])[1]
    yield Edit(end - len("NLLLoss"), end, "CrossEntropyLoss")


def ignore_padding(source: Source, wound: Wound) -> Iterator[Edit]:
    """The loss leaves the labels out that are padding."""
    pad = wound.facts.get("pad_label", wound.facts.get("pad_id"))
    if not isinstance(pad, int):
        raise CannotPatchError("the id of the padding is not known")
    found = loss_calls(source, ("cross_entropy",))
    if len(found) != 1:
        raise CannotPatchError(f"cross_entropy is called at {len(found) or 'no'} places, not one")
    target = found[0]
    if name_of(target) != "cross_entropy":
        made = calls(source, lambda one: name_of(one) == "CrossEntropyLoss")
        if len(made) != 1:
            raise CannotPatchError("no single nn.CrossEntropyLoss() stands in the script")
        target = made[0]
    if any(one.arg in (None, "ignore_index") for one in target.keywords) or len(target.args) > 2:
        raise CannotPatchError(f"the loss on line {target.lineno} has an ignore_index already")
    yield with_argument(source, target, f"ignore_index={pad}")
