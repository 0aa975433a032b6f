# expect: sick
# symptom: the printed learning rate decays to 0 as planned but in the second stage the loss stays noisy and high up to the last step, as if the rate never fell
# axis: optimizer
# cause: after the unfreezing a new optimizer is made, but the scheduler still drives the first one, so the rate in use stays constant
# says: schedul.*(old|first|previous|other|another|wrong|stale|unused|no longer|different|discarded|replaced)|(old|stale|replaced|new) optimi[sz]er|lr.*(never|constant)
# onset_step: 60
# fix: make a new scheduler for the new optimizer (or add the parameters as a group to the first optimizer)
# mended: the scheduler is made again with the optimizer
import os
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingLR

torch.set_num_threads(1)
torch.manual_seed(41)
MENDED = os.environ.get("MENDED") == "1"
STAGE1, STAGE2, BATCH = 60, 340, 8


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.encoder(x))


MIX = torch.randn(32, 4) / 6


def batch(n=BATCH):
    x = torch.randn(n, 32)
    return x, torch.sin(1.2 * x @ MIX) + 0.5 * torch.randn(n, 4)


model = Forecaster()
model.encoder.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.08, momentum=0.9)
scheduler = CosineAnnealingLR(optimizer, T_max=STAGE1 + STAGE2)
x_val, y_val = batch(1000)
window = []
for step in range(STAGE1 + STAGE2):
    if step == STAGE1:
        print("unfreezing the encoder")
        model.encoder.requires_grad_(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9)
        if MENDED:
            scheduler = CosineAnnealingLR(optimizer, T_max=STAGE2)
    x, y = batch()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    window.append(loss.item())
    if (step + 1) % 40 == 0:
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x_val), y_val).item()
        print(f"step {step + 1} lr {scheduler.get_last_lr()[0]:.4f} loss {sum(window[-40:]) / 40:.4f} val {val:.4f}")
