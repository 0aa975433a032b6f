"""Which changes are tried on several ranks, and how a spec differs from rank to rank. Pure.

A change is made on every rank. It must do the same to the weights of all, or the replicas would drift apart: it depends
on weights, gradients and settings alone, which are equal, or it changes what each rank computes from its own batch, so
that only the gradients that are reduced differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Change, Entry, Spec

OTHER_BATCH, ALONE = "other-batch-on-rank", "rank-alone"
"""Kinds of changes that the launcher of the ranks makes itself, by what it launches: ``rank`` gets the batch of the
recorded step ``instead`` at ``step``, or is launched alone, in a world of one."""

ON_RANKS = frozenset(
    {
        *("one-ulp", "other-seed", "random-step", "learning-rate", "fixed-learning-rate", "ramp-learning-rate"),
        *("momentum", "beta2", "epsilon", "weight-decay", "reset-moments", "zero-gradients", "freeze-layer"),
        *("clip-gradients", "clip-updates", "shrink-gradients", "safe-operation", "safe-softmax", "float64-loss"),
        *("math-attention", "attention-softcap", "z-loss", "no-dropout", "no-smoothing", "mode", "scale-targets"),
        *("loss-term-zero", "ignore-label", "deterministic", "one-thread", OTHER_BATCH, ALONE),
    }
)


def why_not_on_ranks(case: Case, changes: Sequence[Change]) -> str | None:
    """Why a plan with these changes does not apply to a run of several ranks; None if it does, or if it has one."""
    if case.ranks is None:
        many = case.facts.get("ranks", 1) > 1
        return "a script with several ranks cannot be launched again" if many else None
    if case.ranks.why_not is not None:
        return case.ranks.why_not
    other = next((one.kind for one in changes if one.kind not in ON_RANKS), None)
    return other and f"{other} is not tried on several ranks: it may change each of them in another way"


def other_batch(case: Case, rank: int) -> Change | None:
    """Another batch of its own for ``rank`` at the onset of a value that is not finite; None for other symptoms."""
    if case.aim != "finite" or not (healthy := [step for step in case.healthy_steps() if step < case.onset]):
        return None
    return Change(OTHER_BATCH, {"rank": rank, "step": case.onset, "instead": healthy[-1]})


def alone(spec: Spec) -> int | None:
    """The rank that the spec launches alone; None for all."""
    return next((int(one.values["rank"]) for one in spec.changes if one.kind == ALONE), None)


def on_rank(spec: Spec, rank: int) -> Spec:
    """What ``rank`` runs of the spec."""
    schedule = spec.schedule
    for one in spec.changes:
        if one.kind == OTHER_BATCH and one.values["rank"] == rank:
            schedule = tuple(_with_other(entry, one) for entry in schedule)
    changes = tuple(one for one in spec.changes if one.kind not in (OTHER_BATCH, ALONE))
    return replace(spec, schedule=schedule, changes=changes)


def _with_other(entry: Entry, change: Change) -> Entry:
    taken = entry.role == "train" and entry.step == change.values["step"]
    return Entry(int(change.values["instead"])) if taken else entry
