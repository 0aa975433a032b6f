"""How many optimizer steps the script means to make, as far as something says so.

In this order: a trainer of ``transformers`` or Lightning in the functions that run now, else a variable with one of the
names that people use. The number of steps of a run that ended well is known from its folder and not from here.
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
    """Of the run in this process, which has made ``made`` steps; None where nothing says it."""
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
    """``max_steps`` of a trainer or of its state, where it is set."""
    module = type(owner).__module__.partition(".")[0]
    if module not in ("transformers", "lightning", "pytorch_lightning", "trl"):
        return None
    value = getattr(owner, "max_steps", None)
    return value if isinstance(value, int) and _is_count(value, made) else None


def _is_count(value: Any, made: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and made <= value <= STEPS_MAX and value > 1
