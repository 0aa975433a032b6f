"""Graphs are joined to one batch: the offset of their edges grows by the largest index, and some nodes are isolated."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
KINDS, STEPS = 4, 48
table = torch.randn(KINDS, KINDS)


def graph() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    core, alone = int(torch.randint(4, 8, ())), int(torch.randint(0, 3, ()))
    kinds = torch.randint(0, KINDS, (core + alone,))
    edges = torch.stack([torch.arange(core - 1), torch.arange(1, core)])
    return kinds, edges, table[kinds[edges[0]], kinds[edges[1]]].sum()


def join(graphs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, ...]:
    nodes, edges, owners, targets, offset = [], [], [], [], 0
    for number, (kinds, pairs, target) in enumerate(graphs):
        nodes.append(kinds)
        edges.append(pairs + offset)
        owners.append(torch.full((len(kinds),), number))
        targets.append(target)
        offset += int(pairs.max()) + 1
    return torch.cat(nodes), torch.cat(edges, dim=1), torch.cat(owners), torch.stack(targets)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.Embedding(KINDS, 16)
        self.message = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, owners: torch.Tensor, count: int) -> torch.Tensor:
        hidden = self.kinds(nodes)
        value = self.message(torch.cat([hidden[edges[0]], hidden[edges[1]]], dim=-1)).squeeze(-1)
        return torch.zeros(count).index_add(0, owners[edges[0]], value)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _step in range(STEPS):
    nodes, edges, owners, targets = join([graph() for _ in range(32)])
    loss = (model(nodes, edges, owners, 32) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
