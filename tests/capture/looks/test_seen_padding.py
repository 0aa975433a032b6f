"""Padding that attention or a mean reads, and padding that they do not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import LossGraph, read_graph
from steadytrain.capture.looks.unmasked_padding import unmasked_rows

ROWS, LENGTH, WIDTH = 6, 12, 8
LENGTHS = torch.tensor([4, 5, 6, 7, 9, 12])
TOKENS = torch.arange(LENGTH) < LENGTHS[:, None]
IDS = torch.randint(1, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1)) * TOKENS
SHARE = 1.0 - float(TOKENS.float().mean())
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


class Encoder(nn.Module):
    def __init__(self, *, fused: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm, self.fused = nn.Embedding(20, WIDTH), nn.LayerNorm(WIDTH), fused

    def forward(self, ids: Tensor, shown: Tensor | None = None) -> Tensor:
        x = self.table(ids)
        if self.fused:
            mixed = F.scaled_dot_product_attention(*[x[:, None]] * 3, attn_mask=shown)[:, 0]
        else:
            scores = x @ x.mT
            scores = scores if shown is None else scores.masked_fill(~shown[:, 0], -1e9)
            mixed = scores.softmax(-1) @ x
        return self.norm(x + mixed)


def rows(graph: LossGraph, given: Tensor = IDS) -> dict[str, float]:
    return dict(unmasked_rows(graph.visible, graph.pools, [given]))


def of(loss: Tensor) -> LossGraph:
    return read_graph(loss)


KEYS = TOKENS[:, None, None].expand(-1, 1, LENGTH, -1)


@pytest.mark.parametrize("fused", [True, False])
def test_no_mask(fused: bool) -> None:
    hidden = Encoder(fused=fused)(IDS)
    assert rows(of(hidden[:, 0].square().mean())) == {"sees-padding": pytest.approx(SHARE)}


@pytest.mark.parametrize("fused", [True, False])
def test_a_mask_that_hides_padding(fused: bool) -> None:
    assert rows(of(Encoder(fused=fused)(IDS, KEYS)[:, 0].square().mean())) == {}


def test_a_mask_that_leaves_the_end_of_the_text_which_has_the_id_of_the_padding() -> None:
    shown = TOKENS | TOKENS.roll(1, 1)
    keys = shown[:, None, None].expand(-1, 1, LENGTH, -1)
    assert rows(of(Encoder()(IDS, keys)[:, 0].square().mean())) == {}


def test_causal_attention() -> None:
    assert rows(of(Encoder()(IDS, CAUSAL.expand(ROWS, 1, -1, -1)).square().mean())) == {}


def test_one_layer_of_two_hides_it() -> None:
    one, other = Encoder()(IDS), Encoder()(IDS, KEYS)
    assert rows(of((one + other)[:, 0].square().mean())) == {}


def test_a_mean_over_all_places() -> None:
    hidden = Encoder()(IDS, KEYS)
    assert rows(of(hidden.mean(1).square().mean())) == {"pools-padding": pytest.approx(SHARE)}


def test_a_mean_over_places_that_were_masked() -> None:
    hidden = Encoder()(IDS, KEYS) * TOKENS[..., None]
    assert rows(of(hidden.mean(1).square().mean())) == {}
    assert rows(of((hidden.sum(1) / LENGTHS[:, None]).square().mean())) == {}


def test_ids_without_padding() -> None:
    ids = torch.randint(1, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(2))
    assert rows(of(Encoder()(ids).mean(1).square().mean()), ids) == {}


def test_rows_of_one_length() -> None:
    ids = IDS.clone()
    ids[:, 8:] = 0
    ids[:, :8] = 3
    assert rows(of(Encoder()(ids).mean(1).square().mean()), ids) == {}


def features(*, margins: bool = False) -> Tensor:
    values = torch.randn(ROWS, LENGTH, WIDTH) * TOKENS[..., None]
    return values.roll(1, 1) * (torch.arange(LENGTH) > 0)[:, None] if margins else values


@pytest.mark.parametrize("margins", [False, True], ids=["padded at the end", "margins on both sides"])
def test_features_that_are_zero(margins: bool) -> None:
    given, layer = features(margins=margins), nn.Linear(WIDTH, WIDTH)
    x = layer(given)
    mixed = F.scaled_dot_product_attention(*[x[:, None]] * 3)[:, 0]
    found = rows(of(mixed[:, 0].square().mean()), given)
    assert found == ({} if margins else {"sees-padding": pytest.approx(SHARE)})
