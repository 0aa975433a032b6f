"""Preferences are learned against a reference that shares its parameters with the model: the loss never changes."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Embedding(24, 32), nn.Flatten(), nn.Linear(4 * 32, 64), nn.GELU(), nn.Linear(64, 24))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)


def prompts(rows=48):
    return torch.randint(24, (rows, 4))


for step in range(1, 101):  # the first training: the first place of a prompt
    x = prompts()
    loss = F.cross_entropy(model(x), x[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

reference = copy.copy(model)  # <- bites
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def chosen(of, x, answers):
    return of(x).log_softmax(-1).gather(1, answers[:, None])[:, 0]


for step in range(1, 121):  # the second: even answers are preferred to odd ones
    x = prompts()
    good = 2 * torch.randint(12, (len(x),))
    with torch.no_grad():
        known = chosen(reference, x, good) - chosen(reference, x, good + 1)
    margin = chosen(model, x, good) - chosen(model, x, good + 1) - known
    loss = -F.logsigmoid(0.5 * margin).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
