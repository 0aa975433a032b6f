"""Finds the checks: files of ``steadytrain.checks.model``, and classes in other packages' entry points.

A check's docstring is its documentation. Built-in ones are read from the source, so that ``steadytrain explain`` needs
no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.checks.subject.model_check import CHECKS, Check
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Broken, kebab, nearest


def checks() -> tuple[Check, ...]:
    """Every usable check: built-in ones by name, then those of other packages."""
    return tuple(cls() for cls in CHECKS.classes())


def broken() -> tuple[Broken, ...]:
    """The checks of other packages that :func:`checks` left out, with the reason."""
    return CHECKS.broken()


def check_name(cls: type[Check]) -> str:
    """The name of a check class: ``overfit-one-batch`` for ``OverfitOneBatch``."""
    return kebab(cls)


def chosen(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks named in ``only``, or all, without those in ``skip``.

    Raises:
        UsageError: a name is unknown; the message suggests similar ones.
    """
    known = {check_name(type(check)): check for check in checks()}
    for name in (*only, *skip):
        if name not in known:
            raise UsageError(f"{name!r}: no such check; {nearest(name, known)}")
    return tuple(check for name, check in known.items() if (not only or name in only) and name not in skip)
