"""The loss of a graph network is taken over all nodes, those that it is tested on among them."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

NODES, CLASSES = 400, 4
labels = torch.randint(0, CLASSES, (NODES,))
near = (labels[:, None] == labels[None]).float() * 0.03 + 0.01
adjacency = (torch.rand(NODES, NODES) < near).float()
adjacency = ((adjacency + adjacency.T + torch.eye(NODES)) > 0).float()
adjacency = adjacency / adjacency.sum(1, keepdim=True)
features = F.one_hot(labels, CLASSES).float() + 1.5 * torch.randn(NODES, CLASSES)
order = torch.randperm(NODES)
train_mask, test_mask = torch.zeros(NODES, dtype=torch.bool), torch.zeros(NODES, dtype=torch.bool)
train_mask[order[:80]], test_mask[order[200:]] = True, True


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first, self.last = nn.Linear(CLASSES, width), nn.Linear(width, CLASSES)

    def forward(self, x, adjacency):
        return self.last(adjacency @ F.relu(self.first(adjacency @ x)))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1, 161):
    out = model(features, adjacency)
    loss = F.cross_entropy(out, labels)  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        right = (out.argmax(1) == labels)[test_mask].float().mean().item()
        print(f"step {step}  loss {loss.item():.3f}  of {labels[test_mask].numel()} test nodes {right:.3f}")
