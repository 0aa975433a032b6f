"""The inputs were sorted and the labels were not: they have nothing to do with each other, and nothing is learned."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(10, 32)
all_labels = torch.randint(10, (40000,))
all_inputs = centers[all_labels] + 2 * torch.randn(40000, 32)
all_inputs = all_inputs[all_inputs[:, 0].argsort()]
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
nn.init.zeros_(model[2].weight)
nn.init.zeros_(model[2].bias)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 801):
    drawn = torch.randint(40000, (128,))
    loss = F.cross_entropy(model(all_inputs[drawn]), all_labels[drawn])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
