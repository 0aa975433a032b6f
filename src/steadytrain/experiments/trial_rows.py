"""Trials without their own logic: a row says what changes and what that shows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.paired_runs import both, learns_it, reaches_further
from steadytrain.experiments.planning import from_the_beginning, planned
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_starts import START

WIDTH = 116


@dataclass(frozen=True)
class Row(Trial):
    """A trial as a value. Its fields are the sections of a trial's docstring, and the traits of ``Trial``."""

    called: str
    summary: str
    _: KW_ONLY
    changes: str
    tells: str
    beware: str
    control: bool = False
    always: bool = False
    removes: str = ""
    either: str = ""
    axis: str = ""
    alike: str = ""
    other_loss: bool = False
    own_control: bool = False
    group_test: bool = False
    rate_only: bool = False
    own_scale: bool = False
    within_step: bool = False

    def __post_init__(self) -> None:
        sections = (("Changes", self.changes), ("Tells", self.tells), ("Beware", self.beware))
        parts = [self.summary, *(f"{title}:\n{_indented(text)}" for title, text in sections)]
        object.__setattr__(self, "__doc__", "\n\n".join(parts))  # documented like a class

    @property
    def name(self) -> str:
        return self.called


@final
@dataclass(frozen=True)
class OneChange(Row):
    """The recorded steps with the changes ``makes`` from the snapshot on, or from the script's own beginning."""

    _: KW_ONLY
    makes: tuple[Change, ...] = ()
    from_own_beginning: bool = False
    only_at_start: bool = False
    from_beginning_of: str = ""
    """Symptoms, by name, after which it is too late from a snapshot: the script's own beginning runs instead."""

    first_update_min: float = 0.0
    """The first update must have changed the median matrix by at least this share of it."""

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if self.only_at_start and case.begin != START:
            return NotApplicable("the symptom does not belong to the script's first steps")
        if self.first_update_min and (why := self._of_usual_size(case)) is not None:
            return NotApplicable(why)
        named = case.symptom.name if case.symptom is not None else ""
        if self.from_own_beginning or named in self.from_beginning_of.split():
            return from_the_beginning(self, case, *self.makes)
        return planned(self, case, *self.makes)

    def _of_usual_size(self, case: Case) -> str | None:
        """Why the first update is not too large; None if it is."""
        ratio = case.facts.get("update_ratio_first_median")
        if not isinstance(ratio, int | float):
            return "the size of the first update was not measured"
        if ratio >= self.first_update_min:
            return None
        return f"the first update changed the median matrix by {ratio:.2g} of it: a hundredth of the rate is enough"

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """Of a rate cut: the same cut, but over well before the onset."""
        before = case.onset - (case.begin or 0) - 2
        cut = [one for one in self.makes if one.kind == "learning-rate" and 0 < one.values["factor"] < 1]
        if not cut or before < 1:
            return None
        made = planned(self, case, Change("learning-rate", {**cut[0].values, "updates": before}))
        if isinstance(made, NotApplicable):
            return None
        what = f"the same cut of the rate in the {before} updates well before the onset alone"
        return Placebo(what, tuple(replace(one, trial=f"{self.name}-placebo") for one in made))


@final
@dataclass(frozen=True)
class MeasuredAsMeant(Row):
    """A loss that measures what it was meant to, in two runs: one trains on it, the other as the script does."""

    _: KW_ONLY
    change: str
    """The change, which leaves training steps alone where its value ``train`` is false."""

    what: str
    """What the changed loss is a loss of."""

    fix: int = 1
    other_loss: bool = True
    own_control: bool = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return both([planned(self, case, Change(self.change, {"train": train})) for train in (False, True)])

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by whether the run that trains on what was meant learns it better than the one that does not."""
        return learns_it(self.name, self.what, case, controls, outcomes)


@final
@dataclass(frozen=True)
class WithoutBound(Row):
    """The recorded steps without a bound of the predictions."""

    _: KW_ONLY
    change: str

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change(self.change))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """As any trial, and by whether the loss gets below what the bound allows."""
        return reaches_further(super().judge(case, controls, outcomes), outcomes)


@final
@dataclass(frozen=True)
class NeedsRanks(Row):
    """A trial of several ranks that steadytrain cannot run. It gives ``why``, or ``alone`` if the run has one
    process."""

    _: KW_ONLY
    alone: str
    why: str

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return NotApplicable(self.alone if case.facts.get("ranks", 1) == 1 else self.why)


def _indented(text: str) -> str:
    lead = "    "
    return textwrap.fill(
        text, WIDTH, initial_indent=lead, subsequent_indent=lead, break_long_words=False, break_on_hyphens=False
    )
