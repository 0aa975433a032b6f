"""The number of optimizer steps that the script plans.

Taken from a ``transformers`` or Lightning trainer in the running functions, else from a variable with a common name.
The run folder, not this module, knows the steps of a finished run.
"""

from __future__ import annotations

from typing import Any

from steadytrain.capture.step.script_frames import running_frames

NAMES = (
    *("max_steps", "total_steps", "num_training_steps", "num_train_steps", "train_steps", "training_steps"),
    *("max_iters", "max_iterations", "num_iterations", "n_steps", "num_steps", "steps"),
)
STEPS_MAX = 10**9


def steps_planned(made: int) -> int | None:
    """The planned steps of this process, which has made ``made`` steps; None if unknown."""
    variables: dict[str, Any] = {}
    for frame in running_frames():
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("steadytrain", "torch"):
            continue
        owner = frame.f_locals.get("self")
        for place in (owner, getattr(owner, "state", None), getattr(owner, "trainer", None)):
            found = _of_trainer(place, made)
            if found is not None:
                return found
        for name, value in (*frame.f_locals.items(), *frame.f_globals.items()):
            variables.setdefault(name.lower(), value)
    return next((value for name in NAMES if _is_count(value := variables.get(name), made)), None)


def _of_trainer(owner: Any, made: int) -> int | None:
    """``max_steps`` of a trainer or its state, if set."""
    module = type(owner).__module__.partition(".")[0]
    if module not in ("transformers", "lightning", "pytorch_lightning", "trl"):
        return None
    value = getattr(owner, "max_steps", None)
    return value if isinstance(value, int) and _is_count(value, made) else None


def _is_count(value: Any, made: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and made <= value <= STEPS_MAX and value > 1
