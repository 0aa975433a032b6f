"""Healthy: a trained model is fitted to labels of other frequencies by its biases alone."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = torch.randn(64, 5)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
for name, one in model.named_parameters():
    one.requires_grad_("bias" in name)
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=3e-3)

for step in range(1, 145):
    x = torch.randn(256, 64)
    loss = F.cross_entropy(model(x), (x @ teacher + torch.tensor([4.0, 2.0, 0.0, -2.0, -4.0])).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
