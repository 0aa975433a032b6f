"""Windows of a run of several ranks: rows of the table ``ranks``."""

from __future__ import annotations

from steadytrain.core.model import Window
from steadytrain.testing import steps
from steadytrain.testing.windows import table

HEALTHY = {
    "ranks__all": 2.0,
    "compared__all": 40.0,
    "gradients_together__all": 40.0,
    "weights_together__all": 33.0,
    "wrapped__all": 1.0,
}


def ranked(count: int = 40, **rows: float) -> Window:
    """A window of ``count`` steps with one comparison. A row is called ``measure__place`` with ``_`` for ``-``; a space
    in a place is ``___``."""
    named = {**HEALTHY, **{name: float(value) for name, value in rows.items()}}
    values = {}
    for key, value in named.items():
        measure, _, place = key.partition("__")
        values[f"{measure.replace('_', '-')}:{place.replace('___', ' ')}"] = [value]
    return steps(loss=[1.0] * count, tables={"ranks": table("ranks", at=[count], value=values)})


def alone(count: int = 40) -> Window:
    """A window of a run of one process."""
    return steps(loss=[1.0] * count)
