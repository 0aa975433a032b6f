"""Measures how many rows of a batch stand there more than once, where each row's own partner is its right answer.

In a contrastive loss over a batch all other partners are wrong answers. A partner that stands there twice is right and
wrong at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from steadytrain.capture.looks.loss_graph import Likelihood

ROWS_MIN, LOOKUPS_MAX = 8, 8

IDS_LARGE = 16
"""Rows whose ids are all below it are segments or masks, no texts."""


@torch.no_grad()
def duplicate_rows(likelihoods: Sequence[Likelihood], looked_up: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """``duplicate-positives`` is the share of rows [rows, places] that another row equals, in the ids of the side that
    has the most; only where the labels are the places in the batch."""
    sizes = {len(one.targets) for one in likelihoods if _are_places(one.targets)}
    shares = []
    for ids in looked_up[:LOOKUPS_MAX]:
        if ids.dim() != 2 or len(ids) not in sizes or ids.shape[1] < 2 or int(ids.max()) < IDS_LARGE:
            continue
        if not bool((ids.diff(dim=1) == 1).all()):  # rows of positions count up
            shares.append(1.0 - len(torch.unique(ids, dim=0)) / len(ids))
    if shares:
        yield "duplicate-positives", max(shares)


def _are_places(targets: Tensor) -> bool:
    if targets.dim() != 1 or len(targets) < ROWS_MIN or targets.is_floating_point():
        return False
    return bool((targets == torch.arange(len(targets), device=targets.device)).all())
