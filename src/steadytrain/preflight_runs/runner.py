"""Runs checks on a subject within a time limit, one by one on fresh copies, and makes the document.

Nothing here prints. An error in a check makes it ``not run``; our tests raise it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.settings import utc_now
from steadytrain.checks.subject.model_check import (
    CHECK_PAGES,
    STATUSES,
    CannotError,
    Check,
    Outcome,
    Subject,
    not_run,
)
from steadytrain.core.version import __version__
from steadytrain.preflight_runs.check_catalog import check_name
from steadytrain.preflight_runs.model_copies import Workbench, fingerprint, moved

SCHEMA = "steadytrain.preflight/1"
FAST_S = 32.0
"""Time limit in seconds for all checks of ``--fast``. With launch and set-up the total stays well below a minute."""

FULL_S = 200.0
ONE_CHECK_S = {"free": 10.0, "seconds": 20.0, "minutes": 60.0}
SEED = 20261
_ORDER = ("free", "seconds", "minutes")


@dataclass(frozen=True)
class Ran:
    """A check with its outcome and duration in seconds."""

    name: str
    cost: str
    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class Results:
    """The results of a preflight. ``moved`` names what the checks failed to restore; it should always be empty."""

    ran: tuple[Ran, ...]
    seconds: float
    moved: tuple[str, ...]


def run_checks(
    subject: Subject,
    bench: Workbench,
    checks: Sequence[Check],
    *,
    modules: Sequence[nn.Module],
    tell: Callable[[str, int, int], None] = lambda name, number, count: None,
    clock: Callable[[], float] = time.monotonic,
) -> Results:
    """Runs ``checks``, the cheap ones first.

    Args:
        subject: what to check.
        bench: provides the copies.
        checks: the checks to run.
        modules: all modules that must be unchanged afterwards.
        tell: called before each check with its name, its number from 1, and the number of checks.
        clock: the time in seconds.
    """
    began = clock()
    deadline = began + (FULL_S if subject.thorough else FAST_S)
    before = fingerprint(modules, subject.optimizers, subject.schedulers)
    ordered = sorted(checks, key=_turn)
    ran = []
    for number, check in enumerate(ordered):
        name = check_name(type(check))
        tell(name, number + 1, len(ordered))
        started = clock()
        share = 2.0 * (deadline - started) / (len(ordered) - number)
        until = started + max(0.0, min(share, ONE_CHECK_S[check.cost], deadline - started))
        outcome = _run(check, replace(subject, time_left=_left(until, clock)), bench, late=started >= deadline)
        ran.append(Ran(name, check.cost, _explained(check, outcome), clock() - started))
    after = fingerprint(modules, subject.optimizers, subject.schedulers)
    return Results(tuple(sorted(ran, key=lambda one: one.name)), clock() - began, moved(before, after))


def run_one(check: Check, subject: Subject, bench: Workbench) -> Outcome:
    """Runs one check alone, in its thorough form."""
    until = time.monotonic() + ONE_CHECK_S[check.cost]
    subject = replace(subject, thorough=True, time_left=_left(until, time.monotonic))
    return _explained(check, _run(check, subject, bench, late=False))


def document(subject: Subject, results: Results, *, script: str | None) -> dict[str, Any]:
    counts = {status: sum(one.outcome.status == status for one in results.ran) for status in STATUSES}
    return {
        "schema": SCHEMA,
        "script": script,
        "created": utc_now(),
        "steadytrain": __version__,
        "mode": "full" if subject.thorough else "fast",
        "model": type(subject.model).__name__,
        "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
        "task": subject.task,
        "loss": subject.loss_source or None,
        "why_no_loss": subject.why_no_loss or None,
        "steps": len(subject.observed.get("steps", ())),
        "batches": len(subject.batches),
        "rows": sum(batch.rows or 0 for batch in subject.batches),
        "tokenizer": type(subject.tokenizer).__name__ if subject.tokenizer is not None else None,
        "restored": not results.moved,
        "moved": list(results.moved),
        "seconds": round(results.seconds, 3),
        "counts": counts,
        "checks": [
            {"name": one.name, "cost": one.cost, "seconds": round(one.seconds, 3), **plain(one.outcome.to_json())}
            for one in results.ran
        ],
    }


def plain(value: Any) -> Any:
    """``value`` as JSON. A non-finite number becomes null."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(entry) for entry in value]
    return plain(value.item()) if hasattr(value, "item") and getattr(value, "size", 1) != 0 else str(value)


def _turn(check: Check) -> tuple[int, bool, bool]:
    """Sorts by cost. Among equals, checks with a quick form come first."""
    return _ORDER.index(check.cost), not check.quick, not check.first


def _run(check: Check, subject: Subject, bench: Workbench, *, late: bool) -> Outcome:
    if check.cost == "minutes" and not subject.thorough and not check.quick:
        return not_run("it takes minutes; --full runs it")
    if late:
        return not_run(f"the time limit for all checks was reached{'' if subject.thorough else '; --full gives more'}")
    try:
        with bench.copies(seed=SEED):
            return check.inspect(subject)
    except CannotError as refusal:
        return not_run(str(refusal))
    except Exception as error:
        if Guard.reraise:
            raise
        return not_run(f"the check itself failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _explained(check: Check, outcome: Outcome) -> Outcome:
    """Adds the meaning and next step from the check's docstring if the outcome has none."""
    if outcome.status in ("pass", "not-run"):
        return outcome
    page = CHECK_PAGES.of(check)
    meaning = outcome.meaning or " ".join(page.sections.get("means", "").split())
    return replace(outcome, meaning=meaning, next=outcome.next or page.first_step)


def _left(until: float, clock: Callable[[], float]) -> Callable[[], float]:
    return lambda: until - clock()
