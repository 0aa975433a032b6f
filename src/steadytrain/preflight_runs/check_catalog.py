"""Finds the checks: files of ``steadytrain.checks.model``, and what other packages name under the entry-point group.

A check's documentation is its docstring. Of ours it is read from the source, so that ``steadytrain explain`` needs no
torch; that is in ``steadytrain.checks.pages``.
"""

from __future__ import annotations

from collections.abc import Sequence

import steadytrain.checks.model
from steadytrain.checks.pages import check_names
from steadytrain.checks.subject.model_check import Check
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Broken, fields_without_default, kebab, nearest, of_others, of_package

GROUP = "steadytrain.checks"


def checks() -> tuple[Check, ...]:
    """Every usable check: ours by name, then those of other packages."""
    return (*_shipped(), *_third_party()[0])


def broken() -> tuple[Broken, ...]:
    """The checks of other packages that :func:`checks` left out."""
    return _third_party()[1]


def check_name(cls: type[Check]) -> str:
    """``OverfitOneBatch`` is ``overfit-one-batch`` in ``checks/model/overfit_one_batch.py``."""
    return kebab(cls)


def chosen(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks of these names, or all, without those that are skipped.

    Raises:
        UsageError: a name that no check has; the message lists those that are near.
    """
    known = {check_name(type(check)): check for check in checks()}
    for name in (*only, *skip):
        if name not in known:
            raise UsageError(f"{name!r}: no such check; {nearest(name, known)}")
    return tuple(check for name, check in known.items() if (not only or name in only) and name not in skip)


def _shipped() -> tuple[Check, ...]:
    return tuple(cls() for cls in of_package(steadytrain.checks.model, Check))


def _third_party() -> tuple[tuple[Check, ...], tuple[Broken, ...]]:
    return of_others(GROUP, Check, check_names(), fields_without_default)
