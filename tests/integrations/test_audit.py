"""Checkpoints that the Hugging Face Trainer, Accelerate and Lightning wrote: as the run had it, and with faults."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steadytrain
from steadytrain.cli.main import commands
from steadytrain.storage.run_folder import open_run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the frameworks warn of one another

WORDS, LENGTH = 32, 8
STEPS = 4


def audited(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Status and document of ``steadytrain audit``."""
    capsys.readouterr()
    status = commands.main(["audit", str(path), *options, "--json"], prog_name="steadytrain", standalone_mode=False)
    return status, json.loads(capsys.readouterr().out)


def differences(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(entry["kind"], entry["part"], entry["name"]) for entry in document["differences"]}


@pytest.fixture(scope="module", autouse=True)
def _every_save_has_its_card() -> Any:
    """Cards are rationed by time, and these trainings take no longer than a card."""
    patch = pytest.MonkeyPatch()
    patch.setattr("steadytrain.capture.snapshots.loaded_states.CARD_SHARE_MAX", 1e9)
    yield
    patch.undo()


# -- Hugging Face Trainer ----------------------------------------------------------------------------------------------


def hf_trainer(folder: Path, transformers: Any, callbacks: list[Any], **more: Any) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    draw = random.Random(0)
    rows = [{"input_ids": (ids := draw.choices(range(WORDS), k=LENGTH)), "labels": ids} for _ in range(64)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=2,
        learning_rate=0.01,
        save_steps=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **{"max_steps": STEPS, **more},
    )
    model = transformers.GPT2LMHeadModel(config)
    return transformers.Trainer(model, arguments, train_dataset=rows, callbacks=callbacks)


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Trainer's four steps, saved after two and after four, and a resume from there that trains two more."""
    transformers = pytest.importorskip("transformers")
    from steadytrain.integrations.hf_trainer import SteadyTrainCallback

    folder = tmp_path_factory.mktemp("hf")
    first = SteadyTrainCallback(runs_dir=folder, name="run")
    hf_trainer(folder, transformers, [first]).train()
    resumed = SteadyTrainCallback(runs_dir=folder, name="resumed")
    trainer = hf_trainer(folder, transformers, [resumed], max_steps=STEPS + 2)
    with steadytrain.watch(trainer.model, runs_dir=folder, name="resumed"):  # before the Trainer loads, as `run` does
        trainer.train(resume_from_checkpoint=str(folder / "out" / f"checkpoint-{STEPS}"))
    return folder


@pytest.mark.parametrize(("run", "step"), [("run", 2), ("run", 4), ("resumed", 6)])
def test_what_the_trainer_saved_is_what_the_run_had(
    hf: Path, run: str, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = audited(hf / "out" / f"checkpoint-{step}", capsys, "--run", str(hf / run))
    assert (status, differences(document)) == (0, set()), document["differences"][:4]
    parts = {part["part"]: part for part in document["parts"]}
    assert parts["moments"]["agree"] == 32
    assert parts["counters"]["agree"] == 16
    assert parts["random"]["agree"] == 3
    assert parts["position"]["agree"] == 1
    assert parts["scheduler"]["agree"] > 3
    assert parts["weights"]["agree"] == parts["weights"]["expected"]


def test_the_loads_of_a_resume_are_on_record_and_lost_nothing(hf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loads = open_run(hf / "resumed").facts["loads"]
    assert [load["what"] for load in loads].count("optimizer") == 1
    assert all(load["lost"] == [] for load in loads)
    _, document = audited(hf / "out" / "checkpoint-6", capsys, "--run", str(hf / "resumed"))
    assert document["loads"] == loads


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = torch.load(folder / name, weights_only=True)
        change(content)
        torch.save(content, folder / name)

    return spoil


def swap_moments(state: dict[str, Any]) -> None:
    """Of the two layer norms' biases, which stand in the second group."""
    names = [key for key, entries in state["state"].items() if entries["exp_avg"].shape == (8,)]
    one, other = names[:2]
    entries = state["state"]
    entries[one]["exp_avg"], entries[other]["exp_avg"] = entries[other]["exp_avg"], entries[one]["exp_avg"]


def cast(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"].bfloat16()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


HF_FAULTS: dict[str, tuple[Callable[[Path], Any], set[tuple[str, str]]]] = {
    "optimizer missing": (
        lambda folder: (folder / "optimizer.pt").unlink(),
        {("missing", "moments"), ("missing", "counters"), ("missing", "settings")},
    ),
    "scheduler missing": (lambda folder: (folder / "scheduler.pt").unlink(), {("missing", "scheduler")}),
    "moments swapped": (edit("optimizer.pt", swap_moments), {("swapped", "moments")}),
    "betas changed": (
        edit("optimizer.pt", lambda state: state["param_groups"][0].update(betas=(0.9, 0.95))),
        {("changed", "settings")},
    ),
    "stale counters": (
        edit("optimizer.pt", lambda state: [entry["step"].sub_(2) for entry in state["state"].values()]),
        {("stale", "counters"), ("inconsistent", "counters")},
    ),
    "scheduler behind": (edit("scheduler.pt", lambda state: state.update(last_epoch=3)), {("stale", "scheduler")}),
    "bfloat16": (cast, {("cast", "weights")}),
    "weights of step 2": (
        lambda folder: shutil.copy(folder.parent / "earlier" / "model.safetensors", folder),
        {("stale", "weights")},
    ),
}


@pytest.mark.parametrize("fault", HF_FAULTS)
def test_a_fault_in_a_trainers_folder_is_named(
    hf: Path, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, expected = HF_FAULTS[fault]
    shutil.copytree(hf / "out" / "checkpoint-4", tmp_path / "checkpoint-4")
    shutil.copytree(hf / "out" / "checkpoint-2", tmp_path / "earlier")
    spoil(tmp_path / "checkpoint-4")
    status, document = audited(tmp_path / "checkpoint-4", capsys, "--run", str(hf / "run"))
    assert status == 1
    assert {entry[:2] for entry in differences(document)} == expected
    named = [entry for entry in document["differences"] if entry["part"] in ("moments", "weights")]
    assert all("parameter." not in entry["name"] for entry in named)


def test_a_scheduler_behind_is_seen_without_the_run(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(hf / "out" / "checkpoint-4", tmp_path / "checkpoint-4")
    assert audited(tmp_path / "checkpoint-4", capsys)[0] == 0
    HF_FAULTS["scheduler behind"][0](tmp_path / "checkpoint-4")
    status, document = audited(tmp_path / "checkpoint-4", capsys)
    assert (status, differences(document)) == (1, {("stale", "scheduler", "last_epoch")})


# -- Accelerate --------------------------------------------------------------------------------------------------------


def test_a_state_that_accelerate_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True)
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    network, optimizer = accelerator.prepare(network, optimizer)
    with steadytrain.watch(network, optimizer.optimizer, runs_dir=tmp_path, name="run"):
        for _ in range(3):
            optimizer.zero_grad()
            accelerator.backward(network(torch.randn(8, 4)).square().mean())
            optimizer.step()
        accelerator.save_state(str(tmp_path / "state"))
    status, document = audited(tmp_path / "state", capsys, "--run", str(tmp_path / "run"))
    assert (status, differences(document)) == (0, set())
    agree = {part["part"]: part["agree"] for part in document["parts"]}
    assert (agree["weights"], agree["moments"], agree["random"]) == (4, 8, 3)


# -- Lightning ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lightning_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of three steps with a scheduler that steps with the epoch, saved after each."""
    lightning = pytest.importorskip("lightning.pytorch")
    from steadytrain.integrations.lightning import SteadyTrainCallback

    class Task(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.twin, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.head(self.twin(self.body(batch[0]))).square().mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

    class Saves(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(folder / "during.ckpt")

    folder = tmp_path_factory.mktemp("lightning")
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[SteadyTrainCallback(runs_dir=folder, name="run"), Saves()],
        default_root_dir=folder,
    )
    trainer.fit(Task(), DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4))
    trainer.save_checkpoint(folder / "last.ckpt")
    return folder


@pytest.mark.parametrize("name", ["during.ckpt", "last.ckpt"])
def test_what_lightning_saved_does_not_contradict_itself(
    lightning_home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, document = audited(lightning_home / name, capsys)
    assert (status, document["format"], document["step"]) == (0, "lightning", 6), document["differences"]


def test_what_lightning_saved_is_what_the_run_had(lightning_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(lightning_home / "run")
    status, document = audited(lightning_home / "during.ckpt", capsys, "--run", run)
    assert (status, differences(document)) == (0, set()), document["differences"][:4]
    agree = {part["part"]: part["agree"] for part in document["parts"]}
    assert (agree["weights"], agree["moments"], agree["counters"]) == (6, 12, 6)


def swap_twins(content: dict[str, Any]) -> None:
    state = content["optimizer_states"][0]["state"]
    state[0]["exp_avg_sq"], state[2]["exp_avg_sq"] = state[2]["exp_avg_sq"], state[0]["exp_avg_sq"]


LIGHTNING_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], set[tuple[str, str, str]]]] = {
    "moments swapped": (
        swap_twins,
        {("swapped", "moments", "body.weight/exp_avg_sq"), ("swapped", "moments", "twin.weight/exp_avg_sq")},
    ),
    "scheduler one epoch off": (
        lambda content: content["lr_schedulers"][0].update(last_epoch=content["lr_schedulers"][0]["last_epoch"] - 1),
        {("stale", "scheduler", "last_epoch")},
    ),
    "no scheduler": (lambda content: content.update(lr_schedulers=[]), {("missing", "scheduler", "scheduler")}),
    "betas": (
        lambda content: content["optimizer_states"][0]["param_groups"][0].update(betas=(0.8, 0.999)),
        {("changed", "settings", "betas")},
    ),
    "weight gone": (lambda content: content["state_dict"].pop("head.bias"), {("missing", "weights", "head.bias")}),
}


@pytest.mark.parametrize("fault", LIGHTNING_FAULTS)
def test_a_fault_in_a_lightning_checkpoint_is_named(
    lightning_home: Path, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, expected = LIGHTNING_FAULTS[fault]
    content = torch.load(lightning_home / "during.ckpt", weights_only=True)
    spoil(content)
    torch.save(content, tmp_path / "spoiled.ckpt")
    status, document = audited(tmp_path / "spoiled.ckpt", capsys, "--run", str(lightning_home / "run"))
    assert (status, differences(document)) == (1, expected)
