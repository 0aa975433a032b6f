"""The failing rank's batch alone, in a world of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import not_run
from steadytrain.experiments.rank_plans import ALONE, why_not_on_ranks
from steadytrain.experiments.specs import OWN_BATCH, Change, Entry, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial

FAILING, TOGETHER, OTHER = 0, 1, 2
"""The ``repeat`` of the failing rank alone, of all ranks together from the same state, and of another rank alone."""


@final
class OneRank(Trial):
    """The failing rank's batch alone, in a world of one.

    Changes:
        From the state right before the failing step, one process makes this step with the recorded batch of the failing
        rank: no other rank, so no reduction and no race between ranks. Its controls start from the same state: all
        ranks together, and another rank's batch alone.

    Tells:
        If the step still fails, the fault lies in the batch or the model, and not between the ranks. If it does not,
        while all ranks together do, it comes from another rank, from what they exchange, or from a race.

    Beware:
        Alone, a rank has the number 0: a fault that the script makes on rank 1 only does not come.
    """

    axis = "distributed"
    removes = "ranks"
    either = "half kernel transient script"
    own_control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.ranks is None and case.facts.get("ranks", 1) == 1:
            return NotApplicable("there is one process already")
        if (why := why_not_on_ranks(case, ())) is not None:
            return NotApplicable(why)
        assert case.ranks is not None
        if case.aim != "finite":
            return NotApplicable(
                "it tells something of a step that is not finite: over several steps, one rank alone trains on other "
                "gradients than all together"
            )
        held = case.ranks.held
        if held is None or held != case.onset - 1:
            return NotApplicable("the bundles of the ranks do not all hold the state right before the step")
        failing, lead = case.ranks.failing, case.lead(held)
        schedule = (Entry(case.onset),)
        alone = [(FAILING, (Change(ALONE, {"rank": failing}),)), (TOGETHER, ())]
        alone.append((OTHER, (Change(ALONE, {"rank": case.ranks.other}),)))
        return tuple(Spec(self.name, repeat, held, schedule, changes, lead) for repeat, changes in alone)

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by whether the step fails alone, if it fails together."""
        ran = {one.spec.repeat: one for one in outcomes if one.ran}
        if FAILING not in ran or case.ranks is None:
            return not_run(self.name, outcomes)
        if TOGETHER not in ran:
            return Verdict(self.name, "inconclusive", why="its control, all ranks from the same state, did not run")
        own = next((note for one in ran.values() for note in one.notes if OWN_BATCH in note), None)
        if own is not None:
            return Verdict(self.name, "not-run", why=own)
        failing = case.ranks.failing
        alone, together = ran[FAILING].first_nonfinite is not None, ran[TOGETHER].first_nonfinite is not None
        other = OTHER in ran and ran[OTHER].first_nonfinite is not None
        numbers = {"alone": float(alone), "together": float(together), "other_alone": float(other)}
        if not together:
            why = "from the state right before the step, all ranks together do not fail either"
            return Verdict(self.name, "inconclusive", numbers, why)
        if alone:
            beside = "; another rank's batch alone fails too" if other else "; another rank's batch alone does not"
            why = f"the batch of rank {failing} alone, in a world of one, fails as well{beside if OTHER in ran else ''}"
            return Verdict(self.name, "persists", numbers, f"{why}: not a fault between the ranks")
        if other:
            why = f"the batch of rank {failing} alone does not fail, and that of another rank alone does"
            return Verdict(self.name, "inconclusive", numbers, why)
        why = f"the batch of rank {failing} alone, in a world of one, does not fail, and all ranks together do"
        return Verdict(self.name, "removed", numbers, why)
