"""Checks of tokens, data, state, precision, schedules and processes: each on a fault, and on what looks alike."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import faulty_models as faulty
import healthy_models as healthy
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from steadytrain.checks.subject.model_check import CannotError, Outcome, Status, not_run
from steadytrain.preflight_runs.check_catalog import chosen
from steadytrain.preflight_runs.in_code import subject_of
from steadytrain.preflight_runs.model_copies import fingerprint


def outcome(check: str, given: Mapping[str, Any], **parts: Any) -> Outcome:
    """What the check says of a model in code; ``parts`` of the subject are what a script would have had besides."""
    subject, bench = subject_of(**given)
    subject = replace(subject, **parts)
    before = fingerprint([subject.model], subject.optimizers, subject.schedulers)
    with bench.copies(seed=0):
        try:
            found = chosen((check,), ())[0].inspect(subject)
        except CannotError as why:
            found = not_run(str(why))
    assert fingerprint([subject.model], subject.optimizers, subject.schedulers) == before
    return found


@dataclass(frozen=True)
class Case:
    check: str
    status: Status
    given: Callable[[], Mapping[str, Any]]
    says: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict)


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


# The data set and its loader.


def loaded(rows: list[Any], *, shuffle: bool) -> dict[str, Any]:
    dataset = faulty.Rows(rows)
    return {"dataset": dataset, "loader": DataLoader(dataset, batch_size=8, shuffle=shuffle)}


def classes(count: int, *, ordered: bool, seed: int = 0) -> list[Any]:
    chance = torch.Generator().manual_seed(seed)
    labels = [place * 2 // count for place in range(count)]
    if not ordered:
        random.Random(0).shuffle(labels)
    return [{"features": torch.randn(12, generator=chance), "label": label} for label in labels]


def with_nan() -> list[Any]:
    rows = classes(300, ordered=False)
    rows[70]["features"][3] = float("nan")
    return rows


def test_sorted_rows_matter_where_the_loader_does_not_shuffle() -> None:
    family = healthy.tabular()
    assert outcome("loader-data", family, **loaded(classes(300, ordered=True), shuffle=True)).status == "pass"
    assert outcome("loader-data", family, **loaded(classes(300, ordered=False), shuffle=False)).status == "pass"
    found = outcome("loader-data", family, **loaded(classes(300, ordered=True), shuffle=False))
    assert found.status == "fail"
    assert "order of label" in found.message
    assert "does not shuffle" in found.message


def test_a_number_that_is_not_finite_is_found_before_its_batch_comes() -> None:
    found = outcome("loader-data", healthy.tabular(), **loaded(with_nan(), shuffle=True))
    assert found.status == "fail"
    assert "NaN or infinite" in found.message


def test_the_same_batch_again_and_again_is_a_fault_where_there_is_more_data() -> None:
    family = healthy.tabular()
    same = {**family, "batches": [family["batches"][0]] * 4}
    assert outcome("loader-data", same).status == "pass"  # all the data there is, for what is known
    assert outcome("loader-data", same, **loaded(classes(32, ordered=False), shuffle=True)).status == "pass"
    found = outcome("loader-data", same, **loaded(classes(300, ordered=False), shuffle=True))
    assert found.status == "fail"
    assert "96 of 128 rows" in found.message


def test_repeated_ngrams_of_the_data_are_told() -> None:
    rows = [{"input_ids": torch.randint(0, 50, (64,))} for _ in range(50)]
    rows += [{"input_ids": torch.tensor([7, 8] * 40)} for _ in range(10)]
    found = outcome("loader-data", healthy.small_gpt(), **loaded(rows, shuffle=True))
    assert found.status == "fail"
    assert "10 of 60 rows repeat" in found.message


def test_a_row_that_is_far_longer_than_the_first_is_found_in_the_data() -> None:
    family = healthy.small_gpt()
    assert outcome("sequence-length", family, dataset=faulty.token_rows([20, 60, 40] * 50)).status == "pass"
    found = outcome("sequence-length", family, dataset=faulty.token_rows([20] * 300 + [900]))
    assert found.status == "warn"
    assert "900 tokens" in found.message
    found = outcome("sequence-length", healthy.hf_gpt2(), dataset=faulty.token_rows([20] * 300 + [70]))
    assert "a row has 70 tokens, and the model 64 positions" in found.message


def test_processes_that_all_read_everything_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    rows = classes(300, ordered=False)
    found = outcome("loader-data", healthy.tabular(), **loaded(rows, shuffle=True))
    assert found.status == "warn"
    assert "4 processes" in found.message
    dataset = faulty.Rows(rows)
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=4, rank=0)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    assert outcome("loader-data", healthy.tabular(), dataset=dataset, loader=loader).status == "pass"


# Workers.


class Drawing:
    """Rows with noise from a generator of its own, or from the global one of torch."""

    def __init__(self, generator: Any) -> None:
        self.settings = {"augmentation": [generator]}

    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> Any:
        generator = self.settings["augmentation"][0]
        if isinstance(generator, np.random.Generator):
            return torch.full((12,), float(place)) + generator.normal()
        if isinstance(generator, random.Random):
            return torch.full((12,), float(place)) + generator.gauss(0.0, 1.0)
        return torch.full((12,), float(place)) + torch.randn(())


def workers(generator: Any, *, count: int = 2, init: Any = None) -> Outcome:
    dataset = Drawing(generator)
    loader = DataLoader(dataset, batch_size=4, num_workers=count, worker_init_fn=init)  # type: ignore[arg-type]
    found = outcome("worker-randomness", healthy.tabular(), dataset=dataset, loader=loader)
    if isinstance(generator, np.random.Generator):
        assert generator.bit_generator.state == np.random.default_rng(5).bit_generator.state, "it was drawn from"
    return found


def seeds_all_alike(worker: int) -> None:
    np.random.seed(0)
    random.seed(0)


def seeds_by_number(worker: int) -> None:
    np.random.seed(worker)


def test_workers_that_draw_the_same_numbers() -> None:
    assert workers(None).status == "pass"
    assert workers(None, init=seeds_by_number).status == "pass"
    assert workers(np.random.default_rng(5), count=0).status == "not-run"
    found = workers(np.random.default_rng(5))
    assert found.status == "fail"
    assert "dataset.settings['augmentation'][0]" in found.message
    assert workers(random.Random(5)).status == "fail"
    assert workers(np.random.default_rng(5), count=1).status == "warn"
    found = workers(None, init=seeds_all_alike)
    assert found.status == "fail"
    assert "NumPy, Python" in found.message


def test_what_is_said_is_what_workers_draw() -> None:
    def rows(generator: Any) -> tuple[float, float]:
        loader = DataLoader(Drawing(generator), batch_size=1, num_workers=2)  # type: ignore[arg-type]
        first, second = [batch[0, 0].item() for _, batch in zip(range(2), loader, strict=False)]
        return first, second - 1.0

    first, second = rows(np.random.default_rng(5))
    assert first == second
    first, second = rows(None)
    assert first != second


# Tokenizers.


def words(*, lossy: bool = False, extra: int = 0) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(33, 127)] if not lossy else list("etaoin")
    vocabulary = {
        name: place for place, name in enumerate(["<unk>", "</s>", *letters, *map(str, range(10, 10 + extra))])
    }
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast.add_special_tokens(["<unk>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="<unk>", eos_token="</s>")


def of_words(rows: int = 128) -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=rows, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    ids = [torch.randint(2, 90, (4, 16), generator=torch.Generator().manual_seed(n)) for n in range(2)]
    batches = [{"input_ids": one, "labels": one} for one in ids]
    return healthy.given(transformers.GPT2LMHeadModel(config), batches)


def test_a_tokenizer_that_fits_and_ones_that_do_not() -> None:
    assert outcome("tokenizer-match", {**of_words(), "tokenizer": words()}).status == "pass"
    found = outcome("tokenizer-match", {**of_words(), "tokenizer": words(lossy=True)})
    assert found.status == "fail"
    assert "without some of their letters" in found.message
    found = outcome("tokenizer-match", {**of_words(), "tokenizer": words(extra=100)})
    assert found.status == "fail"
    assert "the embedding 128 rows" in found.message
    family = of_words()
    family["model"].config.eos_token_id = 77
    found = outcome("tokenizer-match", {**family, "tokenizer": words()})
    assert found.status == "warn"
    assert "ends with token 1" in found.message


def test_the_tokenizer_stored_with_the_weights_is_compared(tmp_path: Any) -> None:
    words().save_pretrained(tmp_path)
    family = of_words()
    family["model"].config._name_or_path = str(tmp_path)
    found = outcome("tokenizer-match", {**family, "tokenizer": words()})
    assert found.status == "pass"
    assert "the same as in" in found.message
    found = outcome("tokenizer-match", {**family, "tokenizer": words(extra=2)})
    assert found.status == "fail"
    assert "vocabulary" in found.message


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
