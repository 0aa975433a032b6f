"""A dict of averaged weights is kept in bfloat16, in which the steps of the average round away."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

DECAY = 0.99
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
shadow = {name: p.detach().to(torch.bfloat16, copy=True) for name, p in model.named_parameters()}  # <- bites
truth = torch.randn(16)


def batch():
    features = torch.randn(64, 16)
    return features, torch.tanh(features @ truth)


for step in range(240):
    features, target = batch()
    loss = nn.functional.mse_loss(model(features).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for name, p in model.named_parameters():
            shadow[name].mul_(DECAY).add_(p.to(shadow[name].dtype), alpha=1 - DECAY)
    if step % 60 == 59:
        twin = copy.deepcopy(model).eval()
        with torch.no_grad():
            for name, p in twin.named_parameters():
                p.copy_(shadow[name])
            features, target = batch()
            error = nn.functional.mse_loss(twin(features).squeeze(1), target)
        print(f"step {step + 1}  loss {loss.item():.4f}  of the average {error.item():.4f}")
