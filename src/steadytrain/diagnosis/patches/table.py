"""The table of patches: for each cause the recipes that mend it, the one that changes least first. Text in, diff out.

A patch is made only where the syntax tree leaves no doubt: one optimizer, one backward, operations of one kind on the
named line. Everywhere else ``patches_for`` says why there is none. Nothing here runs or writes a script: that is
``trial_runs.patched_run``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from steadytrain.diagnosis.patches import (
    data_rows,
    loop_lines,
    loss_calls,
    named_lines,
    rate_jumps,
    safe_values,
    settings,
)
from steadytrain.diagnosis.patches.edits import CannotPatchError, Source, applied
from steadytrain.diagnosis.patches.logits_form import lasting_form
from steadytrain.diagnosis.patches.settings import EPSILON
from steadytrain.diagnosis.patches.wound import Maker, Patch, Wound

_NO_JUMP = ("the learning rate as it was before it jumped", rate_jumps.rate_before_jump)
_THIRD = ("a third of the learning rate", settings.rate(1 / 3))
_TENTH = ("a tenth of the learning rate", settings.rate(1 / 10))
_HUNDREDTH = ("a hundredth of the learning rate", settings.rate(1 / 100))
_THOUSANDTH = ("a thousandth of the learning rate", settings.rate(1 / 1000))
_CLAMP = ("bound the argument or the denominator of the named operation", safe_values.safe_operation)
_CLIP = ("clip the norm of the gradients before the update", loop_lines.clip)

_ROWS = ("leave the rows that are not finite out of the data set", data_rows.without_rows)

_MAKERS: Mapping[str, Sequence[tuple[str, Maker]]] = {
    "missing-zero-grad": (("clear the gradients in each step", loop_lines.zero_grad),),
    "clip-before-unscale": (
        ("clip the gradients between backward and the update", loop_lines.clip_in_place),
        ("unscale the gradients before they are clipped", loop_lines.unscale_first),
    ),
    "discarded-changes": (
        ("assign to the indexed part what was changed in a copy", named_lines.assigned_back),
        ("assign the result that is dropped", named_lines.taken),
    ),
    "reversed-straight-through": (("the straight-through estimator turned around", named_lines.turned_around),),
    "kept-residual": (("assign to the indexed part what was changed in a copy", named_lines.assigned_back),),
    "unlike-recomputation": (("restore the random state in the backward", named_lines.restored_random_state),),
    "singular-operation": (_CLAMP,),
    "empty-input": (_CLAMP,),
    "no-supervised-tokens": (_CLAMP, ("divide by the count of labels, at least 1", safe_values.counted_labels)),
    "optimizer-epsilon-underflow": (
        ("the usual epsilon", settings.option("eps", lambda old: EPSILON if old < float(EPSILON) else None)),
    ),
    "shape-broadcast": (("one shape on both sides of the loss", loss_calls.one_shape),),
    "nonfinite-input": (_ROWS,),
    "padding-in-loss": (("leave the padding out of the loss", loss_calls.ignore_padding),),
    "loss-function-misuse": (
        ("cross_entropy in place of nll_loss, which takes log-probabilities", loss_calls.loss_of_scores),
        ("give the loss the scores, without a softmax", loss_calls.no_softmax),
        ("softmax over the classes, not over the rows", loss_calls.softmax_over_classes),
    ),
    "train-eval-mode": (("training mode in each training step", loop_lines.train_mode),),
    "scheduler-misstep": (
        ("the other mode of the schedule, for a metric that rises", named_lines.other_mode),
        ("step the schedule after the update", loop_lines.scheduler_after),
    ),
    "live-target": (("no gradient through the target", named_lines.detached),),
    "detached-graph": (
        ("a derivative that carries its graph", named_lines.with_graph),
        ("a draw that passes gradients", named_lines.reparametrized),
    ),
    "uniform-noise": (("noise that is drawn from a normal distribution", named_lines.normal_noise),),
    "mixed-rows": (("layers that take the rows first", named_lines.rows_first),),
    "unshuffled-data": (("shuffle the data", settings.shuffled),),
    "unclipped-gradients": (("a list of parameters for the clip", loop_lines.clip_a_list), _CLIP),
    "momentum-too-high": (("a momentum of 0.9", settings.usual_momentum),),
    "second-moment-lag": (("a second beta of 0.9", settings.shorter_memory),),
    "weight-decay-misuse": (("a third of the weight decay", settings.lower_decay),),
    "learning-rate-too-high": (_NO_JUMP, _THIRD, _TENTH, _HUNDREDTH, _THOUSANDTH),
    "learning-rate-too-low": (("ten times the learning rate", settings.rate(10)),),
    "missing-warmup": (_THIRD, _CLIP),
}
"""Causes that are not here have no patch: their mend is a choice that the script does not contain."""


def has_recipe(cause: str) -> bool:
    """Whether a patch for the cause can be made in some script."""
    return cause in _MAKERS


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
            source = Source(text, wound.optimizer)
            made = applied(source, list(maker(source, wound)))
        except CannotPatchError as error:
            refused.append(str(error))
            continue
        if made != text:
            lasting = lasting_form(source, wound) if maker is safe_values.safe_operation else ""
            said = f"{what} (better in the long run, and not tried: {lasting})" if lasting else what
            found.append(Patch(cause, said, diff_of(text, made, name), made))
    return found, "" if found else "; ".join(dict.fromkeys(refused)) or "no line to change was found"


def diff_of(old: str, new: str, name: str) -> str:
    """The unified diff, which `patch -p1` and `git apply` take."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=2
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
