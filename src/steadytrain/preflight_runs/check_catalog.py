"""Finds the checks: files of ``steadytrain.checks.model``, and what other packages name under the entry-point group.

A check's documentation is its docstring. Of ours it is read from the source, so that ``steadytrain explain`` needs no
torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.checks.subject.model_check import CHECKS, Check
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Broken, kebab, nearest


def checks() -> tuple[Check, ...]:
    """Every usable check: ours by name, then those of other packages."""
    return tuple(cls() for cls in CHECKS.classes())


def broken() -> tuple[Broken, ...]:
    """The checks of other packages that :func:`checks` left out."""
    return CHECKS.broken()


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
