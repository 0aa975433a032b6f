"""Attention masks are inverted, however the script applies them."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.trial_runs.changes.masks import OppositeMask
from steadytrain.trial_runs.function_stand_ins import Functions

ROWS, HEADS, LENGTH, WIDTH = 2, 2, 6, 4
Attends = Callable[[Tensor, Tensor], Tensor]
"""From ``x`` [rows, heads, length, width] and what is shown, [rows, 1, 1, length]."""


def filled(x: Tensor, shown: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)).masked_fill(~shown, -1e9).softmax(-1) @ x


def filled_in_place(x: Tensor, shown: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)).masked_fill_(~shown, -math.inf).softmax(-1) @ x


def chosen(x: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown, x @ x.transpose(-1, -2), torch.tensor(-1e9)).softmax(-1) @ x


def added(x: Tensor, shown: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2) + (~shown) * -1e9).softmax(-1) @ x


def fused(x: Tensor, shown: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=shown.expand(-1, 1, LENGTH, -1))


def fused_with_numbers(x: Tensor, shown: Tensor) -> Tensor:
    mask = torch.zeros(shown.shape).masked_fill(~shown, -math.inf)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask.expand(-1, 1, LENGTH, -1))


def by_a_layer(x: Tensor, shown: Tensor) -> Tensor:
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True)
    flat = x.transpose(1, 2).flatten(2)
    result: Tensor = layer(flat, flat, flat, key_padding_mask=~shown[:, 0, 0], need_weights=False)[0]
    return result


def changed(attends: Callable[[], Any]) -> tuple[Any, bool]:
    functions, change = Functions(), OppositeMask()
    change.begin(SimpleNamespace(functions=functions))  # type: ignore[arg-type]
    try:
        return attends(), change.touched
    finally:
        functions.end()


@pytest.mark.parametrize("attends", [filled, filled_in_place, chosen, added, fused, fused_with_numbers, by_a_layer])
def test_it_shows_what_was_hidden(attends: Attends) -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, HEADS, LENGTH, WIDTH, requires_grad=True)
    shown = (torch.arange(LENGTH) < torch.tensor([[2], [4]]))[:, None, None, :]
    found, touched = changed(lambda: attends(x, ~shown))
    assert touched
    torch.testing.assert_close(found, attends(x, shown))


@pytest.mark.parametrize(
    "computes",
    [
        lambda x: x.masked_fill(x > 0, 0.0),  # no mask of attention
        lambda x: torch.where(x > 0, x, 0.01 * x),
        lambda x: x + torch.ones(LENGTH, WIDTH),
        lambda x: (x @ x.transpose(-1, -2)).softmax(-1),
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    ],
)
def test_other_calls_stay_as_they_are(computes: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, HEADS, LENGTH, WIDTH, requires_grad=True)
    found, touched = changed(lambda: computes(x))
    assert not touched
    assert torch.equal(found, computes(x))
