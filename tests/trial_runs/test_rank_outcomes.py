"""The outcomes of several ranks as one."""

from __future__ import annotations

from steadytrain.experiments.specs import Entry, Outcome, Spec, StepSeen
from steadytrain.trial_runs.rank_outcomes import joined

SPEC = Spec("unchanged", 0, 4, (Entry(5), Entry(6), Entry(7)))


def ran(*finite: bool, loss: float = 1.0, exact: bool | None = True) -> Outcome:
    steps = tuple(StepSeen(entry, loss, 0.5, good) for entry, good in enumerate(finite))
    return Outcome(SPEC, True, steps=steps, exact=exact, seconds=loss)


def test_losses_are_those_of_the_asked_rank_and_a_step_is_finite_where_all_are() -> None:
    one = joined(SPEC, {0: ran(True, True, True), 1: ran(True, False, loss=2.0, exact=False)}, asked=0, why=None)
    assert one.ran
    assert [(seen.loss, seen.finite) for seen in one.steps] == [(1.0, True), (1.0, False)]
    assert one.exact is False
    assert one.seconds == 2.0


def test_a_rank_that_was_ended_while_it_waited_for_one_that_failed_is_no_failure() -> None:
    waits = Outcome(SPEC, False)
    found = joined(SPEC, {0: waits, 1: ran(True, False)}, asked=0, why="rank 0 waited in vain")
    assert found.ran
    assert found.first_nonfinite == 1


def test_a_rank_that_waited_in_vain_although_nothing_failed_is_one() -> None:
    found = joined(SPEC, {0: Outcome(SPEC, False), 1: ran(True)}, asked=0, why="rank 0 waited in vain")
    assert (found.ran, found.why_not) == (False, "rank 0 waited in vain")


def test_a_rank_that_could_not_run_is_named() -> None:
    found = joined(SPEC, {0: ran(True), 1: Outcome(SPEC, False, "another model")}, asked=0, why=None)
    assert (found.ran, found.why_not) == (False, "rank 1: another model")


def test_a_change_that_touched_nothing_on_one_rank_counts_if_it_did_on_another() -> None:
    nothing = Outcome(SPEC, False, "no such operation", steps=ran(True, True).steps, exact=True)
    assert joined(SPEC, {0: nothing, 1: ran(True, True)}, asked=0, why=None).ran
    both = joined(SPEC, {0: nothing, 1: nothing}, asked=0, why=None)
    assert (both.ran, both.why_not) == (False, "rank 0: no such operation")
