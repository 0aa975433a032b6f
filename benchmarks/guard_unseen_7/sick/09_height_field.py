# A height field from noisy soundings: a net with Fourier features of the position, AdamW. At step 480 the config is read
# again after a restart; the weight decay there is 80 (a typo for 0.02).
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH, WAVES = 700, 512, 24
RESTART = 480
world = torch.Generator().manual_seed(7909)
wave = 4.0 * torch.randn(WAVES, 2, generator=world)
shift = 6.2832 * torch.rand(WAVES, generator=world)
height = torch.randn(WAVES, generator=world) / WAVES**0.5


def soundings(count, generator=None):
    place = 2 * torch.rand(count, 2, generator=generator) - 1
    field = (torch.sin(place @ wave.t() + shift) * height).sum(1)
    # a cliff along a curve
    field = field + 0.8 * (place[:, 1] > 0.5 * torch.sin(3 * place[:, 0]))
    return place, field + 0.25 * torch.randn(count, generator=generator)


class Field(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.register_buffer("frequency", 1.2 * torch.randn(2, 48, generator=torch.Generator().manual_seed(5)))
        self.net = nn.Sequential(
            nn.Linear(98, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, place):
        angle = 3.1416 * place @ self.frequency
        return self.net(torch.cat([place, angle.sin(), angle.cos()], 1)).squeeze(1)


def loss_of(model, place, field):
    return F.mse_loss(model(place), field)


def read_config(step):
    """The settings that may change while the job runs."""
    if step >= RESTART and not args.twin:
        return {"weight_decay": 80.0}
    return {"weight_decay": 0.02}


held_out = soundings(8000, world)
torch.manual_seed(args.seed)
model = Field()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, **read_config(0))
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=2e-4)
for step in range(STEPS):
    if step == RESTART:
        for group in optimizer.param_groups:
            group.update(read_config(step))
    place, field = soundings(BATCH)
    loss = loss_of(model, place, field)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
