"""What reaches the first layer, means over padding and equal targets, read from the graph of a loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.first_inputs import input_rows
from steadytrain.capture.looks.loss_graph import read_graph

PIXELS = torch.randint(0, 256, (32, 1, 8, 8), generator=torch.Generator().manual_seed(1)).float()
TABLE = torch.randn(64, 6, generator=torch.Generator().manual_seed(2))
SCALES = torch.tensor([9.0, 40.0, 4.0, 12.0, 1.0, 2.0])
CENTRES = torch.tensor([130.0, 900.0, 15.0, 60.0, 30.0, 40.0])


def images(norm: bool = False) -> nn.Module:
    middle = nn.BatchNorm2d(4) if norm else nn.Identity()
    return nn.Sequential(nn.Conv2d(1, 4, 3), middle, nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


def table() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def measured(model: nn.Module, inputs: Tensor) -> dict[str, float]:
    graph = read_graph(model(inputs).square().mean())
    return dict(input_rows(graph.inputs, normalises=graph.normalises, looked_up=bool(graph.looked_up)))


@pytest.mark.parametrize(
    ("model", "inputs", "found"),
    [
        (images, torch.zeros(32, 1, 8, 8), {"zero-inputs"}),
        (images, PIXELS / 255 / 255, {"small-inputs"}),
        (images, PIXELS, {"byte-inputs"}),
        (images, PIXELS / 255, set()),
        (images, (PIXELS - 127) / 64, set()),
        (lambda: images(norm=True), PIXELS, set()),
        (lambda: images(norm=True), torch.zeros(32, 1, 8, 8), {"zero-inputs"}),
        (table, TABLE, set()),
        (table, (TABLE - CENTRES) / SCALES, {"offset-inputs"}),
        (table, torch.nn.functional.one_hot(torch.arange(64) % 6, 6).float(), set()),
        (table, torch.randint(0, 4, (64, 6)).float(), set()),
        (table, TABLE.abs() + 1.0, set()),
    ],
)
def test_the_scale_of_inputs(model: object, inputs: Tensor, found: set[str]) -> None:
    assert callable(model)
    assert set(measured(model(), inputs)) == found


def test_a_first_state_of_zeros_is_no_input() -> None:
    cell, head = nn.RNNCell(6, 16), nn.Linear(16, 1)

    def run(inputs: Tensor) -> Tensor:
        state = torch.zeros(len(inputs), 16)
        for _ in range(3):
            state = cell(inputs, state)
        made: Tensor = head(state)
        return made

    graph = read_graph(run(TABLE).square().mean())
    assert dict(input_rows(graph.inputs, normalises=False, looked_up=False)) == {}


MASK = (torch.arange(12) < torch.tensor([[4], [6], [9], [12]])).float()


@pytest.mark.parametrize(
    ("mask", "reduce", "share"),
    [
        (MASK, "mean", 1 - 31 / 48),
        (MASK[..., None], "mean", 1 - 31 / 48),
        (MASK, "sum", None),
        (torch.ones(4, 12), "mean", None),
        (MASK.flip(0) * 2.0, "mean", None),
        (MASK[:, torch.randperm(12, generator=torch.Generator().manual_seed(0))], "mean", None),
    ],
)
def test_a_mean_over_padding(mask: Tensor, reduce: str, share: float | None) -> None:
    wide = mask.dim() == 3
    errors = nn.Linear(5, 3 if wide else 1)(torch.randn(4, 12, 5)).abs()
    masked = (errors if wide else errors[..., 0]) * mask
    loss = masked.mean() if reduce == "mean" else masked.sum() / mask.sum()
    found = read_graph(loss).misuses.get("mean-over-padding")
    assert found == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("target", "loss", "found"),
    [
        (torch.zeros(64, 1), nn.functional.huber_loss, 0.0),
        (torch.full((64, 1), 0.5), nn.functional.mse_loss, 0.5),
        (TABLE[:, :1], nn.functional.mse_loss, None),
        (torch.zeros(64, 1), lambda made, target: nn.functional.mse_loss(made.square(), target), None),
        (torch.ones(64, 1), nn.functional.binary_cross_entropy_with_logits, None),
    ],
)
def test_targets_that_are_one_number(target: Tensor, loss: object, found: float | None) -> None:
    assert callable(loss)
    assert read_graph(loss(table()(TABLE), target)).misuses.get("constant-target") == found


def test_a_first_state_of_zeros_behind_a_learned_scale_is_no_input() -> None:
    """The inputs of the recurrence have a gradient, so that its first state is all that has none."""
    scale, layer = nn.LayerNorm(6), nn.GRU(6, 16, batch_first=True, bidirectional=True)
    out, _ = layer(scale(torch.randn(32, 5, 6)))
    graph = read_graph(out.square().mean())
    assert graph.inputs == []
    zeros = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))(torch.zeros(32, 6))
    assert len(read_graph(zeros.square().mean()).inputs) == 1
