"""Whether a run passed the step at which an earlier run of the same command went wrong."""

from __future__ import annotations

from steadytrain.core.model import Symptom
from steadytrain.report.wording import clean, count
from steadytrain.storage.earlier_run import newest_before
from steadytrain.storage.run_folder import Run


def passed_lines(run: Run, last_step: int) -> tuple[str, ...]:
    """Says that the symptom of the newest earlier run of the same command did not come again; nothing without one.

    Args:
        last_step: the last step of ``run``.
    """
    own = [symptom for symptom in run.symptoms if symptom.severity != "note"]
    if own or not run.description.get("argv"):
        return ()
    earlier = newest_before(run.path, run.description)
    symptom = _first_alarm(earlier) if earlier is not None else None
    if earlier is None or symptom is None or symptom.first_step > last_step:
        return ()
    where = f"step {count(symptom.first_step)}, where {clean(earlier.name)}, an earlier run of the same command"
    return (f"It passed {where}, had {clean(symptom.name)}.",)


def _first_alarm(run: Run) -> Symptom | None:
    alarms = [symptom for symptom in run.symptoms if symptom.severity != "note"]
    return min(alarms, key=lambda one: (one.first_step, one.severity != "critical"), default=None)
