"""The edges of a batch of graphs all point to the nodes of the first ones."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Graphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 24)
        self.message, self.update = nn.Linear(48, 24), nn.Linear(48, 24)
        self.head = nn.Linear(24, 1)

    def forward(self, kinds, edges, graph_of, graphs):
        nodes = self.table(kinds)
        sent = self.message(torch.cat([nodes[edges[0]], nodes[edges[1]]], 1)).relu()
        got = torch.zeros_like(nodes).index_add(0, edges[1], sent)
        nodes = self.update(torch.cat([nodes, got], 1)).relu()
        return torch.zeros(graphs, 1).index_add(0, graph_of, self.head(nodes))


def ring(nodes):
    """A ring of nodes of four kinds; the target counts the neighbours of one kind."""
    kinds = torch.randint(4, (nodes,))
    pairs = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    equal = (kinds[pairs[0]] == kinds[pairs[1]]).sum()
    return kinds, torch.cat([pairs, pairs.flip(0)], 1), equal.float()


def together(graphs):
    kinds, edges, graph_of, before = [], [], [], 0
    for number, (nodes, pairs, _) in enumerate(graphs):
        kinds.append(nodes)
        edges.append(pairs)  # <- bites
        graph_of.append(torch.full((len(nodes),), number))
        before += len(nodes)
    return torch.cat(kinds), torch.cat(edges, 1), torch.cat(graph_of)


graphs = [ring(int(torch.randint(3, 12, ()))) for _ in range(512)]
model = Graphs()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 201):
    batch = [graphs[int(one)] for one in torch.randint(len(graphs), (32,))]
    target = torch.stack([one[2] for one in batch])[:, None]
    loss = (model(*together(batch), len(batch)) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
