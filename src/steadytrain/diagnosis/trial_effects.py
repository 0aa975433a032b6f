"""What each trial does to an incident of each kind: the table of likelihoods that the engine thinks with.

A row is a trial, a column a kind of cause: ``+`` the trial removes the symptom, ``-`` the symptom persists, ``o``
either. The first ten columns are those of the published interventions that the project's own experiments were compared
with (a byte-level GPT, two seeds, six incidents, eleven trials); ``make bench-trials`` measures them again. Two lessons
of these stand in the table as they came out: a lower learning rate helps against nearly everything, so it tells next to
nothing; and clearing the moments with a re-warm also hides a bad batch, so it counts only beside the re-warm alone.

``script`` is a fault in the script itself (a gradient that is not cleared, a wrong loss): nothing but its own trial
removes it, though what makes steps smaller may hide it. A cause begins with a column and names its own exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from steadytrain.diagnosis.cause import Expectation

Column = Literal[
    "data", "rate", "moments", "state", "logits", "half", "kernel", "transient", "ranks", "shift", "operation", "script"
]
COLUMNS: tuple[Column, ...] = (
    "data",
    "rate",
    "moments",
    "state",
    "logits",
    "half",
    "kernel",
    "transient",
    "ranks",
    "shift",
    "operation",
    "script",
)

#                                  data rate mom. state logit half kern. trans. ranks shift oper. script
MATRIX: Mapping[str, str] = {
    "unchanged":                     "-   -    -    -     -     -    -     +      -     -     -     -",
    "perturbed":                     "-   -    o    -     -     o    -     +      -     -     o     -",
    "other-seed":                    "-   -    o    -     -     o    -     +      -     -     o     -",
    "drop-batch":                    "+   -    o    -     -     -    -     +      -     -     o     -",
    "fresh-data":                    "+   -    o    -     -     o    -     +      -     +     o     -",
    "synthetic-batch":               "+   o    o    o     o     o    -     +      -     +     o     o",
    "reorder":                       "o   -    o    -     -     o    -     +      -     -     o     -",
    "learning-rate-third":           "o   +    +    +     +     o    o     +      o     o     o     o",
    "learning-rate-tenth":           "o   +    +    +     +     o    o     +      o     o     o     o",
    "learning-rate-zero":            "o   o    o    o     o     o    o     +      o     o     o     o",
    "longer-warmup":                 "o   +    +    +     +     o    o     +      o     o     o     o",
    "clip":                          "o   o    o    o     o     o    -     +      -     o     o     o",
    "update-clipping":               "o   o    +    +     o     -    -     +      -     -     o     o",
    "beta2-lower":                   "o   -    +    +     -     -    -     +      -     -     o     -",
    "epsilon-up":                    "-   o    +    o     -     -    -     +      -     -     o     o",
    "epsilon-down":                  "-   -    -    -     -     -    -     +      -     -     o     -",
    "reset-moments":                 "o   o    +    +     -     -    -     +      -     -     o     -",
    "rewarm":                        "o   o    o    o     o     -    -     +      -     -     o     o",
    "weight-decay-higher":           "-   -    -    -     o     -    -     +      -     -     -     -",
    "weight-decay-lower":            "-   -    -    -     o     -    -     +      -     -     -     -",
    "all-safe":                      "-   -    -    -     o     +    +     +      o     -     o     -",
    "float32":                       "-   -    -    -     o     +    o     +      -     -     -     -",
    "bfloat16":                      "-   -    -    -     o     +    o     +      -     -     -     -",
    "float64-loss":                  "-   -    -    -     -     o    -     +      -     -     o     -",
    "loss-scale-down":               "-   -    -    -     -     o    -     +      -     -     -     -",
    "loss-scale-up":                 "-   -    -    -     -     -    -     +      -     -     -     -",
    "eager":                         "-   -    -    -     -     o    +     +      -     -     -     -",
    "math-attention":                "-   -    -    -     -     o    +     +      -     -     o     -",
    "attention-softcap":             "-   o    -    -     +     o    -     +      -     -     -     -",
    "qk-clip":                       "-   o    -    -     +     o    -     +      -     -     -     -",
    "z-loss":                        "-   -    -    -     o     o    -     +      -     -     -     -",
    "freeze-layer":                  "o   o    o    o     o     o    o     +      -     o     o     o",
    "one-worker":                    "-   -    -    -     -     o    -     +      +     -     -     -",
    "suspect-batch-earlier":         "-   o    o    o     +     o    o     +      +     -     o     o",
    "earlier-snapshot":              "-   -    -    -     -     -    -     +      -     -     -     -",
    "one-thread":                    "-   -    -    -     -     o    +     +      -     -     -     -",
    "smaller-batch":                 "o   o    o    o     o     o    -     +      -     o     o     o",
    "eval-mode":                     "o   o    o    o     o     o    -     +      -     o     o     o",
    "loss-term-zero":                "o   o    o    o     o     o    o     +      o     o     o     o",
    "float32-island":                "-   -    -    -     o     +    -     +      -     -     -     -",
    "deterministic":                 "-   -    -    -     -     o    o     +      -     -     -     -",
    "constant-learning-rate":        "-   o    -    -     -     -    -     +      -     -     -     -",
    "reinitialize":                  "o   o    o    o     +     o    o     +      o     o     o     o",
    "layer-norm":                    "o   o    o    o     o     o    o     +      o     o     o     o",
    "optimize-all":                  "o   o    o    o     o     o    -     +      -     o     o     o",
    "embedding-gradient-shrink":     "o   o    o    o     o     -    -     +      -     o     o     o",
    "leaky-units":                   "-   o    o    o     o     o    -     +      -     -     o     -",
    "weight-decay-none":             "-   -    -    -     o     -    -     +      -     -     -     -",
    "safe-operation":                "-   -    -    -     -     -    -     +      -     -     +     -",
    "learning-rate-up":              "-   -    -    -     -     -    -     +      -     o     -     o",
}  # fmt: skip
"""What cannot be said for a trial that is not here is that it removes anything but its own cause."""

ALIKE: Mapping[str, str] = {
    "learning-rate-third": "smaller steps",
    "learning-rate-tenth": "smaller steps",
    "longer-warmup": "smaller steps",
    "rewarm": "smaller steps",
    "clip": "smaller steps",
    "all-safe": "numerics",
    "float32": "numerics",
    "bfloat16": "numerics",
    "float32-island": "numerics",
    "one-thread": "numerics",
    "eager": "numerics",
    "math-attention": "numerics",
    "unchanged": "control",
    "perturbed": "control",
    "other-seed": "control",
    "earlier-snapshot": "control",
    "attention-softcap": "attention scores",
    "qk-clip": "attention scores",
    "weight-decay-lower": "decay",
    "weight-decay-none": "decay",
    "accumulation-mean": "accumulation",
    "accumulation-one": "accumulation",
}
"""Trials that change nearly the same thing: together they count as one."""

OTHER_LOSS = frozenset(
    {"ignore-padding", "loss-from-logits", "loss-term-zero", "match-shapes", "scale-targets", "z-loss", "smaller-batch"}
)
"""Trials that change what the loss measures: how far it falls cannot be compared with the control's fall."""

_MEANS: Mapping[str, Expectation] = {"+": "removed", "-": "persists", "o": "either"}


def column(
    name: Column, *, removed: tuple[str, ...] = (), persists: tuple[str, ...] = (), either: tuple[str, ...] = ()
) -> Mapping[str, Expectation]:
    """What every trial of the table does where the cause is of this kind, with the exceptions of one cause."""
    at = COLUMNS.index(name)
    common = {trial: _MEANS[row.split()[at]] for trial, row in MATRIX.items()}
    own: tuple[tuple[tuple[str, ...], Expectation], ...] = (
        (removed, "removed"),
        (persists, "persists"),
        (either, "either"),
    )
    return {**common, **{trial: expectation for trials, expectation in own for trial in trials}}
