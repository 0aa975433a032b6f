"""Checks of tokens, precision, schedules and processes: each on a fault, and on what looks alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import faulty_models as faulty
import healthy_models as healthy
import pytest
import torch
from check_outcomes import outcome
from torch import nn
from torch.optim import lr_scheduler

from steadytrain.checks.subject.model_check import CannotError, Outcome, Status
from steadytrain.preflight_runs.check_catalog import chosen
from steadytrain.preflight_runs.in_code import subject_of


@dataclass(frozen=True)
class Case:
    check: str
    status: Status
    given: Callable[[], Mapping[str, Any]]
    says: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict)


def needs_labels() -> Mapping[str, Any]:
    """The forward that TRL puts in place counts the tokens of the labels."""
    given = dict(healthy.FAMILIES["hf_gpt2"]())
    model = given["model"]
    plain = model.forward

    def forward(*args: Any, labels: Any = None, **kwargs: Any) -> Any:
        assert labels[:, 1:].numel()
        return plain(*args, labels=labels, **kwargs)

    model.forward = forward
    return given


CASES = [
    # Healthy look-alikes first.
    *(Case("token-audit", "pass", healthy.FAMILIES[name]) for name in ("small_gpt", "hf_gpt2", "hf_llama", "hf_t5")),
    Case("token-audit", "pass", healthy.FAMILIES["lora"]),
    Case("token-audit", "not-run", healthy.tabular, "no embedding"),
    *(Case("resume-equivalence", "pass", healthy.FAMILIES[name]) for name in ("tabular", "residual_net", "hf_llama")),
    Case("resume-equivalence", "pass", lambda: faulty.forgetful(kept=True)),
    *(Case("precision-audit", "pass", healthy.FAMILIES[name]) for name in ("regression", "hf_gpt2", "hf_t5", "lora")),
    Case("precision-audit", "pass", lambda: faulty.positions(torch.float32)),
    *(Case("data-parallel-equivalence", "pass", healthy.FAMILIES[name]) for name in ("residual_net", "hf_llama")),
    *(Case("warm-up", "pass", healthy.FAMILIES[name]) for name in ("vision_transformer", "small_gpt", "hf_t5")),
    *(Case("sequence-length", "pass", healthy.FAMILIES[name]) for name in ("small_gpt", "hf_gpt2", "hf_t5")),
    Case("sequence-length", "not-run", healthy.regression, "learns no tokens"),
    Case("loader-data", "pass", healthy.hf_gpt2),
    Case("padding-invariance", "not-run", needs_labels, "without its labels: TypeError"),
    Case("device-copy", "not-run", healthy.tabular, "no GPU"),
    Case("clipping-order", "not-run", healthy.tabular, "preflight SCRIPT"),
    Case("scheduler-audit", "not-run", healthy.tabular, "no learning-rate scheduler"),
    Case("worker-randomness", "not-run", healthy.tabular, "no data loader"),
    Case("tokenizer-match", "not-run", healthy.hf_gpt2, "no tokenizer"),
    # And what must be seen.
    Case("token-audit", "fail", lambda: faulty.without_labels(2), "8 of 32 rows have no label"),
    Case("token-audit", "fail", faulty.padding_counts, "are padding"),
    Case("token-audit", "fail", faulty.end_is_masked, "no end of a sequence counts"),
    Case("token-audit", "fail", lambda: faulty.begins_twice(healthy.hf_gpt2()), "two beginning-of-sequence"),
    Case("token-audit", "fail", faulty.all_masked, "an attention mask of zeros"),
    Case("resume-equivalence", "fail", faulty.forgetful, "the model is not as it was saved"),
    Case("resume-equivalence", "fail", faulty.hidden_momentum, "the optimizer is not as it was saved"),
    Case("precision-audit", "fail", lambda: faulty.in_half(torch.bfloat16, rate=1e-5), "of the updates"),
    Case("precision-audit", "fail", lambda: faulty.in_half(torch.float16, rate=1e-2), "epsilon 1e-08 is 0"),
    Case("precision-audit", "fail", lambda: faulty.positions(torch.bfloat16), "no longer all different"),
    Case("precision-audit", "warn", faulty.half_loss, "cross_entropy is computed in half precision"),
    Case("data-parallel-equivalence", "warn", faulty.summed, "0.5 times that of one"),
    Case("data-parallel-equivalence", "warn", faulty.contrastive, "act on the loss of others"),
    Case("data-parallel-equivalence", "fail", faulty.writes_itself, "different weights"),
    Case("warm-up", "fail", lambda: faulty.with_rate(healthy.small_gpt(), 30.0)),
]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft reads it
@pytest.mark.parametrize("case", CASES, ids=[f"{case.check}-{case.status}-{n}" for n, case in enumerate(CASES)])
def test_what_a_check_says(case: Case) -> None:
    found = outcome(case.check, case.given(), **case.parts)
    assert (found.status, found.message) == (case.status, found.message)
    assert case.says in found.message


# Schedules: what was seen of them in the script's first steps.


def scheduled(
    make: Callable[[Any], Any], *, steps: int, calls: int, accumulation: int = 1, planned: int | None = None
) -> Outcome:
    """``steps`` optimizer steps were done, with ``calls`` of the schedule behind each; one more has begun."""
    family = healthy.tabular()
    optimizer = family["optimizer"]
    scheduler = make(optimizer)
    seen = []
    for step in range(1, steps + 2):
        seen.append({"step": step, "learning_rate": scheduler.get_last_lr()[0], "loss": 1.0})
        if step <= steps:
            optimizer.step()
            for _ in range(calls):
                scheduler.step()
    parts = {"observed": {"steps": seen}, "accumulation": accumulation, "planned_steps": planned}
    return outcome("scheduler-audit", {**family, "scheduler": scheduler}, **parts)


def cosine(length: int) -> Callable[[Any], Any]:
    return lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, length)


def warmed_up(length: int) -> Callable[[Any], Any]:
    """As ``transformers`` makes them: a partial function with the length among its arguments."""

    def rate(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
        return min(step / num_warmup_steps, 1.0) * (1.0 - step / num_training_steps)

    told = functools.partial(rate, num_warmup_steps=10, num_training_steps=length)
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, told)


@pytest.mark.parametrize(
    ("make", "given", "status", "says"),
    [
        (cosine(100), {"steps": 3, "calls": 1, "planned": 100}, "pass", "100 of 100"),
        (cosine(100), {"steps": 3, "calls": 0, "planned": 1000}, "pass", "not stepped yet"),
        (warmed_up(100), {"steps": 3, "calls": 1, "planned": 100}, "pass", "100 of 100"),
        (cosine(100), {"steps": 3, "calls": 4, "accumulation": 4, "planned": 100}, "fail", "12 steps in 3"),
        (cosine(100), {"steps": 3, "calls": 1, "planned": 1000}, "warn", "is over, or begins again"),
        (warmed_up(1000), {"steps": 3, "calls": 1, "planned": 100}, "warn", "never comes to its end"),
        (cosine(100), {"steps": 0, "calls": 1}, "not-run", "too few steps"),
    ],
)
def test_the_schedule_against_the_steps(make: Any, given: dict[str, Any], status: str, says: str) -> None:
    found = scheduled(make, **given)
    assert (found.status, found.message) == (status, found.message)
    assert says in found.message


def test_a_schedule_that_accelerate_steps_once_a_process_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate")
    family = healthy.tabular()
    scheduler = cosine(100)(family["optimizer"])
    wrapped = accelerate.scheduler.AcceleratedScheduler(scheduler, family["optimizer"], split_batches=False)
    variables = {"schedule": wrapped}
    parts = {"observed": {"steps": [], "variables": variables}, "planned_steps": 100}
    monkeypatch.setattr(accelerate.state.AcceleratorState, "__init__", lambda self: None)
    monkeypatch.setattr(accelerate.state.AcceleratorState, "num_processes", 8, raising=False)
    found = outcome("scheduler-audit", {**family, "scheduler": scheduler}, **parts)
    assert found.status == "fail"
    assert "8 times for each optimizer step: its 100 steps are over after 12 of 100" in found.message


# Clipping: what was seen of it.


def clipped(**seen: Any) -> Outcome:
    step = {"step": 1, "learning_rate": 1e-3, "loss": 1.0, "micro_batches": 1, "gradient_norm": 3.0, "clips": 1}
    return outcome("clipping-order", healthy.tabular(), observed={"steps": [{**step, **seen}]})


@pytest.mark.parametrize(
    ("seen", "status", "says"),
    [
        ({"clip_limit": 1.0, "clip_total": 3.0, "applied_norm": 1.0}, "pass", "within the limit of 1"),
        ({"clip_limit": 1.0, "clip_total": 0.02, "applied_norm": 0.02}, "pass", "within"),
        ({"clips": 0, "clip_limit": None, "clip_total": None, "applied_norm": 3.0}, "not-run", "does not call"),
        ({"clip_limit": 1.0, "clip_total": None, "applied_norm": 3.0}, "fail", "no gradients"),
        ({"clip_limit": 1.0, "clip_total": 0.4, "applied_norm": 3.0}, "fail", "though the limit is 1"),
        ({"clip_limit": 1.0, "clip_total": 70000.0, "applied_norm": 1.5e-5}, "fail", "with the scale on them"),
        ({"clips": 2, "clip_limit": 1.0, "clip_total": 1.0, "applied_norm": 1.0}, "warn", "several times"),
    ],
)
def test_what_clipping_left_against_what_is_applied(seen: dict[str, Any], status: str, says: str) -> None:
    found = clipped(**seen)
    assert (found.status, found.message) == (status, found.message)
    assert says in found.message


# Several processes.


def test_what_warns_in_one_process_fails_in_a_run_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert outcome("data-parallel-equivalence", faulty.summed()).status == "fail"
    assert outcome("data-parallel-equivalence", healthy.hf_gpt2()).status == "fail"
    assert outcome("data-parallel-equivalence", healthy.small_gpt()).status == "pass"


def test_processes_that_fail_or_hang_are_ended() -> None:
    import os

    family, parent = healthy.tabular(), os.getpid()

    def fails(model: nn.Module, batch: Any) -> torch.Tensor:
        if os.getpid() != parent:
            raise RuntimeError("only here")
        return healthy.of_classes(model, batch)

    found = outcome("data-parallel-equivalence", {**family, "loss_fn": fails})
    assert found.status == "not-run"
    assert "only here" in found.message

    def hangs(model: nn.Module, batch: Any) -> torch.Tensor:
        import time

        if os.getpid() != parent:
            time.sleep(600)
        return healthy.of_classes(model, batch)

    subject, bench = subject_of(**{**family, "loss_fn": hangs})
    check = chosen(("data-parallel-equivalence",), ())[0]
    with bench.copies(seed=0), pytest.raises(CannotError, match="did not come to an end in time"):
        check.inspect(replace(subject, time_left=lambda: 1.0))


# What takes minutes.


def thorough(check: str, given: Mapping[str, Any], seconds: float = 60.0) -> Outcome:
    subject, bench = subject_of(**given)
    with bench.copies(seed=0):
        return chosen((check,), ())[0].inspect(replace(subject, thorough=True, time_left=lambda: seconds))


@pytest.mark.long
@pytest.mark.slow
def test_a_rate_that_is_too_high_and_one_with_room() -> None:
    assert thorough("learning-rate-range", healthy.small_gpt()).status == "pass"
    found = thorough("learning-rate-range", faulty.with_rate(healthy.small_gpt(), 3.0))
    assert found.status == "fail"
    assert "planned is 3" in found.message


@pytest.mark.long
@pytest.mark.slow
def test_seeds_that_fail_and_seeds_that_agree() -> None:
    assert thorough("seed-variance", healthy.tabular()).status == "pass"
    found = thorough("seed-variance", faulty.of_unstable_seeds())
    assert found.status == "fail"
    assert "of 3 seeds fail" in found.message


@pytest.mark.long
@pytest.mark.slow
def test_code_that_is_compiled_otherwise() -> None:
    assert thorough("backend-equivalence", healthy.regression()).status == "pass"
    found = thorough("backend-equivalence", faulty.otherwise_compiled())
    assert found.status == "fail"
    assert "compiled by aot_eager by 0.01" in found.message


@pytest.mark.slow
def test_attention_that_is_computed_otherwise() -> None:
    found = thorough("backend-equivalence", faulty.otherwise_attended())
    assert found.status == "fail"
    assert "attention by math by" in found.message


@pytest.mark.gpu
def test_copies_to_a_gpu_come_back() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    assert outcome("device-copy", healthy.tabular()).status == "pass"


@pytest.mark.parametrize("name", ["resume-equivalence", "warm-up"])
def test_what_a_part_of_would_tell_nothing_is_given_up_in_time(name: str) -> None:
    subject, bench = subject_of(**healthy.small_gpt())
    check = chosen((name,), ())[0]
    with bench.copies(seed=0), pytest.raises(CannotError, match="its time was over after 1 steps"):
        check.inspect(replace(subject, time_left=lambda: -1.0))
