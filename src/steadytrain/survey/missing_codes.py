"""Finds codes for missing values among measurements: one value at several places, far beyond all others (-999)."""

from __future__ import annotations

import torch
from torch import Tensor

TIMES_MIN = 10.0
"""How far beyond all other values a code lies. Values that were limited lie at the end of the others."""

PLACES_MIN, OTHERS_MIN = 2, 16
DISTINCT_MIN = 8
"""Different values among the others: rows that are all the same have no code, and each of their columns one value."""

CODES_MAX = 4
"""Columns that were standardised each have a code of their own."""

ELEMENTS_MAX = 1 << 24


@torch.no_grad()
def missing_codes(values: Tensor) -> list[float]:
    """The codes in ``values`` [any shape, floating point], the largest first; none if there is no such value, or if all
    others are 0."""
    known = values.detach().reshape(-1)
    known = known[known.isfinite()]
    if not OTHERS_MIN <= known.numel() <= ELEMENTS_MAX or not values.is_floating_point():
        return []
    sizes, codes = known.abs(), []
    for _ in range(CODES_MAX):
        largest = known[sizes.argmax()]
        there = known == largest
        if int(there.sum()) < PLACES_MIN:
            break
        codes.append(float(largest))
        known, sizes = known[~there], sizes[~there]
        rest = float(sizes.max()) if sizes.numel() >= OTHERS_MIN else 0.0
        if not rest:
            break
        if abs(codes[-1]) > TIMES_MIN * rest:
            return codes if torch.unique(known).numel() >= DISTINCT_MIN else []
    return []


@torch.no_grad()
def filled(values: Tensor, known: set[float], by: Tensor | None = None) -> Tensor:
    """``values`` with the median of the others in place of codes, or with ``by`` there; itself if there are none.

    Args:
        known: the codes that were found before, which are added to: one of them may stand at a single place.
        by: of the same shape; of another one it is not used.
    """
    known.update(missing_codes(values))
    if not known:
        return values
    coded = torch.isin(values.detach(), torch.tensor(sorted(known), dtype=values.dtype, device=values.device))
    if not bool(coded.any()) or bool(coded.all()):
        return values
    if by is not None and by.shape == values.shape:
        return torch.where(coded, by.detach().to(values.dtype), values)
    return torch.where(coded, values.detach()[~coded].median(), values)
