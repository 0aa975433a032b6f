"""Keeps matrices away from where their decomposition or its derivative is undefined.

torch documents it with each function: the derivative of ``svd`` divides by differences of the squared singular values
(and of a matrix that is not square by the values themselves), that of ``eigh`` and ``eig`` by differences of the
eigenvalues. Those of ``qr``, ``cholesky``, ``inv``, ``solve`` and the determinants need a matrix of full rank. Only
matrices at that edge are changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CLOSE_EPSILONS = 8.0
"""Values are equal, or zero, if they differ by less than so many units of rounding of the largest."""

SHIFT = 1e-3
"""What is added to the diagonal, times the largest value: the derivative then divides by about as much."""

Shifted = Callable[[Tensor], "Tensor | None"]


def with_distinct_singular_values(matrix: Tensor) -> Tensor | None:
    """The matrix with singular values that differ and are not zero; None if they do already."""
    values = torch.linalg.svdvals(matrix)
    return _apart(matrix, _gap(values), values[..., -1], values[..., 0])


def with_distinct_real_eigenvalues(matrix: Tensor) -> Tensor | None:
    """The symmetric matrix, of which the lower triangle counts, with eigenvalues that differ; None if they do."""
    values = torch.linalg.eigvalsh(matrix)
    return _apart(matrix, _gap(values), None, values.abs().amax(-1))


def with_distinct_eigenvalues(matrix: Tensor) -> Tensor | None:
    """The square matrix with eigenvalues that differ; None if they do already."""
    values = torch.linalg.eigvals(matrix)
    apart = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs()
    apart = apart + torch.diag_embed(torch.full(values.shape, torch.inf, dtype=apart.dtype, device=apart.device))
    return _apart(matrix, apart.amin((-2, -1)), None, values.abs().amax(-1))


def of_full_rank(matrix: Tensor) -> Tensor | None:
    """The matrix without a singular value of zero; None if it has none."""
    values = torch.linalg.svdvals(matrix)
    return _apart(matrix, None, values[..., -1], values[..., 0])


def positive_definite(matrix: Tensor) -> Tensor | None:
    """The symmetric matrix, of which the lower triangle counts, with its smallest eigenvalue above zero; None if so."""
    values = torch.linalg.eigvalsh(matrix)
    least, largest = values[..., 0], _or_one(values.abs().amax(-1))
    bad = least <= _rounding(matrix) * largest
    if not bool(bad.any()):
        return None
    more = torch.where(bad, SHIFT * largest - least.clamp(max=0.0), torch.zeros_like(largest))
    return matrix + more[..., None, None] * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _gap(values: Tensor) -> Tensor | None:
    """The smallest distance of neighbours of sorted values."""
    return values.diff(dim=-1).abs().amin(-1) if values.shape[-1] > 1 else None


def _apart(matrix: Tensor, gap: Tensor | None, least: Tensor | None, largest: Tensor) -> Tensor | None:
    """``gap`` and ``least`` must not be zero beside ``largest``, one number of each for a matrix."""
    largest = _or_one(largest)
    bad = torch.zeros(largest.shape, dtype=torch.bool, device=matrix.device)
    for small in (gap, least):
        if small is not None:
            bad = bad | (small <= _rounding(matrix) * largest)
    if not bool(bad.any()):
        return None
    rows, columns = matrix.shape[-2:]
    count = min(rows, columns)
    distinct = torch.zeros(rows, columns, dtype=matrix.dtype, device=matrix.device)
    distinct[range(count), range(count)] = torch.linspace(1.0, 2.0, count, dtype=matrix.dtype, device=matrix.device)
    return matrix + torch.where(bad, SHIFT * largest, torch.zeros_like(largest))[..., None, None] * distinct


def _rounding(matrix: Tensor) -> float:
    return CLOSE_EPSILONS * torch.finfo(matrix.dtype).eps


def _or_one(largest: Tensor) -> Tensor:
    return torch.where(largest > 0, largest, torch.ones_like(largest))


_OF: tuple[tuple[Shifted, tuple[str, ...]], ...] = (
    (with_distinct_singular_values, ("svd",)),
    (with_distinct_real_eigenvalues, ("eigh",)),
    (with_distinct_eigenvalues, ("eig",)),
    (of_full_rank, ("qr", "inv", "inv_ex", "inverse", "solve", "solve_ex", "lstsq", "slogdet", "logdet", "det")),
    (positive_definite, ("cholesky", "cholesky_ex")),
)


def decompositions() -> list[tuple[tuple[Callable[..., Any], ...], Shifted]]:
    """The functions of torch that decompose a matrix, and for each what keeps it from the edge."""
    places = (torch.linalg, torch, Tensor)
    return [
        (tuple(getattr(place, name) for name in names for place in places if hasattr(place, name)), shifted)
        for shifted, names in _OF
    ]


def shift(matrix: Any, shifted: Shifted, *, upper: bool = False) -> Tensor | None:
    """What ``shifted`` adds to a matrix or a batch of them; None for anything else, and where nothing need change.

    ``upper``: the function reads the upper triangle of a symmetric matrix.
    """
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point() or matrix.dim() < 2 or not matrix.numel():
        return None
    try:
        with torch.no_grad():
            if not bool(torch.isfinite(matrix).all()):
                return None
            given = matrix.mT if upper else matrix
            found = shifted(given)
            return None if found is None else (found - given).mT if upper else found - given
    except RuntimeError:  # no kernel for this format or device, or inside of a transform: the call speaks for itself
        return None
