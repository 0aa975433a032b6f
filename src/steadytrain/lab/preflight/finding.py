"""Finds the checks: files of ``steadytrain.checks``, and what other packages name under the entry-point group.

A check's documentation is its docstring. Of ours it is read from the source, so that ``steadytrain explain`` needs no
torch; that is in ``steadytrain.check_pages``.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import EntryPoint, entry_points

from steadytrain.check_pages import check_files, kebab
from steadytrain.checks.contract import Check
from steadytrain.errors import UsageError

GROUP = "steadytrain.checks"
ENTRY_POINTS_MAX = 256


@dataclass(frozen=True)
class Broken:
    """A check of another package that could not be used: where it was said to be, and why not."""

    entry_point: str
    why: str


def checks() -> tuple[Check, ...]:
    """Every usable check: ours by name, then those of other packages."""
    return (*_shipped(), *_third_party()[0])


def broken() -> tuple[Broken, ...]:
    """The checks of other packages that :func:`checks` left out."""
    return _third_party()[1]


def check_name(cls: type[Check]) -> str:
    """``OverfitOneBatch`` is ``overfit-one-batch`` in ``checks/overfit_one_batch.py``."""
    return kebab(cls.__name__)


def chosen(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks of these names, or all, without those that are skipped.

    Raises:
        UsageError: a name that no check has; the message lists those that are near.
    """
    known = {check_name(type(check)): check for check in checks()}
    for name in (*only, *skip):
        if name not in known:
            near = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
            raise UsageError(f"{name!r}: no such check; {hint}")
    return tuple(check for name, check in known.items() if (not only or name in only) and name not in skip)


def _shipped() -> tuple[Check, ...]:
    return tuple(_check_of(path.stem) for path in check_files())


def _check_of(module_name: str) -> Check:
    """The check of one file of ours. That a file holds exactly one, of the right name, is our own promise."""
    module = importlib.import_module(f"steadytrain.checks.{module_name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Check) and value.__module__ == module.__name__
    ]
    assert len(classes) == 1, f"{module.__name__} holds {len(classes)} checks; one file, one check"
    (cls,) = classes
    assert check_name(cls) == module_name.replace("_", "-"), f"{cls.__name__} in {module_name}.py"
    return cls()


def _third_party() -> tuple[tuple[Check, ...], tuple[Broken, ...]]:
    taken = {path.stem.replace("_", "-") for path in check_files()}
    found: list[Check] = []
    failed: list[Broken] = []
    declared = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    for entry_point in declared[:ENTRY_POINTS_MAX]:
        outcome = _load(entry_point, taken)
        if isinstance(outcome, Broken):
            failed.append(outcome)
        else:
            taken.add(check_name(type(outcome)))
            found.append(outcome)
    return tuple(found), tuple(failed)


def _load(entry_point: EntryPoint, taken: set[str]) -> Check | Broken:
    where = f"{entry_point.name} = {entry_point.value}"
    try:
        cls = entry_point.load()
        if not (isinstance(cls, type) and issubclass(cls, Check)):
            return Broken(where, f"{cls!r} is not a subclass of steadytrain.checks.contract.Check")
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        if missing:
            return Broken(where, f"fields without a default: {', '.join(missing)}")
        name = check_name(cls)
        if name in taken:
            return Broken(where, f"the name {name} is taken")
        return cls()
    except Exception as error:  # whatever another package's import does, it must not cost the other checks
        return Broken(where, f"{type(error).__name__}: {error}")
