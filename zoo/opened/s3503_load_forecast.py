# expect: sick
# symptom: wild spikes in the loss throw the run off, in the end no better than untrained, although clipping is on
# axis: optimizer
# cause: clip_grad_norm_ is called before backward(), when the gradients are empty, so nothing is ever clipped
# says: clip.{0,80}(before|no effect|nothing|never|(are|is) (empty|None)|ineffect|order|too early|prior to)
# onset_step: 0
# fix: call clip_grad_norm_ between loss.backward() and optimizer.step()
# mended: the script applies that change if the environment has MENDED=1
"""Day-ahead electricity load forecast with a GRU encoder and a dense decoder."""

import os

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
PAST, AHEAD = 48, 12


class LoadSeries(Dataset):
    """Hourly load of one substation, with daily and weekly cycles and switching surges."""

    def __init__(self, hours, start, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(start, start + hours)
        base = np.sin(2 * np.pi * t / 24) + 0.5 * np.sin(2 * np.pi * t / 168) + 0.3 * np.sin(4 * np.pi * t / 24)
        noise = np.zeros(hours)
        for i in range(1, hours):
            noise[i] = 0.8 * noise[i - 1] + 0.1 * rng.normal()
        surge = (rng.random(hours) < 0.002) * rng.uniform(80, 200, hours)
        self.y = torch.tensor(base + noise + surge, dtype=torch.float32)
        hour = 2 * np.pi * (t % 24) / 24
        self.cal = torch.tensor(np.stack([np.sin(hour), np.cos(hour)], 1), dtype=torch.float32)

    def __len__(self):
        return len(self.y) - PAST - AHEAD

    def __getitem__(self, i):
        past = torch.cat([self.y[i : i + PAST, None], self.cal[i : i + PAST]], 1)
        return past, self.y[i + PAST : i + PAST + AHEAD]


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.GRU(3, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 64), nn.ReLU(), nn.Linear(64, AHEAD))

    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[-1])


class Trainer:
    def __init__(self, model, lr, max_norm):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.max_norm = max_norm
        self.criterion = nn.MSELoss()
        self.step_no = 0

    def update(self, loss):
        self.opt.zero_grad()
        if MENDED:
            loss.backward()
        clip_grad_norm_(self.model.parameters(), self.max_norm)
        if not MENDED:
            loss.backward()
        self.opt.step()
        self.step_no += 1

    def fit(self, loader, steps):
        self.model.train()
        while True:
            for x, y in loader:
                loss = self.criterion(self.model(x), y)
                self.update(loss)
                if self.step_no % 20 == 1:
                    print(f"step {self.step_no:4d} mse {loss.item():.4f}")
                if self.step_no >= steps:
                    return

    @torch.no_grad()
    def median_error(self, loader):
        self.model.eval()
        err = torch.cat([(self.model(x) - y).abs().flatten() for x, y in loader])
        return err.median().item()


def main():
    torch.manual_seed(3)
    train = DataLoader(LoadSeries(6000, 0, 1), batch_size=32, shuffle=True)
    valid = DataLoader(LoadSeries(800, 6000, 2), batch_size=256)
    trainer = Trainer(Forecaster(), lr=0.15, max_norm=0.5)
    print(f"before: median abs error {trainer.median_error(valid):.3f}")
    trainer.fit(train, 400)
    print(f"after: median abs error {trainer.median_error(valid):.3f}")


if __name__ == "__main__":
    main()
