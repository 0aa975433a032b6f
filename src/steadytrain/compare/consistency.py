"""Faults visible in a checkpoint alone: contradictory or absent parts.

Nothing here needs the run. Faults that only a run can reveal (an optimizer that never had a state) are not judged here.
"""

from __future__ import annotations

from collections import Counter

from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.compare.differences import plainly
from steadytrain.compare.tensor_differences import Difference

NAMES_MAX = 8


def contradictions(held: CheckpointContents) -> tuple[Difference, ...]:
    """Parts of ``held`` that cannot all belong to one step of one run."""
    return (
        *_states(held),
        *_shapes(held),
        *_numbers(held),
        *_counts(held),
        *_rates(held),
        *_progress(held),
    )


def _states(held: CheckpointContents) -> list[Difference]:
    """Parameters without optimizer state while others have one; or no state at all after the first step."""
    if held.settings is None or held.moments is None:
        return []
    parameters = [str(name) for group in held.settings for name in group.get("parameters", ())]
    counters = held.counters or {}
    having = {name.rpartition("/")[0] for name in held.moments} | set(counters)
    if not parameters:
        return []
    if not having:
        if not held.step or not any("betas" in group for group in held.settings):
            return []  # plain SGD keeps nothing
        message = f"the optimizer has no state for any of its {len(parameters)} parameters at step {held.step}"
        return [Difference("moments", "moments", "missing", message, f"{len(parameters)} parameters", None)]
    differences = []
    without = [name for name in parameters if name not in having]
    for name in without[:NAMES_MAX]:
        message = f"{name}: no optimizer state, {len(having)} others have one"
        differences.append(Difference("moments", name, "missing", message))
    kinds = Counter(name.rpartition("/")[2] for name in held.moments)
    by_parameter: dict[str, set[str]] = {}
    for name in held.moments:
        parameter, _, moment = name.rpartition("/")
        by_parameter.setdefault(parameter, set()).add(moment)
    for parameter, moments in by_parameter.items():
        for lost in sorted(kind for kind, many in kinds.items() if many * 2 > len(by_parameter)):
            if lost not in moments:
                name = f"{parameter}/{lost}"
                differences.append(Difference("moments", name, "missing", f"{name}: other parameters have it"))
    return differences


def _shapes(held: CheckpointContents) -> list[Difference]:
    """Elementwise moments whose shape differs from their parameter's."""
    if not held.named or held.moments is None or held.weights is None:
        return []
    differences = []
    for name, moment in held.moments.items():
        parameter, _, kind = name.rpartition("/")
        weight = held.weights.get(parameter)
        elementwise = kind in ("exp_avg", "exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "square_avg", "sum")
        if weight is not None and elementwise and moment.shape != weight.shape:
            message = f"{name}: shape {list(moment.shape)}, its parameter {list(weight.shape)}"
            told = str(list(weight.shape)), str(list(moment.shape))
            differences.append(Difference("moments", name, "reshaped", message, *told))
    return differences


def _numbers(held: CheckpointContents) -> list[Difference]:
    return [
        Difference(part, name, "inconsistent", f"{name}: {tensor.nonfinite:,} NaN or Inf", None, str(tensor.nonfinite))
        for part in ("weights", "moments")
        for name, tensor in (getattr(held, part) or {}).items()
        if tensor.nonfinite
    ]


def _counts(held: CheckpointContents) -> list[Difference]:
    """Step counters that differ from each other, or from the checkpoint's own step."""
    if not held.counters:
        return []
    usual, many = Counter(held.counters.values()).most_common(1)[0]
    differences = []
    if many * 2 > len(held.counters):
        for name, count in held.counters.items():
            if count != usual:
                message = f"{name}: updated {plainly(count)} times by its counter, most others {plainly(usual)} times"
                differences.append(
                    Difference("counters", name, "inconsistent", message, plainly(usual), plainly(count))
                )
    told = (held.position or {}).get("global_step")
    # A hand-written loop may count from 0; a trainer does not.
    counted = (told, told + 1) if isinstance(told, int) and held.kind in ("torch.save", "distributed") else (told,)
    if told is not None and usual not in counted:
        message = f"the optimizer counts {plainly(usual)} updates, the checkpoint says it is from step {told}"
        differences.append(Difference("counters", "all", "inconsistent", message, plainly(told), plainly(usual)))
    return differences


def _rates(held: CheckpointContents) -> list[Difference]:
    """The scheduler's last learning rates, compared with those of the optimizer's groups."""
    if not held.settings or not held.scheduler or len(held.scheduler) != 1:
        return []
    given = held.scheduler[0].get("_last_lr")
    rates = [group.get("lr") for group in held.settings]
    if not isinstance(given, (list, tuple)) or len(given) != len(rates):
        return []
    return [
        Difference(
            "scheduler",
            f"group {number}: lr",
            "inconsistent",
            f"the scheduler gave group {number} the learning rate {plainly(last)}, the optimizer has {plainly(rate)}",
            plainly(rate),
            plainly(last),
        )
        for number, (last, rate) in enumerate(zip(given, rates, strict=True))
        if isinstance(rate, (int, float)) and isinstance(last, (int, float)) and abs(rate - last) > 1e-9 * abs(rate)
    ]


def _progress(held: CheckpointContents) -> list[Difference]:
    """The scheduler's step count, compared with the trainer's own count of scheduler steps."""
    wanted = (held.position or {}).get("scheduler_steps")
    if wanted is None or not held.scheduler:
        return []
    differences = []
    for state in held.scheduler:
        count = state.get("last_epoch")
        if isinstance(count, int) and count != wanted:
            message = f"the scheduler stands at {count}, the trainer has stepped it {wanted} times"
            differences.append(Difference("scheduler", "last_epoch", "stale", message, str(wanted), str(count)))
    return differences
