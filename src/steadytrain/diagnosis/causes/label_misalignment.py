"""Labels that belong to another place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS
from steadytrain.diagnosis.signs import Signs, above, equivalence, fact, measured, noted, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

SAID = ("separate-orders", "unmixed-labels", "opposite-padding", "labels-without-rank")


@final
class LabelMisalignment(Cause):
    """Labels are not aligned with their inputs: shifted twice, not shifted, or in another order.

    Means:
        A language model whose labels are shifted by the script and again by the library learns to predict two tokens
        ahead; one whose labels are not shifted at all copies its input and its loss falls to zero within hundreds of
        steps. Both train without an error. Labels in another order than their inputs are never learned. The test: the
        cross entropy of the logits at `t` against the token at `t + k` must be least at `k = 1`.

    Causes:
        - a manual shift before a model that shifts labels itself (transformers #47394, #46784, #32944)
        - no shift at all in a hand-written loop
        - inputs shuffled and labels not; a join by the wrong key; files paired by two listings in no order
        - inputs that are mixed (mixup, cutmix) and labels that are not
        - inputs that are padded on the left and labels on the right
        - labels of a contrastive loss over all ranks that begin at 0 on each rank
        - a shard or a file from some step on whose labels are cut one frame or one row further than its inputs

    Next:
        1. Find the `k` with the least cross entropy.
        2. Shift once: `logits[:, :-1]` against `tokens[:, 1:]`, or give labels equal to the inputs to a library.
        3. For other tasks, read a few pairs of input and label.
    """

    axis = "data"
    base_rate = 10.0
    rivals = ("causal-leak", "label-leakage", "loss-function-misuse")
    expects = like("script", removed=("shift-labels",), either=("fresh-data", "keep-rows", "reorder"))
    confirming = ("shift-labels",)
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "shift-once",
            4,
            "shift labels exactly once",
            "shift-labels",
            code="loss = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())",
        ),
        Intervention(
            "shuffle-together",
            4,
            "shuffle inputs and targets with the same order",
            code="order = torch.randperm(len(inputs)); inputs, targets = inputs[order], targets[order]",
        ),
        Intervention(
            "cut-together",
            4,
            "cut inputs and labels at the same places in the part of the data that begins here",
            code="labels = labels[:, : inputs.shape[1]]  # the same first place as the inputs",
        ),
        Intervention(
            "mix-labels",
            4,
            "mix the labels with the weights of the inputs",
            code="loss = lam * cross_entropy(out, y) + (1 - lam) * cross_entropy(out, y[order])",
            of=("unmixed-labels",),
        ),
        Intervention(
            "pad-alike",
            4,
            "pad inputs, labels and masks on the same side",
            code="labels[row, start:] = ...  # start = width - len(tokens), as for the inputs",
            of=("opposite-padding",),
        ),
        Intervention(
            "offset-labels",
            4,
            "add the offset of the rank to the labels",
            code="labels = torch.arange(rows) + rank * rows",
            of=("labels-without-rank",),
        ),
        CLEAN_ROWS,
    )
    grade = "A"
    source = "transformers #47394, #46784, #46898, #32944; amber-train #6; open-instruct #1549"

    def signature(self, case: Case) -> Signature:
        best, margin, numbers = _best_shift(case)
        real = fact(case, "label_shift_trained")
        if real == 1:
            margin = 0.0  # the labels are the next tokens, so what the model learned is another matter
        text = f"the model predicts the token at t+{best} best, by {margin:.2g} nats"
        return Signature(
            (
                *equivalence(
                    when(
                        best not in (None, 1) and margin > MARGIN_NATS,
                        CERTAIN,
                        text,
                        "fact label_shift",
                        invariant=True,
                        **numbers,
                    )
                ),
                *equivalence(_lagging(case)),
                *equivalence(_exchanged(case)),
                *when(real == 1, -STRONG, "labels are the next tokens of the inputs", "fact label_shift_trained"),
                *when(
                    best == 1 and margin > MARGIN_NATS,
                    -STRONG,
                    "the model predicts the next token best",
                    "fact label_shift",
                    **numbers,
                ),
                *when(
                    isinstance(real, int) and real > 1,
                    CERTAIN,
                    f"labels are the inputs shifted by {real}",
                    "fact label_shift_trained",
                    invariant=True,
                ),
                *above(
                    case,
                    "labels_equal_inputs",
                    0.98,
                    STRONG,
                    "{value} of the labels are the token at the same place of the input",
                ),
                *symptom(case, STRONG, "misplaced-labels"),
                *symptom(case, CERTAIN, *SAID, invariant=True),
                *when(
                    seen(case, "separate-orders") is None and noted(case, "separate-orders") is not None,
                    STRONG,
                    "files of two folders are paired in the order of the file system",
                    "symptom separate-orders",
                ),
                *symptom(case, HINT, "loss-collapse", "no-learning", "plateau"),
            )
        )


def _best_shift(case: Case) -> tuple[int | None, float, dict[str, Any]]:
    """The shift at which the model predicts best, its margin, and the losses of all shifts."""
    losses = fact(case, "label_shift")
    if not isinstance(losses, dict) or len(losses) < 2:
        return None, 0.0, {}
    known = sorted((float(loss), int(shift)) for shift, loss in losses.items() if isinstance(loss, (int, float)))
    if len(known) < 2 or not known[0][0] < LEARNED_SHARE * measured(case, "uniform_loss"):
        return None, 0.0, {}  # an untrained model predicts no position
    numbers = {f"shift_{shift}": loss for loss, shift in known}
    return known[0][1], known[1][0] - known[0][0], numbers


def _lagging(case: Case) -> Signs:
    """A sign if the model's predictions, right before the onset, match labels beside their own from it on."""
    found = fact(case, "label_lag")
    if not isinstance(found, Mapping):
        return ()
    places, own = int(found["places"]), float(found["own"])
    unit = "row" if found["dimension"] == 0 else "place"
    way = f"{abs(places)} {unit}{'s' if abs(places) > 1 else ''} {'later' if places > 0 else 'earlier'}"
    text = (
        f"labels are shifted against their inputs from step {case.onset} on: predictions match the labels {way} "
        f"({found['aligned']:.2f} above chance), not their own ({own:.2f}; {found['before']:.2f} before)"
    )
    return when(True, 2 * CERTAIN, text, "fact label_lag", invariant=True, places=float(places))


def _exchanged(case: Case) -> Signs:
    """A sign if rows come again from the onset on with the targets of others, and no transform makes them so."""
    found = fact(case, "targets_exchanged")
    if not isinstance(found, Mapping) or seen(case, "separate-draws") is not None:
        return ()
    (step, row), (earlier, place) = found["now"], found["then"]
    text = (
        f"from step {case.onset} on {found['changed']} of {found['rows']} rows that were seen before have another "
        f"target: row {row} of step {step} is row {place} of step {earlier}, and its target is not"
    )
    return when(True, 2 * CERTAIN, text, "fact targets_exchanged", invariant=True, rows=float(found["changed"]))


LEARNED_SHARE = 0.8
"""Share of a uniform guess's loss. Above it the model has not learned enough to show where its labels are."""

MARGIN_NATS = 0.2
