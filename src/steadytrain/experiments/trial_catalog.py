"""Finds the trials: one file each in ``steadytrain.experiments.trials``. Not here: running one."""

from __future__ import annotations

import inspect
from functools import cache

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Kind, nearest
from steadytrain.experiments.trial import Trial

TRIALS = Kind("trial", Trial, "steadytrain.experiments.trials", "steadytrain.trials", several=True)


@cache
def trials() -> tuple[Trial, ...]:
    """Every trial: the controls first, then by name."""
    found = [cls() for cls in TRIALS.classes()]
    return tuple(sorted(found, key=lambda trial: (not trial.control, trial.name != "unchanged", trial.name)))


def trial(name: str) -> Trial:
    """The trial called ``name``.

    Raises:
        UsageError: there is none of that name; the message lists those that are near.
    """
    known = {one.name: one for one in trials()}
    if name in known:
        return known[name]
    raise UsageError(f"no trial is called {name!r}; {nearest(name, known)}")


def summary(one: Trial) -> str:
    """The first sentence of its docstring."""
    return (inspect.getdoc(type(one)) or "").split("\n\n")[0].replace("\n", " ")
