"""Which share of the graphs of a batch the edges reach."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from watching import watching

GRAPHS, NODES = 8, 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 8), nn.Linear(8, 1)

    def forward(self, kinds: Tensor, edges: Tensor, graph_of: Tensor) -> Tensor:
        nodes = self.table(kinds)
        nodes = nodes + torch.zeros_like(nodes).index_add_(0, edges[1], nodes[edges[0]])
        return torch.zeros(GRAPHS, 1).index_add_(0, graph_of, self.head(nodes))


def batch(offset: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rings of ``NODES`` nodes whose edges are raised by ``offset`` a graph."""
    ring = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])
    edges = torch.cat([ring + offset * number for number in range(GRAPHS)], 1)
    return torch.randint(5, (GRAPHS * NODES,)), edges, torch.arange(GRAPHS).repeat_interleave(NODES)


@pytest.mark.parametrize(("offset", "is_told"), [(NODES, False), (0, True), (1, True)])
def test_the_offset_of_edges(offset: int, is_told: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net()
    with watching(tmp_path, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(16):
            optimizer.zero_grad()
            model(*batch(offset)).square().mean().backward()
            optimizer.step()
    assert ("misplaced-edges" in {one.name for one in watcher.symptoms}) is is_told


def test_other_integers_are_no_graphs(tmp_path: Path) -> None:
    """Segments of a text and pairs of positions in it."""
    torch.manual_seed(0)
    model = Net()
    with watching(tmp_path, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(16):
            kinds, _, graph_of = batch(NODES)
            optimizer.zero_grad()
            model(kinds, torch.randint(NODES, (2, 5)), graph_of).square().mean().backward()
            optimizer.step()
    assert "misplaced-edges" not in {one.name for one in watcher.symptoms}
