"""AdaGC and ZClip on a live run, against the papers' formulas restated in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import policy_file, watched
from numpy.typing import NDArray
from torch import Tensor, nn

from gate_loops import recorded, same
from parameters import long

STEPS = 70
SPIKES = {45: 60.0, 46: 40.0, 58: 200.0}
Gradients = list[NDArray[np.float64]]


class Training:
    """A regression in float64 in which the targets of some steps are far too large."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).double()
        self.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.model.register_parameter("unused", self.unused)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.5)

    def run(self, clip: Callable[[Gradients], Gradients] | None = None) -> float:
        torch.manual_seed(8)
        held_out = torch.randn(64, 5, dtype=torch.float64)
        for step in range(1, STEPS + 1):
            x = torch.randn(8, 5, dtype=torch.float64)
            y = x.sum(1, keepdim=True) * SPIKES.get(step, 1.0)
            loss = nn.functional.mse_loss(self.model(x), y) + (0 if step % 3 else 0.01 * self.unused.square().sum())
            self.optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                held = [one for one in self.model.parameters() if one.grad is not None]
                for parameter, values in zip(held, clip([_numpy(one.grad) for one in held]), strict=True):
                    parameter.grad = torch.from_numpy(values)
            self.optimizer.step()
        with torch.no_grad():
            return float(nn.functional.mse_loss(self.model(held_out), held_out.sum(1, keepdim=True)))


def _numpy(gradient: Tensor | None) -> NDArray[np.float64]:
    assert gradient is not None
    return gradient.detach().numpy().copy()


class ZClip:
    """arXiv 2504.02507, algorithm 1 with reciprocal clipping."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.mean = self.variance = math.nan
        self.clipped = 0

    def __call__(self, gradients: Gradients) -> Gradients:
        norm = float(np.sqrt(sum(np.square(one).sum() for one in gradients)))
        factor = 1.0
        if len(self.norms) < 25:
            self.norms.append(norm)
            self.mean, self.variance = float(np.mean(self.norms)), float(np.var(self.norms))
            return gradients
        z = (norm - self.mean) / (math.sqrt(self.variance) + 1e-6)
        if z > 2.5:
            self.clipped += 1
            factor = (self.mean + math.sqrt(self.variance) * 2.5 / (z / 2.5)) / norm
        self.mean = 0.97 * self.mean + 0.03 * norm * factor
        self.variance = 0.97 * self.variance + 0.03 * (norm * factor - self.mean) ** 2
        return [one * factor for one in gradients]


class AdaGC:
    """arXiv 2502.11034, algorithm 1, for tensors by their shapes; a tensor that comes late begins with its own norm."""

    def __init__(self) -> None:
        self.levels: dict[tuple[int, ...], float] = {}
        self.step = self.clipped = 0

    def __call__(self, gradients: Gradients) -> Gradients:
        whole = float(np.sqrt(sum(np.square(one).sum() for one in gradients)))
        clipped = []
        for one in gradients:
            norm, level = float(np.linalg.norm(one)), self.levels.get(one.shape)
            if self.step < 10:
                factor = min(1.0, 0.5 / whole)
                self.levels[one.shape] = min(norm * factor, math.inf if level is None else level)
            else:
                factor = 1.0 if level is None else min(1.0, 1.05 * level / norm)
                self.levels[one.shape] = norm if level is None else 0.98 * level + 0.02 * norm * factor
                self.clipped += factor < 1
            clipped.append(one * factor)
        self.step += 1
        return clipped


SETTINGS = "[interventions.clip-per-tensor]\nwarm-up = 10\nlevel = 0.5\n"


@pytest.mark.parametrize(("name", "formula"), [("clip-by-z-score", ZClip), ("clip-per-tensor", AdaGC)])
def test_it_does_what_the_paper_says_and_helps(name: str, formula: Callable[[], ZClip | AdaGC], tmp_path: Path) -> None:
    steered, restated, bare, clip = Training(), Training(), Training(), formula()
    with watched(tmp_path, steered, policy=policy_file(tmp_path, f'always = ["{name}"]\n{SETTINGS}')):
        final = steered.run()
    assert restated.run(clip) == pytest.approx(final, rel=1e-9)
    assert clip.clipped >= len(SPIKES)
    for one, other in zip(steered.model.parameters(), restated.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert final < 0.5 * bare.run()
    assert [(action.what, action.intervention) for action in recorded(tmp_path).actions] == [("applied", name)]


@pytest.mark.parametrize("name", [long("clip-by-z-score"), "clip-per-tensor"])
def test_a_level_that_is_never_reached_changes_no_bit(name: str, tmp_path: Path) -> None:
    text = f'always = ["{name}"]\n[interventions.clip-by-z-score]\nz-max = 1e9\n[interventions.clip-per-tensor]\n'
    steered, bare = Training(), Training()
    with watched(tmp_path, steered, policy=policy_file(tmp_path, text + "factor = 1e9\nlevel = 1e9\n")):
        steered.run()
    bare.run()
    assert same(steered.model.state_dict(), bare.model.state_dict())
