"""The ten steps of the method, in the order in which practitioners take them, and the step that each trial belongs to.

Not here: what was done in a step (``evidence``), and taking it (``walk``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steadytrain.core.errors import UsageError
from steadytrain.experiments import trial_catalog
from steadytrain.experiments.trial_tables.updates import RATE_CUTS


@dataclass(frozen=True)
class Step:
    """One step: its number from 1, its short name, and its title."""

    number: int
    name: str
    title: str


STEPS: tuple[Step, ...] = tuple(
    Step(number, name, title)
    for number, (name, title) in enumerate(
        (
            ("reproduce", "Reproduce it, with seeds frozen"),
            ("data", "Check data and tokenizer"),
            ("instrument", "Instrument: what departed first"),
            ("isolate", "Isolate: model, data or optimizer"),
            ("precision", "Check precision: fp32 against mixed"),
            ("rate", "Learning rate and warm-up"),
            ("safety", "Safety nets: clipping, weight decay, epsilon, batch size"),
            ("architecture", "Architecture: norms, masks, positions, layers"),
            ("distributed", "Check distribution and data workers"),
            ("report", "Minimal reproduction and bug report"),
        ),
        1,
    )
)

_TRIALS: Mapping[str, str] = {
    "reproduce": "unchanged earlier-snapshot other-seed perturbed deterministic one-thread",
    "data": "drop-batch fresh-data reorder hide-labels undo-offset ignore-padding "
    "shift-labels shuffle-column scale-inputs inputs-as-before fill-codes scale-targets match-shapes same-noise",
    "isolate": "suspect-batch-earlier synthetic-batch learning-rate-zero reset-moments beta2-lower optimize-all thaw "
    "own-parameters zero-grad loss-term-zero loss-from-logits reattach",
    "precision": "float32 bfloat16 float32-island float32-positions float64-loss all-safe loss-scale-down "
    "loss-scale-up master-weights eager unscale-first",
    "rate": "learning-rate-third learning-rate-tenth learning-rate-hundredth learning-rate-thousandth learning-rate-up "
    "constant-learning-rate longer-warmup rewarm",
    "safety": "clip clip-usual update-clipping momentum-lower weight-decay-higher weight-decay-lower weight-decay-none "
    "epsilon-up epsilon-down dropout-none smoothing-none "
    "smaller-batch accumulation-mean accumulation-one embedding-gradient-shrink z-loss",
    "architecture": "layer-norm causal-mask opposite-mask safe-softmax attention-softcap qk-clip math-attention "
    "leaky-units freeze-layer reinitialize he-initialization retie balance-router reference-operation safe-operation "
    "train-mode eval-mode batch-first",
    "distributed": "one-rank synchronize one-worker",
}
_OF_TRIAL = {trial: step for step, trials in _TRIALS.items() for trial in trials.split()}

_OF_KIND: Mapping[str, str] = {
    "data": "data",
    "shift": "data",
    "rate": "rate",
    "moments": "isolate",
    "state": "isolate",
    "logits": "architecture",
    "half": "precision",
    "kernel": "precision",
    "operation": "architecture",
    "ranks": "distributed",
}
"""The step of a trial that the table does not name, by the first kind of cause whose symptom it removes."""

FULL_PRECISION = ("float32", "float32-island", "bfloat16", "all-safe", "float64-loss", "master-weights")
"""Trials that compare the recorded precision with another one."""

LOWER_RATE = (*RATE_CUTS, "constant-learning-rate", "learning-rate-up")
WARM_UP = ("longer-warmup", "rewarm")
CLIPPING = ("clip", "clip-usual", "update-clipping")

USUAL: Mapping[str, tuple[str, ...]] = {
    "precision": ("float32",),
    "rate": ("learning-rate-third", "longer-warmup"),
    "safety": ("clip",),
}
"""What a practitioner tries in a step whatever the suspicion."""


def step_called(name: str) -> Step:
    """The step of that short name."""
    return next(step for step in STEPS if step.name == name)


def step_of_trial(trial: str) -> str:
    """The short name of the step that a trial belongs to."""
    if trial in _OF_TRIAL:
        return _OF_TRIAL[trial]
    try:
        found = trial_catalog.trial(trial)
    except UsageError:  # a trial of a package that is not installed here
        return "isolate"
    kinds = [kind for kind in found.removes.split() if kind in _OF_KIND]
    return _OF_KIND[kinds[0]] if kinds else "isolate"
