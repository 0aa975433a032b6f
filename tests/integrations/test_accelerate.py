"""Accelerate's loop: prepared, accumulated and clipped by the accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from steadytrain.core.errors import UsageError
from steadytrain.testing import Probe, assert_contract, by_itself

accelerate = pytest.importorskip("accelerate")
from steadytrain.integrations.accelerate import watch  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STEPS, ACCUMULATED = 4, 2


@dataclass(frozen=True)
class Training:
    helper: bool
    precision: str = "no"

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        accelerator = accelerate.Accelerator(
            cpu=True, gradient_accumulation_steps=ACCUMULATED, mixed_precision=self.precision
        )
        try:
            return self.loop(probe, accelerator)
        finally:
            accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)

    def loop(self, probe: Probe, accelerator: Any) -> Any:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)
        data = DataLoader(TensorDataset(torch.randn(3 * STEPS * ACCUMULATED, 4)), batch_size=3)
        model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
        losses = []

        def train() -> None:
            for (inputs,) in data:
                with accelerator.accumulate(model):
                    loss = model(inputs).pow(2).mean()
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                    losses.append(loss.detach())

        if self.helper and probe.watched:
            with watch(accelerator, **probe.options):
                train()
        else:
            train()
        return losses, accelerator.unwrap_model(model), schedule.state_dict()["last_epoch"]


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_with_the_helper(precision: str) -> None:
    recorded = assert_contract(Training(True, precision), step=3, parameter="0.weight", attach=by_itself)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))
    assert recorded.streams["main"].signals["samples"].tolist() == [6.0] * STEPS
    facts = recorded.facts["accelerate"]
    assert (facts["gradient_accumulation_steps"], facts["mixed_precision"]) == (ACCUMULATED, precision)


def test_knowing_nothing_of_us() -> None:
    recorded = assert_contract(Training(False), step=3, parameter="0.weight")
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))


def test_before_anything_is_prepared() -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    try:
        with pytest.raises(UsageError, match="has prepared no model; call it after"):
            watch(accelerator)
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
