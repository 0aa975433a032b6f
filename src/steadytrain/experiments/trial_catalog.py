"""Finds the trials: one file each in ``steadytrain.experiments.trials``. Not here: running one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache

import steadytrain.experiments.trials
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import nearest
from steadytrain.experiments.trial import Trial


@cache
def trials() -> tuple[Trial, ...]:
    """Every trial: the controls first, then by name."""
    found: dict[str, Trial] = {}
    for module in pkgutil.iter_modules(steadytrain.experiments.trials.__path__):
        here = importlib.import_module(f"{steadytrain.experiments.trials.__name__}.{module.name}")
        for thing in vars(here).values():
            if isinstance(thing, type) and issubclass(thing, Trial) and not inspect.isabstract(thing):
                trial = thing()
                found[trial.name] = trial
    return tuple(sorted(found.values(), key=lambda trial: (not trial.control, trial.name != "unchanged", trial.name)))


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
