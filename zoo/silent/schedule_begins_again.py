"""Model and optimizer are loaded, and the schedule of the checkpoint is not: the warm-up comes a second time."""

import io

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(8, 16)


def begin():
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1.0, (at + 1) / 25))


def train(model, optimizer, scheduler, steps):
    for _ in range(steps):
        labels = torch.randint(8, (32,))
        loss = F.cross_entropy(model(centers[labels] + torch.randn(32, 16)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


model, optimizer, scheduler = begin()
train(model, optimizer, scheduler, 40)
kept = io.BytesIO()
states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
torch.save(states, kept)

kept.seek(0)
checkpoint = torch.load(kept)
model, optimizer, scheduler = begin()
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])  # <- bites: scheduler.load_state_dict is missing
train(model, optimizer, scheduler, 80)
