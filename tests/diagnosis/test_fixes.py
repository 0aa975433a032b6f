"""The fixes that an answer offers: three groups, mending before hiding, and none that only looks like one."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import BatchRow, Diagnosis, Remedy
from steadytrain.diagnosis.batch_trigger import batch_note
from steadytrain.diagnosis.cause import CERTAIN, Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes, interventions_of, shipped
from steadytrain.diagnosis.conclusion import Circumstances, conclude
from steadytrain.diagnosis.fix_order import group_of
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.weighing import Suspect
from steadytrain.experiments.command_results import keep_verdicts, results_of
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.fix_verification import PRICE, verified
from steadytrain.experiments.outcome_files import COPY
from steadytrain.experiments.specs import Effect, Verdict
from steadytrain.experiments.trial_catalog import trial, trials
from steadytrain.report import diagnosis_shown, text
from steadytrain.storage.bundle import MANIFEST, seal
from trial_cases import finite_case, made

SHOWN = Control(True, True, True, "a value is not finite")
SMALLER_STEPS = ("lower-learning-rate", "longer-warmup", "clip", "clip-usual")
FAULTS_OF_THE_SCRIPT = (
    *("singular-operation", "missing-zero-grad", "loss-function-misuse", "label-misalignment", "label-leakage"),
    *("accumulation-scaling", "clip-before-unscale", "parameters-not-in-optimizer", "shape-broadcast", "causal-leak"),
    *("train-eval-mode", "detached-graph", "scheduler-misstep", "no-supervised-tokens", "token-out-of-range"),
    *("padding-in-loss", "fully-masked-attention", "nonfinite-input", "tied-weights-broken", "frozen-parameters"),
    "reused-graph",
)


def answer(
    name: str,
    effects: Mapping[str, Effect],
    *,
    numbers: Mapping[str, float] | None = None,
    refused: Mapping[str, str] | None = None,
    contrasts: Sequence[Contrast] = (),
    control: Control = SHOWN,
) -> Diagnosis:
    """The answer to a case in which only this cause has a sign, after these trials."""
    suspects = [
        Suspect(one, made, Signature((Sign("seen", CERTAIN, "fact x"),) if one == name else ()))
        for one, made in causes().items()
    ]
    verdicts = [Verdict(trial, effect, numbers or {}, "so it was") for trial, effect in effects.items()]
    known = Circumstances(
        "non-finite: a NaN",
        control,
        True,
        (),
        "runs/a/incidents/b",
        contrasts={one.trial: one for one in contrasts},
        refused=refused or {},
    )
    return conclude(suspects, verdicts, known)


def fixes(*given: object, **more: object) -> tuple[Remedy, ...]:
    found = answer(*given, **more)  # type: ignore[arg-type]
    return next(one.interventions for one in found.diagnoses if one.cause == given[0])


def printed(found: Diagnosis) -> str:
    console = Console(width=120, highlight=False, emoji=False, markup=False)
    with console.capture() as lines:
        console.print(text.diagnosis(diagnosis_shown.part(found)), crop=False)
    return lines.get()


@pytest.mark.parametrize("name", FAULTS_OF_THE_SCRIPT)
def test_no_smaller_step_is_offered_for_a_fault_of_the_script(name: str) -> None:
    assert not {one.name for one in interventions_of(name, causes()[name])} & set(SMALLER_STEPS)


@pytest.mark.parametrize("name", shipped())
def test_every_fix_has_a_line_of_code_or_a_command(name: str) -> None:
    assert all(one.code or one.command for one in interventions_of(name, causes()[name]))


@pytest.mark.parametrize("name", shipped())
def test_without_a_replay_there_is_still_something_to_write(name: str) -> None:
    assert all(one.code or one.command for one in fixes(name, {}, control=Control(False, False, None, "no tape")))


def test_only_what_ran_and_removed_it_stands_among_what_was_seen_to_work() -> None:
    effects: dict[str, Effect] = {"unchanged": "persists", "drop-batch": "removed", "safe-operation": "not-run"}
    groups = {one.name: group_of(one) for one in fixes("singular-operation", effects)}
    assert groups == {"drop-batch": "stopgap", "safe-operation": "untried", "minimal-example": "untried"}


def test_what_was_tried_in_vain_comes_last_with_what_it_did() -> None:
    effects: dict[str, Effect] = {"learning-rate-third": "persists", "clip": "inconclusive"}
    found = fixes("learning-rate-too-high", effects)
    assert [group_of(one) for one in found] == ["untried", "untried", "failed", "failed"]
    told = printed(answer("learning-rate-too-high", effects))
    assert "Fixes seen to work" not in told
    assert told.index("Fixes not tried") < told.index("Fixes tried and not seen to help")
    assert "clip the global norm to a tenth of its median (cannot tell: so it was)" in told


def test_what_mends_the_cause_comes_before_what_hides_it() -> None:
    assert fixes("singular-operation", {})[0].name == "safe-operation"
    assert fixes("bad-initialization", {})[0].name == "he-initialization"
    assert fixes("learning-rate-too-high", {})[0].name == "lower-learning-rate"
    assert fixes("data-shift", {})[0].name == "fresh-data"


def test_a_fix_that_works_has_its_price() -> None:
    told = printed(answer("bad-batch", {"drop-batch": "removed"}, numbers={PRICE: 0.00032}))
    assert "stopgap: leave the batch out (removes it; the loss before the onset changes by +0.00032)" in told


def test_a_change_that_a_placebo_equals_says_so() -> None:
    contrast = Contrast("drop-batch", False, "leaving out the batch of step 84 removes it as well")
    made = fixes("bad-batch", {"drop-batch": "removed"}, contrasts=(contrast,))
    (dropped,) = (one for one in made if one.name == "drop-batch")
    assert (group_of(dropped), dropped.note) == ("stopgap", contrast.why)


def test_a_change_that_does_not_apply_has_no_command_that_fails() -> None:
    (only,) = fixes("scheduler-misstep", {}, refused={"constant-learning-rate": "the rate is constant"})
    assert (only.command, only.note) == (None, "the rate is constant")
    others = fixes("learning-rate-too-high", {}, refused={"longer-warmup": "no snapshot before the first step"})
    assert "longer-warmup" not in {one.name for one in others}


def test_what_could_not_be_run_is_not_said_to_have_failed() -> None:
    found = answer("singular-operation", {"safe-operation": "not-run"})
    why = next(one.why for one in found.diagnoses if one.cause == "singular-operation")
    assert "no change that mends it could be tried (safe-operation: so it was)" in why
    assert "removed the symptom" not in why


@pytest.mark.parametrize("effect", ["inconclusive", "not-run", "delayed", "persists"])
def test_nothing_is_confirmed_over_a_table_that_does_not_say_removed(effect: Effect) -> None:
    found = answer("parameters-not-in-optimizer", {"unchanged": "persists", "optimize-all": effect})
    assert found.status != "confirmed"
    assert "helps" not in found.why


def test_a_bundle_that_is_copied_has_its_answer_and_its_seal_holds(tmp_path: Path) -> None:
    bundle = tmp_path / "incidents" / "nan"
    bundle.mkdir(parents=True)
    (bundle / "incident.json").write_text("{}")
    seal(bundle)
    manifest = (bundle / MANIFEST).read_bytes()
    found = answer("bad-batch", {"drop-batch": "removed"})
    answer_files.keep(bundle, found)
    keep_verdicts(bundle, "verify", {"clip": Verdict("clip", "persists", why="so it was")})
    seal(bundle)  # as `locate` does
    assert (bundle / MANIFEST).read_bytes() == manifest
    copied = tmp_path / "mail" / "nan"
    shutil.copytree(bundle, copied)
    assert answer_files.read(copied) == found
    assert results_of(copied)["verify clip"].effect == "persists"


def test_a_bundle_that_cannot_be_written_has_its_answer_beside_it(tmp_path: Path) -> None:
    bundle = tmp_path / "incidents" / "nan"
    bundle.mkdir(parents=True)
    (bundle / "incident.json").write_text("{}")
    (bundle / COPY).write_text("no folder can be made here")
    found = answer("bad-batch", {"drop-batch": "removed"})
    answer_files.keep(bundle, found)
    assert answer_files.read(bundle) == found


def test_answers_from_before_the_prices_are_read() -> None:
    document = answer("bad-batch", {"drop-batch": "removed"}).to_json()
    for cause in document["diagnoses"]:
        for fix in cause["interventions"]:
            for key in ("price", "code", "note"):
                del fix[key]
    read = Diagnosis.from_json(document)
    assert {(one.price, one.code, one.note) for cause in read.diagnoses for one in cause.interventions} == {
        (None, "", "")
    }


@pytest.mark.parametrize(
    ("effect", "held", "said"),
    [
        ("removed", True, "The data of step 9 trigger it: without that batch it does not come (rows 1, 4 stand out)"),
        ("removed", False, "Whether the batch of step 9 triggers it is open: so does another batch"),
        ("persists", True, "The data of step 9 alone do not trigger it: it comes without that batch too"),
        ("inconclusive", True, ""),
        ("not-run", True, ""),
    ],
)
def test_the_answer_says_whether_the_data_of_the_step_trigger_it(effect: Effect, held: bool, said: str) -> None:
    rows = [BatchRow(row, step, "0", "float32", 1, 0, (1.0,)) for row, step in ((4, 9), (1, 9), (4, 9), (7, 8))]
    contrasts = {"drop-batch": Contrast("drop-batch", held, "so does another batch")}
    assert batch_note({"drop-batch": Verdict("drop-batch", effect)}, contrasts, 9, rows) == said
    assert batch_note({}, {}, 9, ()) == ""


def test_a_price_that_means_nothing_is_left_out() -> None:
    case = finite_case(begins=(88,), onset=90)
    control = made("unchanged", [2.0, 9.0, 9.0], [2.0, 2.0, math.inf], exact=True)
    fixed = made("clip", [2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    assert verified(case, trial("clip"), "clip", [control], [fixed]).price_end is None
    other = next(one for one in trials() if one.other_loss and one.fix == 0)
    found = verified(case, other, other.name, [fixed], [replace(fixed, spec=replace(fixed.spec, trial=other.name))])
    assert (found.price_before, found.price_end) == (None, None)
