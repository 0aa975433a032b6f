# expect: healthy
# symptom: the loss goes below zero and keeps falling, and every step is clipped (resembles a loss with the wrong sign or one that diverges to minus infinity)
# axis: none
# cause: healthy: the loss is a Gaussian negative log-likelihood, a density may exceed one so negative values are right, sigma has a floor, and the held-out score and the coverage agree
# says: none
# onset_step: none
# fix: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SEED = 77
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)


def demand(days):
    """Hourly electricity demand as a share of capacity, with noise that depends on the hour."""
    h = np.arange(days * 24)
    hour = h % 24
    base = 0.5 + 0.2 * np.sin(2 * np.pi * (hour - 8) / 24) + 0.05 * np.sin(2 * np.pi * h / 168)
    sd = np.where((hour > 6) & (hour < 20), 0.03, 0.008)
    return (base + sd * rng.standard_normal(len(h))).astype(np.float32), hour.astype(np.int64)


class Hours(Dataset):
    def __init__(self, series, hour, context=36):
        self.s, self.h, self.c = torch.from_numpy(series), torch.from_numpy(hour), context

    def __len__(self):
        return len(self.s) - self.c

    def __getitem__(self, i):
        j = i + self.c
        return self.s[i:j, None], self.h[j], self.s[j]


class DeepForecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.hour = nn.Embedding(24, 8)
        self.mlp = nn.Sequential(nn.Linear(hidden + 8, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x, hour):
        _, h = self.rnn(x - 0.5)
        mu, raw = self.mlp(torch.cat([h[-1], self.hour(hour)], 1)).unbind(1)
        return 0.5 + mu, nn.functional.softplus(raw) + 1e-3


def gaussian_nll(mu, sigma, y):
    return (torch.log(sigma) + 0.5 * ((y - mu) / sigma) ** 2 + 0.9189).mean()


@torch.no_grad()
def report(model, loader):
    model.eval()
    nll, inside, n = 0.0, 0, 0
    for x, hour, y in loader:
        mu, sigma = model(x, hour)
        nll += gaussian_nll(mu, sigma, y).item() * len(y)
        inside += ((y - mu).abs() < 1.645 * sigma).sum().item()
        n += len(y)
    model.train()
    return nll / n, inside / n


series, hour = demand(500)
cut = 420 * 24
train = DataLoader(Hours(series[:cut], hour[:cut]), batch_size=64, shuffle=True, drop_last=True)
test = DataLoader(Hours(series[cut:], hour[cut:]), batch_size=256)
model = DeepForecaster()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
total = 500
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30) * max(0.05, 1 - s / total))

step = 0
while step < total:
    for x, hr, y in train:
        loss = gaussian_nll(*model(x, hr), y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
        sched.step()
        step += 1
        if step % 50 == 0:
            print(f"step {step} nll {loss.item():.4f} grad norm {norm.item():.2f} (clipped at 0.1)", flush=True)
        if step == total:
            break
nll, cover = report(model, test)
print(f"held-out nll {nll:.4f}, 90% interval covers {100 * cover:.1f}%")
