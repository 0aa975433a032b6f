"""Accelerate and Lightning unscale before they clip: their own loops, on the CPU, with a real scaler put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

from steadytrain.capture.tensors.gradient_scaling import Scaling
from steadytrain.capture.tensors.statistics import fetch

pytestmark = pytest.mark.slow

SCALE = 1024.0


class Followed:
    """What a watcher would be told, gathered at torch's own functions."""

    def __init__(self) -> None:
        self.scaling = Scaling()
        self.scalers: dict[int, GradScaler] = {}
        self.clips = 0
        self.steps: list[dict[str, float | None]] = []

    def gate(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        values = fetch(self.scaling.tensors())
        norms = [1.0] if self.clips else []
        self.steps.append(self.scaling.scalars("main", values, before=norms, applied=norms, skipped=False))


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    seen = Followed()

    def following(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(parameters: Any, limit: float, *args: Any, **kwargs: Any) -> Any:
            parameters = list(parameters)
            seen.clips += 1
            seen.scaling.clip_begins(parameters, list(seen.scalers.values()), limit=limit)
            return original(parameters, limit, *args, **kwargs)

        return clip

    scale, step = GradScaler.scale, GradScaler.step

    def scaled(self: GradScaler, outputs: Any) -> Any:
        seen.scalers[id(self)] = self
        return scale(self, outputs)

    def stepped(self: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        seen.scaling.scaler_step_begins(self, optimizer)
        result = step(self, optimizer, *args, **kwargs)
        seen.scaling.scaler_step_ends()
        return result

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", following(nn.utils.clip_grad_norm_))
    monkeypatch.setattr(nn.utils, "clip_grad_value_", following(nn.utils.clip_grad_value_))
    monkeypatch.setattr(GradScaler, "scale", scaled)
    monkeypatch.setattr(GradScaler, "step", stepped)
    hook = register_optimizer_step_pre_hook(seen.gate)
    yield seen
    hook.remove()


def batches() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=2)


@pytest.mark.parametrize("how", ["clip_grad_norm_", "clip_grad_value_"])
def test_accelerate(how: str, followed: Followed) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    try:
        # It refuses fp16 on a CPU; with these three it goes the way that it goes on a GPU.
        accelerator.state._mixed_precision = "fp16"
        accelerator.native_amp, accelerator.scaler = True, GradScaler("cpu", init_scale=SCALE)
        model = nn.Linear(4, 1)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), batches())
        for (inputs,) in loader:
            optimizer.zero_grad()
            accelerator.backward(model(inputs).pow(2).mean())
            getattr(accelerator, how)(model.parameters(), 0.5)
            optimizer.step()
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    assert followed.clips == 3
    assert [step["loss_scale"] for step in followed.steps] == [SCALE] * 3
    assert followed.scaling.clipped_before_unscaling == 0


@pytest.mark.filterwarnings("ignore")  # Lightning warns of few workers, of loggers, of everything
@pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "manual, clipped before the step"])
def test_lightning(automatic: bool, followed: Followed, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.plugins import MixedPrecision

    class Task(lightning.LightningModule):  # type: ignore[name-defined, misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(4, 1)
            self.automatic_optimization = automatic

        def training_step(self, batch: Any, number: int) -> Any:
            loss = self.model(batch[0]).pow(2).mean()
            if automatic:
                return loss
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
            return None

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    scaler = GradScaler("cpu", init_scale=SCALE)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        plugins=[MixedPrecision("16-mixed", "cpu", scaler=scaler)],
        gradient_clip_val=0.5 if automatic else None,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Task(), batches())
    assert followed.clips == 3
    assert [step["loss_scale"] for step in followed.steps] == [SCALE] * 3
    # In manual optimization Lightning unscales inside the step: what was clipped before that carried the scale.
    assert followed.scaling.clipped_before_unscaling == (0 if automatic else 3)
