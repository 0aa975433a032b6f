"""The Hugging Face Trainer: with our callback, and knowing nothing of us."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parameters import long, telling
from scripts import Started, recorded, watched, write
from steadytrain import RunStopped, attach
from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.testing import Probe, assert_contract, assert_fault_is_caught, by_itself, zero_code

transformers = pytest.importorskip("transformers")
from steadytrain.integrations.hf_trainer import FILTER_NOTE, SteadyTrainCallback  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the frameworks warn of one another

STEPS = 4
WORDS, LENGTH = 32, 8
SECRET = "hf_" + "a1b2c3d4" * 4


def gpt() -> Any:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def rows(count: int) -> list[dict[str, list[int]]]:
    draw = random.Random(0)
    return [{"input_ids": (ids := draw.choices(range(WORDS), k=LENGTH)), "labels": ids} for _ in range(count)]


def arguments(folder: Path, **more: Any) -> Any:
    settings: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_steps": STEPS,
        "per_device_train_batch_size": 2,
        "learning_rate": 0.01,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return transformers.TrainingArguments(**{**settings, **more})


class Spoiled(transformers.Trainer):  # type: ignore[misc, name-defined]
    """A Trainer whose loss is NaN in one step, as the probe says."""

    probe: Probe

    def compute_loss(self, *inputs: Any, **more: Any) -> Any:
        loss = super().compute_loss(*inputs, **more)
        bad = self.state.global_step + 1 == self.probe.nan_at and self.model.training
        return loss * float("nan") if bad else loss


@dataclass(frozen=True)
class Training:
    settings: Mapping[str, Any]
    callback: bool = True
    adapter: bool = False

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = with_adapter(gpt()) if self.adapter else gpt()
        callbacks = [SteadyTrainCallback(**probe.options)] if self.callback and probe.watched else []
        evaluated = rows(4) if self.settings.get("eval_strategy") else None
        trainer = Spoiled(
            model,
            arguments(probe.folder, **self.settings),
            train_dataset=rows(4 * STEPS),
            eval_dataset=evaluated,
            callbacks=callbacks,
        )
        trainer.probe = probe
        trainer.train()
        seen = [
            {name: log.get(name) for name in ("loss", "grad_norm", "eval_loss")} for log in trainer.state.log_history
        ]
        return seen, trainer.state.global_step, model


def with_adapter(model: nn.Module) -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM"))


PLAIN = {"gradient_accumulation_steps": 2}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2}
CHECKPOINTED = {"gradient_checkpointing": True, "bf16": True}
WEIGHT = "transformer.h.0.mlp.c_fc.weight"
ADAPTER = "base_model.model.transformer.h.0.attn.c_attn.lora_A.default.weight"


@pytest.mark.parametrize("settings", [long(PLAIN), EVALUATED, CHECKPOINTED], ids=["accumulation", "evaluation", "bf16"])
def test_with_the_callback(settings: Mapping[str, Any]) -> None:
    recorded = assert_contract(Training(settings), step=3, parameter=WEIGHT, attach=by_itself)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))
    (fit,) = recorded.facts["trainers"]
    assert fit["global_step_minus_step"] == 0
    assert fit["settings"]["max_steps"] == STEPS
    assert fit["notes"] == [FILTER_NOTE]
    evaluated = [evaluation["global_step"] for evaluation in fit.get("evaluations", [])]
    assert evaluated == ([2, 4] if settings is EVALUATED else [])


def test_knowing_nothing_of_us() -> None:
    recorded = assert_contract(Training(PLAIN, callback=False), step=3, parameter=WEIGHT)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))


def test_a_borrowed_watch() -> None:
    recorded = assert_contract(Training(PLAIN), step=3, parameter=WEIGHT)
    (fit,) = recorded.facts["trainers"]
    assert fit["stream"] == "main"


@pytest.mark.parametrize("callback", telling([True, False], ["False"]))
def test_an_adapter(callback: bool) -> None:
    train = Training(PLAIN, callback=callback, adapter=True)
    recorded = assert_contract(train, step=3, parameter=ADAPTER, attach=by_itself if callback else zero_code)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))


@pytest.mark.parametrize("hidden", telling([True, False], ["True"]))
def test_a_loss_that_the_trainers_log_hides_is_seen(hidden: bool) -> None:
    assert_fault_is_caught(Training({"logging_nan_inf_filter": hidden}), step=3, attach=by_itself)


class WeighsByLogarithm(transformers.Trainer):  # type: ignore[misc, name-defined]
    """The fault lies in loss code of the user's own, after the model: in step 3 a weight is zero."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        labels = inputs.pop("labels")
        logits = model(**inputs).logits
        weight = labels.sum() * (self.state.global_step != 2)
        return logits.pow(2).mean() * torch.log(weight)


def test_loss_code_is_run_again_though_its_function_has_returned(tmp_path: Path) -> None:
    ours = SteadyTrainCallback(runs_dir=tmp_path, name="run")
    trainer = WeighsByLogarithm(gpt(), arguments(tmp_path), train_dataset=rows(20), callbacks=[ours])
    with pytest.raises(RunStopped):
        trainer.train()
    (path,) = open_run(tmp_path / "run").incidents
    located = open_bundle(path).incident.finding.located
    assert located is not None
    assert (located.operation, located.phase) == ("aten.log.default", "loss")
    assert "torch.log(weight)" in (located.code or "")


class BrokenError(Exception):
    """An error of the training's own."""


class FailsAt(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise BrokenError


def test_a_training_that_fails_and_one_that_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The watch ends with the training, by whatever it ends; a resume knows where the Trainer's count goes on."""
    settings = arguments(tmp_path, save_strategy="steps", save_steps=2)
    ours = SteadyTrainCallback(runs_dir=tmp_path, name="failed")
    trainer = transformers.Trainer(gpt(), settings, train_dataset=rows(20), callbacks=[ours, FailsAt(3)])
    with pytest.raises(BrokenError):
        trainer.train()
    assert ours.watch is None
    assert attach.attached() is None
    assert open_run(tmp_path / "failed").ended == "failed"

    ours = SteadyTrainCallback(runs_dir=tmp_path, name="resumed", policy="observe")
    trainer = transformers.Trainer(gpt(), settings, train_dataset=rows(20), callbacks=[ours])
    trainer.train(resume_from_checkpoint=True)
    run = open_run(tmp_path / "resumed")
    (fit,) = run.facts["trainers"]
    assert (fit["global_step_at_begin"], fit["stream"], fit["global_step_minus_step"]) == (2, "main", 2)
    assert run.scalars().steps.tolist() == [1, 2]


def test_a_second_training_by_the_same_callback(tmp_path: Path) -> None:
    ours = SteadyTrainCallback(runs_dir=tmp_path, level="light")
    settings = arguments(tmp_path, hub_token=SECRET)
    trainer = transformers.Trainer(gpt(), settings, train_dataset=rows(20), callbacks=[ours])
    folders = []
    trainer.add_callback(Tells(lambda: folders.append(ours.watch.run_dir if ours.watch else None)))
    trainer.train()
    trainer.train()
    first, second = (open_run(folder) for folder in folders)
    assert first.path != second.path
    assert [run.facts["trainers"][-1]["global_step_minus_step"] for run in (first, second)] == [0, 0]
    assert SECRET not in str(second.facts)


class Tells(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    def __init__(self, tell: Any) -> None:
        self.tell = tell

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.tell()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"policy": "halt"}, "'halt': no such policy; one of observe, stop, skip, steady"),
        ({"level": "lots"}, "'lots': no such level; one of light, standard, full"),
        ({"to": ("paper",)}, "'paper': no exporter has that name"),
    ],
    ids=str,
)
def test_a_wrong_option_is_told_before_the_training(option: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SteadyTrainCallback(**option)


SCRIPT = """
import sys
import torch
import transformers

torch.set_num_threads(1)
torch.manual_seed(0)
config = transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2)
model = transformers.GPT2LMHeadModel(config)
nan_at = int(sys.argv[1])


class Trainer(transformers.Trainer):
    def compute_loss(self, *inputs, **more):
        loss = super().compute_loss(*inputs, **more)
        return loss * float("nan") if self.state.global_step + 1 == nan_at else loss


rows = [{"input_ids": [(row + at) % 32 for at in range(8)], "labels": [1] * 8} for row in range(16)]
arguments = transformers.TrainingArguments(
    output_dir="out", max_steps=4, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True,
    save_strategy="no", logging_steps=1,
)
trainer = Trainer(model, arguments, train_dataset=rows)
try:
    trainer.train()
finally:
    finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    print("finite" if finite else "spoiled", trainer.state.global_step)
"""


@pytest.mark.parametrize(
    ("nan_at", "status", "printed"),
    [pytest.param(0, 0, "finite 4", marks=pytest.mark.long, id="healthy"), pytest.param(3, 70, "finite 2", id="NaN")],
)
def test_a_script_under_steadytrain_run(nan_at: int, status: int, printed: str, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT)
    ended = Started(watched("script.py", str(nan_at)), tmp_path, environment={"PYTHONWARNINGS": "ignore"}).end()
    assert (ended.status, ended.out.splitlines()[-1]) == (status, printed), ended.err
    assert not ended.warnings
    run = recorded(tmp_path)
    if nan_at:
        (path,) = run.incidents
        assert open_bundle(path).incident.step == nan_at
    else:
        assert run.scalars().steps.tolist() == [1, 2, 3, 4]


def test_a_checkpoint_of_a_touched_run_holds_the_ledger(tmp_path: Path) -> None:
    model, calls = gpt(), iter([1.0, float("nan")])
    model.transformer.wte.register_forward_hook(lambda module, inputs, output: output * next(calls, 1.0))
    trainer = transformers.Trainer(
        model=model,
        args=arguments(tmp_path, save_strategy="steps", save_steps=STEPS),
        train_dataset=rows(2 * STEPS),
        callbacks=[SteadyTrainCallback(policy="skip", name="touched", runs_dir=str(tmp_path), to=("none",))],
    )
    trainer.train()
    state = json.loads((tmp_path / "out" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text(encoding="utf-8"))
    held = state["stateful_callbacks"]["SteadyTrainCallback"]
    assert [(action["step"], action["what"]) for action in held["attributes"]["ledger"]] == [(2, "skipped-update")]
    assert held["args"] == {"policy": "skip", "name": "touched", "runs_dir": str(tmp_path)}
