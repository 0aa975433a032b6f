"""Averages of the weights that a script keeps as tensors in half precision."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from steadytrain.capture.looks.half_shadows import _is_alike
from watching import watching

STEPS = 180


def told(folder: Path, kept: str, dtype: str, begins: int = 0) -> list[str]:
    """What is said of a dict or a list of tensors in ``dtype``, which holds an average or second moments. The average
    is made in step ``begins``."""
    source = f"""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
truth = torch.randn(16)
averages = None
moments = [torch.zeros_like(p, dtype=torch.{dtype}) for p in model.parameters()]
for step in range({STEPS}):
    features = torch.randn(64, 16)
    loss = (model(features).squeeze(1) - torch.tanh(features @ truth)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == {begins}:
        averages = {{name: p.detach().to(torch.{dtype}, copy=True) for name, p in model.named_parameters()}}
    with torch.no_grad():
        for (name, p), moment in zip(model.named_parameters(), moments):
            if {kept!r} == "averages" and averages is not None:
                averages[name].mul_(0.99).add_(p.to(averages[name].dtype), alpha=0.01)
            elif {kept!r} != "averages":
                moment.mul_(0.999).add_(p.grad.square().to(moment.dtype), alpha=0.001)
"""
    path = folder / "train.py"
    path.write_text(source)
    with watching(folder / "run", "observe") as watcher:
        exec(compile(source, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
    return [one.message for one in watcher.symptoms if one.name == "slow-average"]


@pytest.mark.parametrize(
    ("kept", "dtype", "count", "begins"),
    [
        ("averages", "bfloat16", 1, 0),
        ("averages", "bfloat16", 1, 100),
        ("averages", "float32", 0, 0),
        ("moments", "bfloat16", 0, 0),
    ],
)
def test_only_an_average_whose_steps_round_away_is_one(
    kept: str, dtype: str, count: int, begins: int, tmp_path: Path
) -> None:
    found = told(tmp_path, kept, dtype, begins)
    assert len(found) == count
    assert all(one.startswith("the average of weights is kept in half precision") for one in found)


def test_values_that_point_elsewhere_are_no_average() -> None:
    values = [nn.Linear(2, 2).weight.detach().flatten(), torch.zeros(2)]
    assert _is_alike(values, values)
    assert not _is_alike(values, [-values[0], values[1]])
    assert not _is_alike([torch.zeros(4)], [torch.ones(4)])
