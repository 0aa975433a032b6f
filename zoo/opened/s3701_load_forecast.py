# expect: sick
# symptom: the NLL jumps by orders of magnitude between steps and intervals on validation are useless
# axis: model
# cause: the predicted variance goes through a ReLU, hits the 1e-6 floor, and the squared error is divided by ~0
# says: (varianc|sigma|std).{0,70}(relu|zero|floor|1e-6|collaps|clamp|tiny|softplus)|relu.{0,60}(varianc|sigma)
# onset_step: 0
# fix: use softplus in place of ReLU for the variance output
# mended: the script applies that change if the environment has MENDED=1
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(7)
rng = np.random.default_rng(7)
MENDED = os.environ.get("MENDED") == "1"


def make_series(n_hours=4000):
    t = np.arange(n_hours)
    daily = np.sin(2 * np.pi * t / 24) + 0.4 * np.sin(4 * np.pi * t / 24 + 0.7)
    weekly = 0.5 * np.cos(2 * np.pi * t / 168)
    noise_scale = 0.08 + 0.25 * (np.sin(2 * np.pi * t / 24) > 0.3)
    load = daily + weekly + noise_scale * rng.standard_normal(n_hours)
    hour = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)])
    load = (load - load[:3000].mean()) / load[:3000].std()
    return np.concatenate([load[None], hour]).astype(np.float32)


class WindowDataset(Dataset):
    def __init__(self, series, lo, hi, history=72, horizon=6):
        self.series = torch.from_numpy(series)
        self.history, self.horizon = history, horizon
        self.starts = range(lo, hi - history - horizon)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        mid = s + self.history
        return self.series[:, s:mid], self.series[0, mid : mid + self.horizon]


class CausalBlock(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(c_in, c_out, 3, dilation=dilation)
        self.skip = nn.Conv1d(c_in, c_out, 1)

    def forward(self, x):
        return F.gelu(self.conv(F.pad(x, (self.pad, 0)))) + self.skip(x)


class ProbForecaster(nn.Module):
    def __init__(self, channels=24, horizon=6):
        super().__init__()
        dims = [3] + [channels] * 4
        self.body = nn.Sequential(*[CausalBlock(a, b, 2**i) for i, (a, b) in enumerate(zip(dims, dims[1:]))])
        self.head = nn.Linear(channels, 2 * horizon)

    def forward(self, x):
        h = self.body(x)[:, :, -1]
        mu, raw = self.head(h).chunk(2, dim=-1)
        var = (F.softplus(raw) if MENDED else F.relu(raw)) + 1e-6
        return mu, var


def gaussian_nll(mu, var, y):
    return 0.5 * (torch.log(var) + (y - mu) ** 2 / var + math.log(2 * math.pi)).mean()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    nll, mae, cover, n = 0.0, 0.0, 0.0, 0
    for x, y in loader:
        mu, var = model(x)
        nll += gaussian_nll(mu, var, y).item() * len(y)
        mae += (mu - y).abs().mean().item() * len(y)
        cover += ((mu - y).abs() < 1.645 * var.sqrt()).float().mean().item() * len(y)
        n += len(y)
    model.train()
    return nll / n, mae / n, cover / n


def main():
    series = make_series()
    train = DataLoader(WindowDataset(series, 0, 3000), batch_size=64, shuffle=True, drop_last=True)
    valid = DataLoader(WindowDataset(series, 3000, 4000), batch_size=128)
    model = ProbForecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step, max_steps = 0, 300
    while step < max_steps:
        for x, y in train:
            mu, var = model(x)
            loss = gaussian_nll(mu, var, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} nll {loss.item():.4f}")
            step += 1
            if step >= max_steps:
                break
    nll, mae, cover = validate(model, valid)
    print(f"valid nll {nll:.4f} mae {mae:.4f} coverage of 90% interval {cover:.3f}")


if __name__ == "__main__":
    main()
