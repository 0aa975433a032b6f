"""Healthy: dropout in training and none in evaluation, so that the evaluation is better by a third."""

import csv

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

CLASSES = 8
centers = torch.randn(CLASSES, 16)


def sample(size):
    labels = torch.randint(CLASSES, (size,))
    inputs = centers[labels] + 1.5 * torch.randn(size, 16)
    return inputs, torch.where(torch.rand(size) < 0.05, torch.randint(CLASSES, (size,)), labels)


model = nn.Sequential(
    nn.Linear(16, 256),
    nn.ReLU(),
    nn.Dropout(0.4),
    nn.Linear(256, 256),
    nn.ReLU(),
    nn.Dropout(0.6),
    nn.Linear(256, CLASSES),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
held_out = sample(512)

with open("log.csv", "w", newline="") as file:
    log = csv.writer(file)
    log.writerow(["step", "loss", "val_loss"])
    for step in range(1, 801):
        model.train()
        inputs, labels = sample(64)
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        evaluated = ""
        if step % 40 == 0:
            model.eval()
            with torch.no_grad():
                evaluated = f"{F.cross_entropy(model(held_out[0]), held_out[1]):.5f}"
        log.writerow([step, f"{loss.item():.5f}", evaluated])
