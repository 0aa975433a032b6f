# expect: healthy
# symptom: the loss jumps up at regular intervals (warm restarts of the learning rate), as if the run were unstable
# axis: schedule
"""Probabilistic forecast of hourly electricity load with a GRU, pinball loss,
SGDR warm restarts and snapshot averaging at the end of every cycle."""

import copy

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import DataLoader, Dataset

QUANTILES = torch.tensor([0.1, 0.5, 0.9])
PAST, AHEAD, CYCLE, CYCLES = 72, 12, 120, 5


def simulate(hours=24 * 400, seed=9):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    temp = 10 - 9 * np.cos(2 * np.pi * t / 8766) - 4 * np.cos(2 * np.pi * (t - 3) / 24)
    ar = np.zeros(hours)
    for i in range(1, hours):
        ar[i] = 0.97 * ar[i - 1] + rng.normal(0, 0.5)
    temp = temp + ar
    weekend = ((t // 24) % 7 >= 5).astype(float)
    daily = 6 * np.sin(2 * np.pi * (t - 8) / 24) + 3 * np.sin(4 * np.pi * (t - 5) / 24)
    load = 50 + daily * (1 - 0.4 * weekend) + 0.9 * np.maximum(0, 14 - temp)
    load = load + rng.normal(0, 1, hours) * (0.6 + 0.5 * (np.sin(2 * np.pi * (t - 12) / 24) > 0))
    calendar = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24), weekend], 1)
    return load.astype(np.float32), temp.astype(np.float32), calendar.astype(np.float32)


class Windows(Dataset):
    def __init__(self, load, temp, cal, lo, hi, stats):
        (lm, ls), (tm, ts) = stats
        self.load, self.temp, self.cal = (load - lm) / ls, (temp - tm) / ts, cal
        self.start = np.arange(lo, hi - PAST - AHEAD)

    def __len__(self):
        return len(self.start)

    def __getitem__(self, i):
        a = self.start[i]
        b = a + PAST
        x = np.concatenate([self.load[a:b, None], self.temp[a:b, None], self.cal[a:b]], 1)
        return x, self.cal[b : b + AHEAD].reshape(-1), self.load[b : b + AHEAD]


class Forecaster(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.GRU(5, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden + 3 * AHEAD, 96), nn.ReLU(), nn.Linear(96, AHEAD * len(QUANTILES)))

    def forward(self, x, cal):
        _, h = self.rnn(x)
        return self.head(torch.cat([h[-1], cal], 1)).view(-1, AHEAD, len(QUANTILES))


def pinball(pred, y):
    e = y.unsqueeze(-1) - pred
    return torch.maximum(QUANTILES * e, (QUANTILES - 1) * e).mean()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses, inside, n = 0.0, 0.0, 0
    for x, c, y in loader:
        p = model(x, c)
        losses += pinball(p, y).item() * len(y)
        inside += ((y > p[..., 0]) & (y < p[..., 2])).float().mean().item() * len(y)
        n += len(y)
    model.train()
    return losses / n, inside / n


def main():
    torch.set_num_threads(1)
    torch.manual_seed(9)
    load, temp, cal = simulate()
    cut = 24 * 330
    stats = [(a[:cut].mean(), a[:cut].std()) for a in (load, temp)]
    train = DataLoader(Windows(load, temp, cal, 0, cut, stats), batch_size=64, shuffle=True, drop_last=True)
    valid = DataLoader(Windows(load, temp, cal, cut, len(load), stats), batch_size=256)
    model = Forecaster()
    opt = torch.optim.SGD(model.parameters(), lr=1.2, momentum=0.9, nesterov=True)
    sched = CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-3)
    step, snapshots, smooth = 0, [], None
    while step < CYCLE * CYCLES:
        for x, c, y in train:
            loss = pinball(model(x, c), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            sched.step()
            step += 1
            smooth = loss.item() if smooth is None else 0.8 * smooth + 0.2 * loss.item()
            if step % 20 == 0:
                print(f"step {step:4d}  lr {sched.get_last_lr()[0]:.3f}  pinball {smooth:.4f}")
            if step % CYCLE == 0:
                snapshots.append(copy.deepcopy(model.state_dict()))
                v, cover = validate(model, valid)
                print(f"--- snapshot {len(snapshots)}: valid pinball {v:.4f}, 80 % band covers {cover:.2f}")
            if step >= CYCLE * CYCLES:
                break
    mean = {k: torch.stack([s[k] for s in snapshots[-2:]]).mean(0) for k in snapshots[0]}
    model.load_state_dict(mean)
    print("average of the last two snapshots: %.4f (cover %.2f)" % validate(model, valid))


if __name__ == "__main__":
    main()
