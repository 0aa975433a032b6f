"""Views that scramble axes, in a graph and by the values of inputs, and views that do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph
from steadytrain.capture.looks.view_orders import interleaved_rows, scrambled_rows, scrambles, viewed_inputs


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((8, 32, 50), (8, 50, 32)),
        ((8, 20, 64), (20, 8, 64)),
        ((32, 28, 28, 3), (32, 3, 28, 28)),
        ((8, 16, 64), (8, 4, 16, 16)),
        ((8, 4, 16, 16), (8, 16, 64)),
        ((8, 64, 7, 5), (8, 35, 64)),
        ((8, 12, 4, 16), (8, 4, 12, 16)),
        ((32, 4, 14, 16), (32, 14, 64)),
        ((8, 20, 64), (8, 4, 20, 16)),
    ],
)
def test_axes_of_a_permutation(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    assert scrambles(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((8, 32, 50), (8, 1600)),
        ((8, 1600), (8, 32, 50)),
        ((8, 20, 64), (8, 20, 4, 16)),
        ((8, 1, 50), (8, 50, 1)),
        ((8, 50, 50), (8, 50, 50)),
        ((8, 6, 4), (8, 2, 12)),
        ((8, 256, 4, 4), (8, 64, 8, 8)),
        ((), (1,)),
        ((0, 4, 3), (0, 3, 4)),
    ],
)
def test_splits_merges_and_moves_of_single_axes(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    assert not scrambles(before, after)


def views(output: Tensor) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return read_graph(output.square().mean()).views


def test_the_graph_of_a_loss() -> None:
    x = nn.Linear(4, 6)(torch.randn(3, 5, 4))
    assert views(x.view(3, 6, 5)) == [((3, 5, 6), (3, 6, 5))]
    assert views(x.transpose(1, 2).reshape(3, 6, 5)) == []
    assert views(x.transpose(0, 1).reshape(5, 3, 6)) == []
    assert dict(scrambled_rows(views(x.view(3, 6, 5)))) == {"scrambled-view:rowsx5x6>rowsx6x5": 1.0}


def test_a_relative_shift_is_meant() -> None:
    scores = nn.Linear(4, 5)(torch.randn(2, 3, 5, 4))
    padded = nn.functional.pad(scores, (1, 0))
    assert views(padded.view(2, 3, 6, 5)[:, :, 1:].reshape(2, 3, 5, 5)) == []
    turned = scores.view(2, 3, 5, 5)
    longer = nn.Linear(4, 9)(torch.randn(2, 3, 5, 4)).view(2, 3, 9, 5)[:, :, 1:].reshape(2, 3, 5, 8)
    assert views(turned) == views(longer) == []
    beside = torch.cat([torch.zeros(2, 3, 5, 1), scores], -1)
    assert views(beside.view(2, 3, 6, 5)) == []


def test_heads_that_are_split_beside_the_rows_are_moved_afterwards() -> None:
    """With as many rows as a head is wide, [places, rows, features] becomes [places, rows x heads, width]."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    assert views(layer(torch.randn(8, 12, 32))) == []
    split = nn.Linear(4, 32)(torch.randn(12, 8, 4)).view(12, 32, 8)
    assert views(split.transpose(0, 1)) == []
    assert views(split) != []


def test_inputs_that_were_viewed_before_the_first_layer() -> None:
    given = torch.rand(4, 6, 6, 3)
    assert list(viewed_inputs([given], [given.view(4, 3, 6, 6)])) == [((4, 6, 6, 3), (4, 3, 6, 6))]
    assert list(viewed_inputs([255 * given], [given.view(4, 3, 6, 6) - 0.5])) == [((4, 6, 6, 3), (4, 3, 6, 6))]
    assert list(viewed_inputs([given], [given.permute(0, 3, 1, 2), given.view(4, 108)])) == []
    assert list(viewed_inputs([torch.zeros(4, 6, 6, 3)], [torch.zeros(4, 3, 6, 6)])) == []


def test_channels_side_by_side() -> None:
    at = torch.linspace(0, 3, 24)
    smooth = torch.stack([(at[:, None] + k).sin() * (at + k).cos() + k for k in range(3)])
    pictures = smooth.expand(8, 3, 24, 24) + 0.01 * torch.randn(8, 3, 24, 24)
    viewed = pictures.permute(0, 2, 3, 1).reshape(8, 3, 24, 24)
    [(name, ratio)] = interleaved_rows([viewed])
    assert name == "interleaved-channels"
    assert ratio < 0.3
    noise, dark, grey = torch.rand(8, 3, 24, 24), torch.zeros(8, 3, 24, 24), torch.rand(8, 1, 24, 24)
    stripes = (torch.arange(24) % 3).float().expand(8, 3, 24, 24)
    assert list(interleaved_rows([stripes, stripes.transpose(2, 3)])) == []
    assert list(interleaved_rows([pictures, noise, dark, grey, pictures[:, :, :2, :2]])) == []
