"""Digests: equal for equal bits however they come, different for what weights that count could not tell apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steadytrain.capture.snapshots.digests import CHUNK_WORDS, Words, _sums_on_device, bytes_of, digest, labelled


def test_small_labels_in_another_order_have_another_digest() -> None:
    # Both have the sum 14 and the same sum weighted by 1, 3, 5, ...: two batches of a real run.
    one, other = torch.tensor([0, 3, 2, 3, 2, 2, 0, 2]), torch.tensor([2, 0, 3, 1, 3, 3, 2, 0])
    assert digest(one) != digest(other)


def test_no_two_of_many_small_tensors_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.unique(torch.randint(0, 4, (30_000, 12), generator=generator), dim=0)
    assert len({digest(row) for row in rows}) == len(rows)


@pytest.mark.parametrize("count", [1, 3, CHUNK_WORDS - 1, CHUNK_WORDS, 2 * CHUNK_WORDS + 5])
def test_pieces_the_device_way_and_the_whole_agree(count: int) -> None:
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(count))
    data, words = bytes_of(tensor), Words()
    for piece in np.array_split(data.reshape(-1, 4), 7):
        words.add(piece.reshape(-1))
    assert labelled(tensor, words) == digest(tensor)
    rows = Words()
    for row, (plain, weighted) in enumerate(_sums_on_device(tensor)):
        rows.add_row(row, plain, weighted)
    assert rows.text == words.text


def test_every_single_change_and_swap_is_seen() -> None:
    tensor = torch.randn(64)
    known = {digest(tensor)}
    for at in range(64):
        changed = tensor.clone()
        changed[at] = -changed[at]
        known.add(digest(changed))
        swapped = tensor.roll(at + 1)
        known.add(digest(swapped))
    assert len(known) == 1 + 64 + 63
