"""What attention sees, read from the graph of a loss: masks of both kinds and signs, fused and by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from steadytrain.capture.looks.attention_masks import mask_rows
from steadytrain.capture.looks.loss_graph import read_graph

ROWS, HEADS, LENGTH = 6, 2, 12
SQUARE = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
LENGTHS = torch.tensor([4, 5, 6, 7, 8, 9])
TOKENS = torch.arange(LENGTH) < LENGTHS[:, None]
IDS = torch.randint(1, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1)) * TOKENS


def fused(shown: Tensor | None) -> Tensor:
    q, k, v = (torch.randn(ROWS, HEADS, LENGTH, 4, requires_grad=True) for _ in range(3))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=shown)


def added(shown: Tensor | None) -> Tensor:
    mask = torch.zeros(shown.shape).masked_fill(~shown, float("-inf")) if shown is not None else None
    return fused(mask)


def by_hand(shown: Tensor | None) -> Tensor:
    q, k, v = (torch.randn(ROWS, HEADS, LENGTH, 4, requires_grad=True) for _ in range(3))
    scores = q @ k.mT
    scores = scores.masked_fill(~shown, -1e9) if shown is not None else scores
    return scores.softmax(-1) @ v


def seen(*made: Tensor) -> dict[str, float]:
    graph = read_graph(torch.stack([one.square().mean() for one in made]).sum())
    return dict(mask_rows(graph.visible, [IDS]))


@pytest.mark.parametrize("attend", [fused, added, by_hand])
def test_the_sign_of_a_mask(attend: object) -> None:
    assert callable(attend)
    keys = TOKENS[:, None, None]
    assert seen(attend(~keys.expand(-1, 1, LENGTH, -1))) == {"attends-padding": 1.0}
    assert seen(attend(keys.expand(-1, 1, LENGTH, -1))) == {}
    assert seen(attend(SQUARE.triu())) == {"attends-ahead": 1.0}
    assert seen(attend(SQUARE.tril())) == {}
    assert seen(attend(None)) == {}
    assert seen(attend(SQUARE.tril() & keys)) == {}


def test_frames_that_are_padded_with_zeros_behind_a_place_for_the_class() -> None:
    frames = torch.randn(ROWS, LENGTH, 3) * TOKENS[..., None]
    keys = torch.cat([torch.ones(ROWS, 1, dtype=torch.bool), TOKENS], 1)[:, None, None].expand(-1, 1, LENGTH + 1, -1)
    for shown, found in ((~keys, {"attends-padding": 1.0}), (keys, {})):
        q, k, v = (torch.randn(ROWS, HEADS, LENGTH + 1, 4, requires_grad=True) for _ in range(3))
        graph = read_graph(F.scaled_dot_product_attention(q, k, v, attn_mask=shown).square().mean())
        assert dict(mask_rows(graph.visible, [frames])) == found


def test_one_stack_that_reads_backwards_is_meant() -> None:
    assert seen(fused(SQUARE.triu()), fused(SQUARE.tril())) == {}


def test_a_mask_of_padding_alone_hides_no_later_place() -> None:
    q = torch.randn(2, 2, 6, 8, requires_grad=True)
    shown = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    shown[1, ..., 4:] = False
    (seen,) = read_graph(F.scaled_dot_product_attention(q, q, q, attn_mask=shown).square().mean()).attention
    assert isinstance(seen, torch.Tensor)
    assert seen[..., 0, :].tolist() == [[1.0] * 5, [1.0, 1.0, 1.0, 0.0, 0.0]]
