"""A pretrained part is unfrozen in mid-run and given to the optimizer."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
model = nn.Sequential(encoder, nn.Linear(64, 4))
teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
encoder.requires_grad_(False)
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=3e-3)

for step in range(1, 241):
    if step == 101:
        encoder.requires_grad_(True)
        optimizer.add_param_group({"params": encoder.parameters(), "lr": 1e-3})
    x = torch.randn(64, 16)
    loss = F.cross_entropy(model(x), teacher(x).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
