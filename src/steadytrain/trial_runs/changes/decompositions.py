"""Keeps matrices away from where the derivative of their decomposition is undefined.

torch documents it with each function: the derivative of ``svd`` divides by differences of the squared singular values
(and of a matrix that is not square by the values themselves), that of ``eigh`` and ``eig`` by differences of the
eigenvalues. Those of ``qr``, ``cholesky``, ``inv``, ``solve`` and the determinants need a matrix of full rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CLOSE = 1e-6
"""Values are as good as equal, or zero, if they differ by less than this times the largest."""

SHIFT = 1e-2
"""What is added to the diagonal, times the largest value: the derivative then divides by about as much."""

Shifted = Callable[[Tensor], "Tensor | None"]


def with_distinct_singular_values(matrix: Tensor) -> Tensor | None:
    """The matrix with singular values that differ and are not zero; None if they do already."""
    values = torch.linalg.svdvals(matrix)
    return _apart(matrix, values.square(), values)


def with_distinct_eigenvalues(matrix: Tensor) -> Tensor | None:
    """The square matrix with eigenvalues that differ; None if they do already."""
    values = torch.linalg.eigvals(matrix).abs().sort(dim=-1).values
    return _apart(matrix, values, None)


def of_full_rank(matrix: Tensor) -> Tensor | None:
    """The matrix without a singular value of zero; None if it has none."""
    values = torch.linalg.svdvals(matrix)
    return _apart(matrix, None, values)


def positive_definite(matrix: Tensor) -> Tensor | None:
    """The symmetric matrix with its smallest eigenvalue above zero; None if it is."""
    values = torch.linalg.eigvalsh(matrix)
    largest = _scale(values)
    bad = values[..., :1] <= CLOSE * largest
    if not bool(bad.any()):
        return None
    more = torch.where(bad, SHIFT * largest - values[..., :1].clamp(max=0.0), torch.zeros_like(largest))
    return matrix + more.unsqueeze(-1) * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _apart(matrix: Tensor, compared: Tensor | None, zero: Tensor | None) -> Tensor | None:
    """``compared`` are sorted values that must differ, ``zero`` values that must not be zero."""
    bad = torch.zeros((*matrix.shape[:-2], 1), dtype=torch.bool, device=matrix.device)
    if compared is not None and compared.shape[-1] > 1:
        bad |= (compared.diff(dim=-1).abs() <= CLOSE * _scale(compared)).any(-1, keepdim=True)
    if zero is not None:
        bad |= (zero <= CLOSE * _scale(zero)).any(-1, keepdim=True)
    if not bool(bad.any()):
        return None
    rows, columns = matrix.shape[-2:]
    count = min(rows, columns)
    distinct = torch.zeros(rows, columns, dtype=matrix.dtype, device=matrix.device)
    distinct[range(count), range(count)] = torch.linspace(1.0, 2.0, count, dtype=matrix.dtype, device=matrix.device)
    largest = _scale(torch.linalg.svdvals(matrix))
    return matrix + torch.where(bad, SHIFT * largest, torch.zeros_like(largest)).unsqueeze(-1) * distinct


def _scale(values: Tensor) -> Tensor:
    largest = values.abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, largest, torch.ones_like(largest))


_OF: tuple[tuple[Shifted, tuple[str, ...]], ...] = (
    (with_distinct_singular_values, ("svd",)),
    (with_distinct_eigenvalues, ("eigh", "eig")),
    (of_full_rank, ("qr", "inv", "inverse", "solve", "slogdet", "logdet", "det")),
    (positive_definite, ("cholesky",)),
)


def decompositions() -> list[tuple[tuple[Callable[..., Any], ...], Shifted]]:
    """The functions of torch that decompose a matrix, and for each what keeps it from the edge."""
    places = (torch.linalg, torch, Tensor)
    return [
        (tuple(getattr(place, name) for name in names for place in places if hasattr(place, name)), shifted)
        for shifted, names in _OF
    ]


def shift(matrix: Any, shifted: Shifted) -> Tensor | None:
    """What ``shifted`` makes of a matrix or a batch of them; None for anything else, and where nothing need change."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point() or matrix.dim() < 2 or not matrix.numel():
        return None
    with torch.no_grad():
        if not bool(torch.isfinite(matrix).all()):
            return None
        found = shifted(matrix)
        return None if found is None else found - matrix
