# expect: sick
# symptom: the forecaster's loss is smooth and low until about step 310, then shows single-batch spikes thousands of times the usual level, and between them it is worse than before
# axis: data
# cause: missing readings are stored as the placeholder -999 and are fed to the network and the loss as if they were temperatures
# says: sentinel|placeholder|-?999|missing (value|reading|data|sample|measure)|(outlier|corrupt\w*|bad|invalid|extreme|out.of.range)[^.]{0,80}(sample|value|reading|data|batch|input|target|record|row)|(data|input|batch|target|sample|value)s?[^.]{0,80}(outlier|corrupt\w*|invalid|extreme|out of range)
# onset_step: 312
# fix: treat -999 as missing: forward-fill the inputs and leave those targets out of the loss
# mended: readings below -900 are forward-filled in the inputs and masked out of the loss
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
WINDOW, HORIZON, STATIONS = 48, 6, 24


def load_station_log(hours=620 + WINDOW + HORIZON, seed=0):
    """Hourly temperatures of a small station network, as the loggers write them."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    base = 12 + rng.normal(0, 3, STATIONS)[:, None]
    daily = rng.uniform(3, 7, STATIONS)[:, None] * np.sin(2 * np.pi * t / 24 + rng.normal(0, 0.4, STATIONS)[:, None])
    front = np.zeros(hours)
    for i in range(1, hours):
        front[i] = 0.97 * front[i - 1] + rng.normal(0, 0.5)
    temp = base + daily + front + rng.normal(0, 0.3, (STATIONS, hours))
    for _ in range(14):
        s, h = rng.integers(STATIONS), rng.integers(300 + HORIZON, hours - 8)
        temp[s, h : h + rng.integers(1, 4)] = -999.0
    return temp.astype(np.float32)


class Stream:
    """Walks the log hour by hour; one batch is one hour, all stations."""

    def __init__(self, log):
        self.raw = log
        self.mean = log[:, :240].mean(1, keepdims=True)
        self.std = log[:, :240].std(1, keepdims=True)

    def __len__(self):
        return self.raw.shape[1] - WINDOW - HORIZON

    def __getitem__(self, i):
        part = self.raw[:, i : i + WINDOW + HORIZON].copy()
        ok = np.ones_like(part)
        if MENDED:
            ok = (part > -900).astype(np.float32)
            for k in range(part.shape[1]):
                gap = ok[:, k] == 0
                part[gap, k] = part[gap, k - 1] if k else self.mean[gap, 0]
        part = torch.tensor((part - self.mean) / self.std)
        return part[:, :WINDOW], part[:, WINDOW:], torch.tensor(ok[:, WINDOW:])


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.station = nn.Embedding(STATIONS, 8)
        self.rnn = nn.GRU(1 + 8, hidden, batch_first=True)
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, HORIZON))

    def forward(self, x):
        ids = torch.arange(STATIONS)
        emb = self.station(ids)[:, None, :].expand(-1, x.shape[1], -1)
        h, _ = self.rnn(torch.cat([x[..., None], emb], -1))
        return x[:, -1:] + self.out(h[:, -1])


def main():
    torch.manual_seed(0)
    stream = Stream(load_station_log())
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    recent = []
    for step in range(len(stream)):
        x, y, ok = stream[step]
        loss = (F.mse_loss(model(x), y, reduction="none") * ok).sum() / ok.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        recent.append(loss.item())
        if step % 20 == 0:
            print(f"hour {step:4d} loss {loss.item():.4f} mean of 20 {np.mean(recent[-20:]):.4f}", flush=True)

    print(
        f"median training loss: hours 200 to 290 {np.median(recent[200:290]):.4f}, last 100 {np.median(recent[-100:]):.4f}"
    )


if __name__ == "__main__":
    main()
