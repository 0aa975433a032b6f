# expect: sick
# symptom: the loss starts at about 1e9, explodes within a few steps and becomes Inf/NaN
# axis: data
# cause: the regression targets are in raw units (tens of thousands) while only the inputs are standardised
# says: (target|label|\by\b).{0,80}(scal|standardi|normali|raw|unit|magnitude|large|huge)|(raw|large) (target|y\b)
# onset_step: 0
# fix: take the targets from the standardised series too and undo the scaling for the metric
# mended: the script applies that change if the environment has MENDED=1
"""Day-ahead forecast of the electric load of a town with a small TCN."""

import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(21)
MENDED = os.environ.get("MENDED") == "1"

PAST, AHEAD = 72, 12
TRAIN_HOURS = 24 * 160


def make_load(hours, seed=4):
    """Hourly load in kW: base, daily and weekly shape, a slow weather term and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    weather = np.zeros(hours)
    for i in range(1, hours):
        weather[i] = 0.97 * weather[i - 1] + 0.25 * rng.standard_normal()
    daily = np.sin(2 * np.pi * (t - 7) / 24) + 0.4 * np.sin(4 * np.pi * t / 24)
    weekend = ((t // 24) % 7 >= 5).astype(float)
    load = 42000 + 9000 * daily * (1 - 0.5 * weekend) - 5000 * weekend + 3500 * weather
    load += 600 * rng.standard_normal(hours)
    return load.astype(np.float32)


class LoadWindows(Dataset):
    def __init__(self, load, mean, std, begin, end):
        self.load = torch.from_numpy(load)
        self.scaled = (self.load - mean) / std
        self.target = self.scaled if MENDED else self.load
        self.starts = range(begin, end - PAST - AHEAD)
        hours = torch.arange(len(load))
        self.clock = torch.stack(
            [
                torch.sin(2 * torch.pi * hours / 24),
                torch.cos(2 * torch.pi * hours / 24),
                ((hours // 24) % 7 >= 5).float(),
            ]
        )

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        x = torch.cat([self.scaled[None, s : s + PAST], self.clock[:, s : s + PAST]])
        return x, self.target[s + PAST : s + PAST + AHEAD]


class CausalBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation)
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.act(self.conv(self.pad(x)))


class TCN(nn.Module):
    def __init__(self, channels=4, width=24):
        super().__init__()
        self.inp = nn.Conv1d(channels, width, 1)
        self.blocks = nn.Sequential(*[CausalBlock(width, d) for d in (1, 2, 4, 8, 16)])
        self.out = nn.Linear(width, AHEAD)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))[:, :, -1])


@torch.no_grad()
def mape(model, loader, mean, std):
    errors = []
    for x, y in loader:
        p = model(x)
        if MENDED:
            p, y = p * std + mean, y * std + mean
        errors.append(((p - y).abs() / y).mean())
    return 100 * torch.stack(errors).mean().item()


def main():
    load = make_load(24 * 210)
    mean, std = float(load[:TRAIN_HOURS].mean()), float(load[:TRAIN_HOURS].std())
    train = DataLoader(LoadWindows(load, mean, std, 0, TRAIN_HOURS), batch_size=32, shuffle=True)
    test = DataLoader(LoadWindows(load, mean, std, TRAIN_HOURS, len(load)), batch_size=256)
    model = TCN()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3 * len(train))
    loss_fn = nn.MSELoss()
    step = 0
    for epoch in range(3):
        for x, y in train:
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 20 == 0 or step < 5:
                print(f"step {step:4d} loss {loss.item():.5g}")
            step += 1
        print(f"epoch {epoch}: test MAPE {mape(model, test, mean, std):.2f} %")
    print(f"final loss {loss.item():.5g} test MAPE {mape(model, test, mean, std):.2f} %")


if __name__ == "__main__":
    main()
