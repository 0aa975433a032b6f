"""Windows of a run whose script was looked at: rows of the table ``script``."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import Window
from steadytrain.testing import steps
from steadytrain.testing.windows import table

LOOKS = (1, 2, 3, 4, 8, 16, 32)
NAN = float("nan")


def looked(count: int = 40, *, loss: Sequence[float] = (), **rows: Sequence[float]) -> Window:
    """A window of ``count`` steps, or of those of ``loss``. A row is called ``measure__place`` with ``_`` for ``-``;
    its values are of the first looks, and the last of them of all later ones."""
    losses = list(loss) or [1.0] * count
    at = [step for step in LOOKS if step <= count]
    named = {
        f"{measure.replace('_', '-')}:{place}": [*values, *[values[-1]] * len(at)][: len(at)]
        for key, values in rows.items()
        for measure, _, place in [key.partition("__")]
    }
    return steps(loss=losses, tables={"script": table("script", at=at, value=named)} if named else {})
