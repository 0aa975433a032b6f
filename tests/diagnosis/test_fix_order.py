"""The order and the truth of offered fixes: what was seen to work, what was not tried, what failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.core.incident import Located
from steadytrain.diagnosis.answer import SIGNATURE, Remedy
from steadytrain.diagnosis.cause import CERTAIN, Cause, Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.conclusion import Circumstances, conclude
from steadytrain.diagnosis.fix_order import Hints, OfScript, fitting, group_of, remedies
from steadytrain.diagnosis.guarded_operations import guarded
from steadytrain.diagnosis.patches.wound import wound_of
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.weighing import Suspect
from steadytrain.experiments.fix_verification import PRICE
from steadytrain.experiments.specs import Effect, Verdict
from steadytrain.report import diagnosis_shown

CAUSES = causes()


def offered(name: str, **effects: Effect) -> tuple[Remedy, ...]:
    cause: Cause = CAUSES[name]
    verdicts = [Verdict(trial.replace("_", "-"), effect, {PRICE: 0.25}) for trial, effect in effects.items()]
    return remedies(cause, cause.interventions, verdicts, target="run/x", replayed=True)


def test_a_rate_is_never_cut_for_an_operation_outside_its_domain() -> None:
    for name in ("singular-operation", "no-supervised-tokens", "nonfinite-input", "missing-zero-grad"):
        assert not any("learning rate" in one.what for one in CAUSES[name].interventions)


def fixes_for(name: str, sign: Sign | None, *verdicts: Verdict) -> list[str]:
    signature = Signature((sign,) if sign is not None else ())
    return [one.name for one in fitting(CAUSES[name].interventions, signature, verdicts)]


def test_fixes_are_those_of_what_was_seen() -> None:
    early = Sign("clipping saw no gradient", CERTAIN, "fact clip_before_backward")
    scaled = Sign("clipped while scaled", CERTAIN, "symptom clipped-while-scaled")
    assert fixes_for("clip-before-unscale", early) == ["clip-after-backward"]
    assert fixes_for("clip-before-unscale", scaled) == ["unscale-first"]
    assert fixes_for("clip-before-unscale", None) == ["unscale-first", "clip-after-backward"]
    twice = Sign("softmax twice", CERTAIN, "symptom misused-loss", {"softmax-twice": 1.0})
    assert fixes_for("loss-function-misuse", twice) == ["loss-from-logits"]


def test_a_fix_that_was_tried_is_told_in_any_case() -> None:
    early = Sign("clipping saw no gradient", CERTAIN, "fact clip_before_backward")
    tried = fixes_for("clip-before-unscale", early, Verdict("unscale-first", "persists"))
    assert tried == ["unscale-first", "clip-after-backward"]


def test_the_code_of_a_fix_names_the_optimizer_of_the_script() -> None:
    cause = CAUSES["learning-rate-too-high"]
    for given, expected in (("torch.optim.sgd.SGD", "SGD("), (None, "AdamW("), ("<locals>", "AdamW(")):
        script = OfScript(given)
        made = remedies(cause, cause.interventions, [], target="run/x", replayed=True, of_script=script)
        (code,) = (one.code for one in made if one.name == "lower-learning-rate")
        assert code.startswith(f"optimizer = {expected}")


@pytest.mark.parametrize(("ignored", "said"), [(None, "label != -100 for"), (-1, "label != -1 for")])
def test_the_code_of_a_fix_has_the_label_that_the_script_ignores(ignored: int | None, said: str) -> None:
    cause, script = CAUSES["no-supervised-tokens"], OfScript(hints=Hints(ignored=ignored))
    made = remedies(cause, cause.interventions, [], target="run/x", replayed=True, of_script=script)
    assert any(said in one.code for one in made)


def test_a_rate_that_jumped_is_kept_whatever_the_replay_made_of_it() -> None:
    cause, script = CAUSES["learning-rate-too-high"], OfScript(hints=Hints("keep the rate at 0.01 at train.py:6"))
    made = remedies(cause, cause.interventions, [], target="run/x", replayed=True, of_script=script)
    (fix,) = (one for one in made if one.name == "lower-learning-rate")
    assert fix.what.startswith("keep the learning rate as it was; the replay made ")
    assert fix.code == "# keep the rate at 0.01 at train.py:6"


@pytest.mark.parametrize(("held", "offers"), [("removed", ["removed"]), ("persists", ["persists"])])
def test_keeping_a_rate_that_jumped_is_one_fix_whatever_factors_were_tried(held: Effect, offers: list[str]) -> None:
    cause, script = CAUSES["learning-rate-too-high"], OfScript(hints=Hints("keep the rate at 0.01 at train.py:6"))
    verdicts = [Verdict("constant-learning-rate", held), Verdict("learning-rate-third", "persists")]
    made = remedies(cause, cause.interventions, verdicts, target="run/x", replayed=True, of_script=script)
    kept = [one.tried for one in made if one.what.startswith("keep the learning rate") and one.tried is not None]
    assert kept == offers


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("aten.log.default", "torch.log(x.clamp(min=1e-6)), or the form that takes scores"),
        ("aten.div.Tensor", "a / b.clamp(min=1e-6)"),
        ("aten.sqrt_.default", "torch.sqrt(x.clamp(min=1e-12))"),
        ("aten.linalg_vector_norm.default", "torch.sqrt(x.square()"),
        ("aten._euclidean_dist.default", "torch.sqrt(x.square()"),
        ("aten.std.correction", "x.std(correction=0)"),
        ("aten.mm.default", "x.clamp(min=1e-6)  # around"),
    ],
)
def test_the_code_of_a_safe_operation_is_that_of_the_one_that_was_found(operation: str, code: str) -> None:
    found = Located("forward", operation, "inf", "", "/a/train.py", 8, "y", (), (), "the loss", "eager")
    cause, script = CAUSES["singular-operation"], OfScript(hints=Hints(guarded=guarded(found)))
    made = remedies(cause, cause.interventions, [], target="run/x", replayed=True, of_script=script)
    (fix,) = (one for one in made if one.name == "safe-operation")
    assert fix.code.startswith(code)
    assert fix.code.endswith("  # train.py:8") is (operation != "aten.mm.default")


@pytest.mark.parametrize(
    ("operation", "line", "form"),
    [
        ("aten.div.Tensor", "logdet = torch.log(1 - x.tanh()**2)", "torch.log(x.clamp"),
        ("aten.div.Tensor", "norm = (x ** 2).sum().sqrt()  # 1 / n later", "torch.sqrt(x.clamp"),
        ("aten.div.Tensor", "y = a / b", "a / b.clamp"),
        ("aten.div.Tensor", "y = torch.log(a / b)", ""),
        ("aten.div.Tensor", "y = a.mean()", ""),
        ("aten.rsqrt.default", "angle = torch.acos(x)", "torch.acos(x.clamp"),
        ("aten.linalg_vector_norm_backward.default", "y = a / b", "torch.sqrt(x.square()"),
    ],
)
def test_the_code_for_a_derivative_fits_the_operation_of_the_forward_line(operation: str, line: str, form: str) -> None:
    found = Located("backward", operation, "nan", "", "/a/train.py", 8, line, (), (), "the gradient", "eager")
    assert guarded(found).startswith(form)
    assert bool(guarded(found)) is bool(form)


def test_the_patch_of_a_derivative_is_of_the_operation_of_the_forward_line() -> None:
    code = "logdet = torch.log(1 - x.tanh()**2)"
    found = Located("backward", "aten.div.Tensor", "nan", "", "/a/t.py", 8, code, (), (), "the gradient", "eager")
    assert wound_of("/a/t.py", "singular-operation", found, None).operation == "log"
    assert wound_of("/a/t.py", "singular-operation", replace(found, code="y = a.mean()"), None).operation == "div"


def test_no_command_is_offered_for_what_cannot_run() -> None:
    cause = CAUSES["missing-zero-grad"]
    for why, offered_again in (("the optimizer is not known", False), ("the budget of time was spent", True)):
        made = remedies(
            cause, cause.interventions, [Verdict("zero-grad", "not-run", why=why)], target="x", replayed=True
        )
        (fix,) = (one for one in made if one.trial == "zero-grad")
        assert (fix.command is not None) is offered_again


def test_a_change_that_mends_comes_before_one_that_hides_although_its_rung_is_higher() -> None:
    names = [one.name for one in offered("singular-operation", drop_batch="removed", safe_operation="removed")]
    assert (names[0], names[-1]) == ("safe-operation", "drop-batch")


def test_leaving_a_batch_out_is_a_stopgap_that_comes_after_what_mends() -> None:
    for name in ("no-supervised-tokens", "singular-operation", "bad-batch", "nonfinite-input"):
        found = offered(name, drop_batch="removed")
        groups = [group_of(one) for one in found]
        assert (found[0].name != "drop-batch", groups.count("stopgap")) == (True, 1)
        assert "works" not in groups
    assert [group_of(one) for one in offered("bad-batch", drop_batch="persists")][-1] == "failed"


def test_the_code_of_a_stopgap_names_the_step() -> None:
    cause = CAUSES["bad-batch"]
    for step, expected in ((150, "if step == 150: continue"), (None, "continue")):
        made = remedies(cause, cause.interventions, [], target="run/x", replayed=True, of_script=OfScript(None, step))
        (code,) = (one.code for one in made if one.name == "drop-batch")
        assert code.partition("  #")[0] == expected


def test_what_worked_comes_first_with_its_price_and_what_failed_last() -> None:
    first, *_, last = offered("learning-rate-too-high", learning_rate_third="persists", clip="removed")
    assert (first.name, first.price) == ("clip", 0.25)
    assert (last.name, last.price) == ("lower-learning-rate", None)


def test_a_jump_of_the_rate_is_not_answered_by_a_warm_up_first() -> None:
    assert offered("learning-rate-too-high")[0].name == "lower-learning-rate"


def silent(effect: Effect) -> tuple[object, ...]:
    name = "parameters-not-in-optimizer"
    seen = Sign("head.weight is in no optimizer", CERTAIN, f"fact {name.replace('-', '_')}", invariant=True)
    signs = {name: Signature((seen,))}
    suspects = [Suspect(one, cause, signs.get(one, Signature())) for one, cause in CAUSES.items()]
    verdict = Verdict("optimize-all", effect, {"final_excess": -2.0, "control_final_excess": -0.5}, "the loss falls")
    control = Control(True, True, True, "no progress")
    answer = conclude(suspects, [verdict], Circumstances("no-learning", control, True, (), "run/x"))
    top = answer.diagnoses[0]
    return answer, top, next(one for one in top.evidence if one.trial not in (SIGNATURE, "unchanged"))


def test_what_could_not_be_run_is_not_said_to_have_failed() -> None:
    _, top, evidence = silent("not-run")
    assert "could be tried (optimize-all: the loss falls)" in top.why  # type: ignore[attr-defined]
    assert evidence.verdict == "not-run"  # type: ignore[attr-defined]


def test_what_was_not_tried_says_so() -> None:
    answer, *_ = silent("not-run")
    rows = diagnosis_shown.part(answer).causes[0].remedies  # type: ignore[arg-type]
    assert [row.tried for row in rows] == ["could not be tried: the loss falls", "by hand"]
    assert not any(row.works for row in rows)


def test_a_rate_that_was_seen_to_work_is_offered_before_one_that_was_not() -> None:
    tried: dict[str, Effect] = {
        "learning_rate_third": "delayed",
        "learning_rate_tenth": "removed",
        "constant_learning_rate": "removed",
    }
    names = [one.name for one in offered("learning-rate-too-high", **tried)]
    assert names[:2] == ["hold-learning-rate", "tenth-learning-rate"]
    assert names[-1] == "lower-learning-rate"
    assert "hold-learning-rate" not in [one.name for one in offered("learning-rate-too-high")]


def test_the_fix_of_a_schedule_is_that_of_what_was_seen() -> None:
    early = Sign("stepped before", CERTAIN, "fact scheduler_before_optimizer")
    twice = Sign("stepped twice", CERTAIN, "fact scheduler_steps_per_step")
    assert fixes_for("scheduler-misstep", early) == ["scheduler-after-optimizer", "hold-learning-rate"]
    assert fixes_for("scheduler-misstep", twice) == ["hold-learning-rate"]
    assert not any("is named" in one.code for one in offered("scheduler-misstep"))  # no step is named there
