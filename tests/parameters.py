"""Parameters of tests of which some say little more than the others: those run in ``make test-all`` alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def long(*values: Any) -> Any:
    """One row of parameters that is long."""
    return pytest.param(*values, marks=pytest.mark.long)


def telling(values: Iterable[Any], short: Collection[Any], name: Callable[[Any], str] = str) -> list[Any]:
    """All ``values`` as parameters by ``name``; those whose names are not in ``short`` are long."""
    named = {name(value): value for value in values}
    assert set(short) <= set(named), f"no {sorted(set(short) - set(named))} among {sorted(named)}"
    return [
        pytest.param(value, id=key, marks=[] if key in short else [pytest.mark.long]) for key, value in named.items()
    ]
