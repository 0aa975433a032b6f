"""A symptom that somebody sees and no detector raised: what trials then try to remove. Pure."""

from __future__ import annotations

from difflib import get_close_matches

from steadytrain.core.errors import UsageError
from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.catalog import declared, detector_name, log_detectors

BY_HAND = "reported by hand; no detector raised it"


def complaint(name: str, window: Window, onset: int | None) -> Symptom:
    """The symptom ``name`` as a warning. It begins at step ``onset``; one about progress, by default at the first.

    Raises:
        UsageError: no symptom has that name, the run has no such step, or values that are not finite were never seen.
    """
    known = sorted(detector_name(type(one)) for one in log_detectors())
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "`steadytrain explain` lists them"
        raise UsageError(f"--symptom {name}: there is no such symptom; {hint}")
    aim = declared(name).aim
    if aim == "finite":
        raise UsageError(f"--symptom {name}: no value of this run was NaN or Inf, so there is none to look for")
    steps = window.steps
    if not len(steps):
        raise UsageError(f"--symptom {name}: no step of this run was recorded")
    if onset is None and aim == "excess":
        raise UsageError(f"--symptom {name}: no detector raised it; say with --onset STEP where you see it begin")
    first = int(steps[0]) if onset is None else onset
    if not int(steps[0]) <= first <= int(steps[-1]):
        raise UsageError(f"--onset {first}: the run has steps {int(steps[0])} to {int(steps[-1])}")
    return Symptom(name, "warning", first, int(steps[-1]), f"{name} from step {first} on, {BY_HAND}", signals=("loss",))
