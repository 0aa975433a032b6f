"""Finds the trials: files of ``steadytrain.experiments.trials``, rows of ``trial_tables``. Not here: running one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.plugin_pages import Page, Pages, wrapped
from steadytrain.core.plugins import Broken, Kind, nearest
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import UNCHANGED, NotApplicable, Spec
from steadytrain.experiments.trial import AXES, KINDS, Trial, axis_word


def _lacks(found: type[Trial] | Trial) -> str | None:
    unknown = {*found.removes.split(), *found.either.split()} - set(KINDS)
    if unknown:
        return f"no kind of cause is called {' or '.join(sorted(unknown))}"
    return f"no axis is called {found.axis}" if found.axis and found.axis not in AXES else None


TRIALS = Kind(
    "trial",
    Trial,
    "steadytrain.experiments.trials",
    "steadytrain.trials",
    lacks=_lacks,
    tables="steadytrain.experiments.trial_tables",
)


def _traits(one: Trial | type[Trial]) -> dict[str, Any]:
    return {
        "kind": "trial",
        "control": one.control,
        "always": one.always,
        "removes": one.removes.split(),
        "either": one.either.split(),
        "axis": one.axis or None,
        "alike": one.alike or None,
        "other_loss": one.other_loss,
        "own_control": one.own_control,
        "rate_only": one.rate_only,
        "group_test": one.group_test,
    }


def _closing(page: Page) -> list[str]:
    traits = page.traits
    lines = [f"- {KINDS[kind]} ({kind})" for kind in traits["removes"]]
    parts = ["Removes the symptom where:\n" + "\n".join(lines)] if lines else []
    if traits["either"]:
        parts.append(wrapped(f"May remove it, or not: {', '.join(traits['either'])}. Of all others it persists."))
    if traits["axis"]:
        parts.append(f"Axis: {axis_word(traits['axis'])} ({AXES[traits['axis']]}).")
    if traits["alike"] and not traits["control"]:
        parts.append(wrapped(f"Together with other trials of the group `{traits['alike']}` it counts as one."))
    if traits["own_control"]:
        parts.append("It brings its own control: a run that trains as the script does and measures the same.")
    if traits["control"]:
        parts.append(f"A control{': it always runs' if traits['always'] else ''}.")
    return parts


TRIAL_PAGES = Pages(
    kind=TRIALS,
    noun="trial",
    key="trials",
    heading="Trials",
    schema="steadytrain.trial-explanation/1",
    document=(
        *("kind", "name", "summary", "changes", "tells", "beware"),
        *(
            "control",
            "always",
            "removes",
            "either",
            "axis",
            "alike",
            "other_loss",
            "own_control",
            "rate_only",
            "group_test",
        ),
    ),
    traits=_traits,
    closing=_closing,
    headings=("Changes", "Tells", "Beware"),
    flows=True,
    thresholds=False,
    title="All trials",
    intro="What `steadytrain trial` can change on a replay (`trials.md`). `steadytrain explain NAME` prints the same\n"
    "in a terminal.",
    markdown_closing=_closing,
)


@cache
def trials() -> tuple[Trial, ...]:
    """Every usable trial: the controls first, then by name."""
    return tuple(sorted(TRIALS.made(), key=lambda one: (not one.control, one.name != UNCHANGED, one.name)))


@cache
def always_run() -> tuple[Trial, ...]:
    """The trials that always run: ``unchanged``, rows marked so, and those of other packages."""
    return tuple(one for one in TRIALS.made() if one.always)


def plan_of(one: Trial, case: Case) -> tuple[Spec, ...] | NotApplicable:
    """The plan of a trial. If the plan of another package's trial raises, the trial does not apply."""
    try:
        return one.plan(case.within_step() if one.within_step else case)
    except Exception as error:
        if one.name in TRIALS.names():
            raise
        return NotApplicable(f"its plan failed: {type(error).__name__}: {error}")


def with_controls(specs: Sequence[Spec], case: Case, done: Collection[int | None] = ()) -> list[Spec]:
    """``specs`` and, if some begin at the case's snapshot while its unchanged replay does not, that replay before them.

    Args:
        done: where unchanged replays that have run began.
    """
    there = {*done, *(spec.begin for spec in specs if spec.trial == UNCHANGED)}
    plan = trial(UNCHANGED).plan(case)
    if isinstance(plan, NotApplicable) or not any(spec.begin == plan[0].begin for spec in specs):
        return list(specs)
    return [*(replace(spec, repeat=1) for spec in plan if spec.begin not in there), *specs]


def broken() -> tuple[Broken, ...]:
    """The trials of other packages that :func:`trials` left out."""
    return TRIALS.broken()


def trial(name: str) -> Trial:
    """The trial called ``name``.

    Raises:
        UsageError: no trial has that name; the message lists similar names.
    """
    known = {one.name: one for one in trials()}
    if name in known:
        return known[name]
    raise UsageError(f"no trial is called {name!r}; {nearest_names(name, known)}")


def nearest_names(name: str, known: Iterable[str]) -> str:
    """The names that may be meant, and what lists all."""
    near = nearest(name, known, otherwise=" ").strip()
    return f"{near} (`steadytrain trial` lists all)" if near else "`steadytrain trial` lists all"


def summary(one: Trial) -> str:
    """The first sentence of the trial's documentation."""
    return TRIAL_PAGES.of(one).summary
