"""What a diagnosis did not run for lack of time, and how long that would take. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steadytrain.diagnosis.trial_choice import PROBE_STEPS
from steadytrain.experiments.specs import Outcome, Spec


def note(plans: Mapping[str, Sequence[Spec]], done: Iterable[Outcome], step_s: float) -> str:
    """A sentence with the trials in ``plans``, none of which ran, and the seconds that they would take.

    Args:
        done: outcomes of trials that did run; their seconds per step give the estimate.
        step_s: seconds of a step in the run, for the estimate if none ran.
    """
    ran = [one for one in done if one.ran and one.seconds > 0]
    steps = sum(_steps(one.spec) for one in ran)
    each_s = sum(one.seconds for one in ran) / steps if steps else step_s
    seconds = each_s * sum(_steps(spec) for specs in plans.values() for spec in specs)
    return f"Not run for lack of time: {', '.join(plans)}, which would take about {max(1.0, seconds):.0f} s (--budget)"


def _steps(spec: Spec) -> float:
    return sum(PROBE_STEPS if entry.role == "probe" else 1.0 for entry in spec.schedule)
