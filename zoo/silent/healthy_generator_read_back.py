"""A resume reads all states."""

import io

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def begin():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99), torch.Generator().manual_seed(1)


def train(model, optimizer, schedule, draws, steps):
    for _ in range(steps):
        x = torch.randn(64, 8, generator=draws)
        loss = nn.functional.mse_loss(model(x).squeeze(-1), x.square().sum(1).sqrt())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.3f}")


model, optimizer, schedule, draws = begin()
train(model, optimizer, schedule, draws, 80)
saved = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "schedule": schedule.state_dict(),
    "draws": draws.get_state(),
}
disk = io.BytesIO()
torch.save(saved, disk)
disk.seek(0)

model, optimizer, schedule, draws = begin()
loaded = torch.load(disk)
model.load_state_dict(loaded["model"])
optimizer.load_state_dict(loaded["optimizer"])
schedule.load_state_dict(loaded["schedule"])
draws.set_state(loaded["draws"])
train(model, optimizer, schedule, draws, 80)
