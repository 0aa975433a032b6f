"""What attention sees from the places that have a label."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from steadytrain.capture.looks.label_places import label_rows
from steadytrain.capture.looks.loss_graph import read_graph

ROWS, LENGTH, TOKENS = 6, 12, 30
PREFIX = torch.tensor([2, 3, 4, 5, 6, 7])


def measures(open_: Tensor) -> dict[str, float]:
    """Those of a language model whose labels begin behind a prefix of another length in each row."""
    torch.manual_seed(0)
    ids, table, head = torch.randint(1, TOKENS, (ROWS, LENGTH)), nn.Embedding(TOKENS, 8), nn.Linear(8, TOKENS)
    x = table(ids)[:, None]
    logits = head(F.scaled_dot_product_attention(x, x, x, attn_mask=open_[:, None])[:, 0])
    targets = ids[:, 1:].masked_fill(torch.arange(1, LENGTH) < PREFIX[:, None], -100)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten())
    graph = read_graph(loss)
    (one,) = graph.likelihoods
    return dict(label_rows(one, [ids], ROWS, graph))


def causal() -> Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().expand(ROWS, -1, -1)


def test_a_prefix_that_is_read_from_both_sides_shows_no_label() -> None:
    within = torch.arange(LENGTH) < PREFIX[:, None]
    assert measures(causal() | within[:, None, :])["next-place-seen"] == 0.0


def test_a_mask_that_is_open_shows_them() -> None:
    assert measures(torch.ones(ROWS, LENGTH, LENGTH, dtype=torch.bool))["next-place-seen"] == 1.0
