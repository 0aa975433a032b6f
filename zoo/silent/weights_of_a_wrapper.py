"""Saved from inside a wrapper, so every name begins with `module.`: the load is not strict, and loads nothing."""

import io

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(8, 16)


def network():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        labels = torch.randint(8, (32,))
        loss = F.cross_entropy(model(centers[labels] + torch.randn(32, 16)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


pretrained = nn.DataParallel(network())
train(pretrained, 40)
kept = io.BytesIO()
torch.save(pretrained.state_dict(), kept)

kept.seek(0)
model = network()
model.load_state_dict(torch.load(kept), strict=False)  # <- bites: no name is the model's
train(model, 60)
