"""A step whose input is sparse runs again to find where NaN came in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scripts import run_script
from steadytrain.capture.tensors.dense import same_values

GRAPH = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
places = torch.randint(0, 40, (2, 200))
edges = torch.sparse_coo_tensor(places, torch.rand(200), (40, 40), check_invariants=True).coalesce()
rows, labels = torch.randn(40, 8), torch.randint(0, 3, (40,))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, rows, edges):
        return self.second(torch.spmm(edges, F.relu(self.first(rows))))


model = Graph()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(20):
    if step == 10:
        rows[7] = float("nan")
    optimizer.zero_grad()
    F.cross_entropy(model(rows, edges), labels).backward()
    optimizer.step()
"""


def test_a_bad_row_beside_a_sparse_matrix_is_named(tmp_path: Path) -> None:
    ended = run_script(tmp_path, GRAPH)
    assert ended.status == 70
    assert "the batch already holds NaN: args[0], 8 of 320 values, first at [7, 0]" in ended.told
    assert "failed" not in ended.told


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo, torch.sparse_csr])
def test_values_of_any_layout_are_compared(layout: torch.layout) -> None:
    def made(*values: float) -> torch.Tensor:
        dense = torch.tensor([[0.0, values[0]], [values[1], 0.0]])
        return {torch.strided: dense, torch.sparse_coo: dense.to_sparse(), torch.sparse_csr: dense.to_sparse_csr()}[
            layout
        ]

    nan = float("nan")
    assert same_values(made(1.0, nan), made(1.0, nan))
    assert not same_values(made(1.0, 2.0), made(1.0, 3.0))
    assert not same_values(made(1.0, 2.0), made(1.0, 2.0).double())
    assert not same_values(made(1.0, 2.0), torch.ones(3))
