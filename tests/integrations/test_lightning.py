"""Lightning's Trainer, automatic and manual optimization: with our callback, and knowing nothing of us."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from steadytrain import RunStopped, attach
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.testing import Probe, assert_contract, assert_fault_is_caught, by_itself

lightning = pytest.importorskip("lightning.pytorch")
from steadytrain.integrations.lightning import SteadyTrainCallback  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Lightning warns of few workers, of loggers, ...

STEPS = 4


class Task(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """Two parts, called one after the other by ``training_step``, which the trainer calls."""

    def __init__(self, probe: Probe | None = None) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.1))
        self.head = nn.Linear(8, 1)
        self.probe = probe
        self.losses: list[Tensor] = []

    def training_step(self, batch: Any, number: int) -> Tensor:
        (inputs,) = batch
        if self.probe is not None:
            inputs = self.probe.planted(number + 1, inputs.clone())
        loss = self.head(self.encoder(inputs)).pow(2).mean()
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("validation_loss", self.head(self.encoder(batch[0])).pow(2).mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Adversaries(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """Manual optimization of two networks by two optimizers."""

    def __init__(self, probe: Probe | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.forger, self.critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.losses: list[Tensor] = []

    def training_step(self, batch: Any, number: int) -> None:
        (real,) = batch
        forges, judges = self.optimizers()
        forged = self.forger(torch.randn_like(real))
        judges.zero_grad()
        loss = functional.softplus(-self.critic(real)).mean() + functional.softplus(self.critic(forged.detach())).mean()
        self.manual_backward(loss)
        judges.step()
        self.losses.append(loss.detach())
        forges.zero_grad()
        loss = functional.softplus(-self.critic(forged)).mean()
        self.manual_backward(loss)
        forges.step()
        self.losses.append(loss.detach())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.forger.parameters(), lr=0.01), torch.optim.Adam(self.critic.parameters(), lr=0.01)


def batches(count: int = STEPS) -> DataLoader[Any]:
    values = torch.randn(3 * count, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(values), batch_size=3)


def trainer(folder: Path, *callbacks: Any, **more: Any) -> Any:
    settings: dict[str, Any] = {
        "max_epochs": 1,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "num_sanity_val_steps": 0,
    }
    return lightning.Trainer(callbacks=[*callbacks], **{**settings, **more})


@dataclass(frozen=True)
class Training:
    task: Any
    callback: bool = True
    accumulate: int = 1
    clip: float | None = None
    precision: str = "32-true"

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        task = self.task(probe)
        callbacks = [SteadyTrainCallback(**probe.options)] if self.callback and probe.watched else []
        fit = trainer(
            probe.folder,
            *callbacks,
            accumulate_grad_batches=self.accumulate,
            gradient_clip_val=self.clip,
            precision=self.precision,
        )
        fit.fit(task, batches(STEPS * self.accumulate))
        return task.losses, fit.global_step, task.state_dict()


def test_automatic_optimization() -> None:
    train = Training(Task, accumulate=2, clip=0.5)
    recorded = assert_contract(train, step=3, parameter="encoder.0.weight", attach=by_itself)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))
    (fit,) = recorded.facts["trainers"]
    assert (fit["stream"], fit["global_step_minus_step"]) == ("main", 0)
    assert fit["settings"]["accumulate_grad_batches"] == 2
    assert fit["settings"]["automatic_optimization"] is True


def test_knowing_nothing_of_us() -> None:
    recorded = assert_contract(Training(Task, callback=False), step=3, parameter="encoder.0.weight")
    assert recorded.streams["main"].signals["samples"].tolist() == [3.0] * STEPS


def test_a_bad_batch_in_bf16() -> None:
    assert_fault_is_caught(Training(Task, precision="bf16-mixed"), step=3, attach=by_itself)


def test_manual_optimization_by_two_optimizers() -> None:
    recorded = assert_contract(Training(Adversaries), step=2, parameter="critic.0.weight", attach=by_itself)
    assert {name: window.steps.tolist() for name, window in recorded.streams.items()} == {
        "main": list(range(1, STEPS + 1)),
        "optimizer-2": list(range(1, STEPS + 1)),
    }


class WeighsByLogarithm(Task):
    """The fault lies in the loss code, after the model: in step 3 a weight is zero."""

    def training_step(self, batch: Any, number: int) -> Tensor:
        (inputs,) = batch
        weights = inputs.abs().sum(-1) * (number != 2)
        loss = (self.head(self.encoder(inputs)).pow(2).mean(-1) * torch.log(weights)).mean()
        self.log("loss", loss)
        return loss


def test_loss_code_is_run_again_though_its_function_has_returned(tmp_path: Path) -> None:
    ours = SteadyTrainCallback(runs_dir=tmp_path, name="run")
    with pytest.raises(RunStopped):
        trainer(tmp_path, ours).fit(WeighsByLogarithm(), batches())
    (path,) = open_run(tmp_path / "run").incidents
    located = open_bundle(path).incident.finding.located
    assert located is not None
    assert (located.operation, located.phase) == ("aten.log.default", "loss")
    assert "torch.log(weights)" in (located.code or "")


class BrokenError(Exception):
    """An error of the training's own."""


class FailsAt(lightning.Callback):  # type: ignore[misc, name-defined]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            raise BrokenError


def test_a_fit_that_fails_and_one_that_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The watch ends with the fit, by whatever it ends; a resume knows where the trainer's count goes on."""
    ours = SteadyTrainCallback(runs_dir=tmp_path, name="failed")
    first = trainer(tmp_path, ours, FailsAt(3))
    task = Task()
    with pytest.raises(BrokenError):
        first.fit(task, batches())
    assert ours.watch is None
    assert attach.attached() is None
    assert open_run(tmp_path / "failed").ended == "failed"
    first.save_checkpoint(tmp_path / "at-3.ckpt")

    ours = SteadyTrainCallback(runs_dir=tmp_path, name="resumed")
    trainer(tmp_path, ours, max_epochs=2).fit(task, batches(), batches(1), ckpt_path=tmp_path / "at-3.ckpt")
    run = open_run(tmp_path / "resumed")
    (fit,) = run.facts["trainers"]
    assert (fit["global_step_at_begin"], fit["global_step_minus_step"]) == (3, 3)
    assert [evaluation["global_step"] for evaluation in fit["evaluations"]][-1] == 3 + int(run.scalars().steps[-1])
    assert set(fit["evaluations"][0]["metrics"]) == {"validation_loss"}


@pytest.mark.parametrize("bad", [True, False], ids=["touched", "healthy"])
def test_a_checkpoint_of_a_touched_run_holds_the_ledger(bad: bool, tmp_path: Path) -> None:
    task, calls = Task(), iter([1.0, float("nan") if bad else 1.0])
    task.encoder.register_forward_hook(lambda module, inputs, output: output * next(calls, 1.0))
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
        callbacks=[SteadyTrainCallback(policy="skip", name="run", runs_dir=str(tmp_path), to=("none",))],
    )
    saved: list[dict[str, Any]] = []
    task.on_save_checkpoint = saved.append  # type: ignore[method-assign, assignment]
    task.on_train_epoch_end = lambda: trainer.save_checkpoint(tmp_path / "model.ckpt")  # type: ignore[method-assign]
    trainer.fit(task, DataLoader(TensorDataset(torch.randn(2 * STEPS, 4)), batch_size=2))
    (state,) = saved
    ledgers = [held["ledger"] for name, held in state["callbacks"].items() if "SteadyTrain" in name]
    assert [[(action["step"], action["what"]) for action in one] for one in ledgers] == (
        [[(2, "skipped-update")]] if bad else []
    )
