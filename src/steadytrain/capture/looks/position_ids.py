"""Tells whether ids of positions count the rows of a batch in place of the places of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from steadytrain.capture.looks.mixed_rows import Batch


@torch.no_grad()
def counted_rows(looked_up: Sequence[Tensor], batch: Batch) -> Iterator[tuple[str, float]]:
    """``counted-rows`` is the number of positions that an embedding looks up: 0, 1, 2 and so on, one for each row.

    There is no row unless another embedding looks up ids [rows, places], with another number of places.
    """
    rows = batch.rows
    places = {one.shape[1] for one in looked_up if one.dim() == 2 and one.shape[0] == rows}
    if rows < 2 or not places or rows in places:
        return
    for one in looked_up:
        if one.dim() > 2 or one.numel() != rows:
            continue
        if torch.equal(one.reshape(-1), torch.arange(rows, device=one.device, dtype=one.dtype)):
            yield "counted-rows", float(rows)
            return
