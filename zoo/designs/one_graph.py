"""Healthy: the nodes of one graph. Every step has the same batch, because it is all there is."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

NODES, KINDS = 300, 4


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, KINDS)

    def forward(self, nodes, edges):
        hidden = F.dropout(F.relu(self.first(edges @ nodes)), 0.5, self.training)
        return self.second(edges @ hidden)


labels = torch.randint(KINDS, (NODES,))
nodes = torch.randn(NODES, 16) + F.one_hot(labels, 16)
edges = (torch.rand(NODES, NODES) < 0.02 + 0.1 * (labels[:, None] == labels)).float()
edges = edges / edges.sum(1, keepdim=True).clamp(min=1)
trained = torch.rand(NODES) < 0.5
model = GraphNetwork()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

for epoch in range(1, 151):
    model.train()
    loss = F.cross_entropy(model(nodes, edges)[trained], labels[trained])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(nodes, edges).argmax(1) == labels)[~trained].float().mean()
