# expect: healthy
# fault: none, the [B,L] and [B,1,L] views only move an axis of size one, and the [B, bins, horizon] view splits a linear layer's output whose order is the layer's own to choose
# onset_step: none
# says: (?!)
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def series(n, length, gen):
    t = torch.arange(length).float()
    freq = torch.rand(n, 1, generator=gen) * 0.25 + 0.05
    phase = torch.rand(n, 1, generator=gen) * 2 * math.pi
    noise = torch.randn(n, length, generator=gen) * 0.05
    return torch.sin(freq * t + phase) + noise


class BinForecaster(nn.Module):
    """Reads a univariate window; gives, for each future step, scores over value bins."""

    def __init__(self, bins, horizon, hidden=40):
        super().__init__()
        self.bins, self.horizon = bins, horizon
        self.front = nn.Conv1d(1, 8, kernel_size=5, padding=2)
        self.rnn = nn.LSTM(9, hidden, batch_first=True)
        self.head = nn.Linear(hidden, bins * horizon)

    def forward(self, window):
        b, one, length = window.shape
        raw = window.view(b, length, one)
        local = torch.relu(self.front(window)).permute(0, 2, 1)
        _, (h, _) = self.rnn(torch.cat([raw, local], dim=-1))
        return self.head(h[-1]).view(b, self.bins, self.horizon)


def to_bins(values, bins):
    edges = torch.linspace(-1.1, 1.1, bins - 1)
    return torch.bucketize(values.contiguous(), edges)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--bins", type=int, default=12)
    ap.add_argument("--horizon", type=int, default=6)
    ap.add_argument("--context", type=int, default=36)
    ap.add_argument("--batch-size", type=int, default=32)
    args = ap.parse_args()

    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    data = series(1200, args.context + args.horizon, gen)
    net = BinForecaster(args.bins, args.horizon)
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

    for step in range(1, args.steps + 1):
        idx = torch.randint(0, 1000, (args.batch_size,), generator=gen)
        chunk = data[idx]
        past = chunk[:, : args.context].reshape(args.batch_size, 1, args.context)
        future = to_bins(chunk[:, args.context :], args.bins)
        loss = F.cross_entropy(net(past), future)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 30 == 0:
            print(f"{step:4d} nll {loss.item():.4f}")

    with torch.no_grad():
        rest = data[1000:]
        scores = net(rest[:, None, : args.context])
        hit = scores.argmax(1) == to_bins(rest[:, args.context :], args.bins)
    print("bin accuracy", round(hit.float().mean().item(), 3))


main()
