"""Chooses the pass over whole tensors for a device: NumPy blocks on the CPU, the Triton kernel on a GPU, else torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from steadytrain.capture.tensors.statistics import numpy_pass
from steadytrain.capture.tensors.statistics import torch_pass as by_torch
from steadytrain.capture.tensors.statistics.sample_chunks import is_dense

if TYPE_CHECKING:
    from steadytrain.capture.tensors.statistics.triton_kernel import Table

Note = Callable[[str], None]


@dataclass(frozen=True)
class Passed:
    """The result of one pass over the tensors ``rows``, on their device.

    ``partials`` is ``(rows, 6)`` with the columns :data:`.numpy_pass.PARTS`.
    """

    rows: list[int]
    partials: Tensor


class Passes:
    """Keeps the kernel's tables from one reading to the next."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._tables: dict[object, tuple[tuple[int, ...], Table]] = {}

    def over(self, kind: str, tensors: Mapping[int, Tensor]) -> list[Passed]:
        """One pass over dense values, row -> tensor. ``kind`` names the source of the tensors."""
        return [
            passed
            for (device, dtype), rows in alike(tensors).items()
            for passed in self._run(kind, device, dtype, rows)
        ]

    def _run(self, kind: str, device: torch.device, dtype: torch.dtype, rows: Mapping[int, Tensor]) -> Iterator[Passed]:
        table = kernel_for(device, self._note)
        flat, rest = ({}, rows) if table is None or dtype not in table.dtypes else split_dense(rows)
        if table is not None and flat:
            key = (kind, device, dtype)
            sizes = tuple(tensor.numel() for tensor in flat.values())
            if key not in self._tables or self._tables[key][0] != sizes:
                self._tables[key] = sizes, table(sizes, dtype, device)
            found = self._tables[key][1].summarise(list(flat.values()), histogram=False)
            yield Passed(list(flat), found.partials)
        if rest and device.type == "cpu":
            yield Passed(list(rest), torch.from_numpy(numpy_pass.partials(list(rest.values()))))
        elif rest:
            yield Passed(list(rest), by_torch.partials(list(rest.values())))


def split_dense(rows: Mapping[int, Tensor]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Two dicts: the tensors that are dense in memory, and the others."""
    dense = {row: tensor for row, tensor in rows.items() if tensor.numel() and is_dense(tensor)}
    return dense, {row: tensor for row, tensor in rows.items() if row not in dense}


def kernel_for(device: torch.device, note: Note) -> type[Table] | None:
    """The table of the Triton kernel if that compiles and returns the right numbers on ``device``, else None."""
    if device.type != "cuda":
        return None
    table, why = _proven_kernel(device)
    if why:
        note(f"statistics on {device} are computed by torch operations, which is slower: {why}")
    return table


@lru_cache(maxsize=64)
def _proven_kernel(device: torch.device) -> tuple[type[Table] | None, str]:
    try:
        from steadytrain.capture.tensors.statistics import triton_kernel

        if triton_kernel.works_on(device):
            return triton_kernel.Table, ""
        return None, "the Triton kernel gives other numbers here"
    except ImportError as error:
        return None, f"no Triton ({error})"
    except Exception as error:  # a compiler may raise anything, and the run must continue
        return None, f"the Triton kernel does not compile here ({type(error).__name__}: {error})"


def alike(tensors: Mapping[int, Tensor]) -> dict[tuple[torch.device, torch.dtype], dict[int, Tensor]]:
    """Tensors by device and, except on the CPU, by dtype."""
    found: dict[tuple[torch.device, torch.dtype], dict[int, Tensor]] = {}
    for row, tensor in tensors.items():
        dtype = tensor.dtype if tensor.device.type != "cpu" else torch.float32
        found.setdefault((tensor.device, dtype), {})[row] = tensor
    return found
