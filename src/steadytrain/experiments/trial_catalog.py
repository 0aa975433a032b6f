"""Finds the trials: files of ``steadytrain.experiments.trials``, rows of ``trial_tables``. Not here: running one."""

from __future__ import annotations

import inspect
from functools import cache

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Broken, Kind, nearest
from steadytrain.experiments.specs import UNCHANGED
from steadytrain.experiments.trial import KINDS, Trial


def _lacks(found: type[Trial] | Trial) -> str | None:
    unknown = {*found.removes.split(), *found.either.split()} - set(KINDS)
    return f"no kind of cause is called {' or '.join(sorted(unknown))}" if unknown else None


TRIALS = Kind(
    "trial",
    Trial,
    "steadytrain.experiments.trials",
    "steadytrain.trials",
    lacks=_lacks,
    tables="steadytrain.experiments.trial_tables",
)


@cache
def trials() -> tuple[Trial, ...]:
    """Every usable trial: the controls first, then by name."""
    return tuple(sorted(TRIALS.made(), key=lambda one: (not one.control, one.name != UNCHANGED, one.name)))


def broken() -> tuple[Broken, ...]:
    """The trials of other packages that :func:`trials` left out."""
    return TRIALS.broken()


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
    """The first sentence of its documentation."""
    return (inspect.getdoc(one) or "").split("\n\n")[0].replace("\n", " ")
