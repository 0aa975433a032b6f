# expect: sick
# symptom: the loss jumps by orders of magnitude in the first dozens of steps and ends as NaN, despite the clipping
# axis: optimizer
# cause: params is a filter iterator used up by the optimizer, so clip_grad_norm_ gets nothing and clips nothing
# says: clip(p|_| ).{0,70}(no |not|never|empty|nothing|exhaust|ineffect)|exhaust|consumed|used.up|unclipped
# onset_step: 0
# fix: make params a list, so that the clipping sees the parameters
# mended: the script applies that change if the environment has MENDED=1
"""Next-hours load forecast for a set of electricity meters."""

import os

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)
rng = np.random.default_rng(3)

HISTORY, HORIZON = 72, 6


def simulate_meter(n_hours=900):
    t = np.arange(n_hours)
    base = 1.0 * np.sin(2 * np.pi * (t + rng.integers(24)) / 24)
    weekly = 0.4 * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6))
    load = base * rng.uniform(0.7, 1.3) + weekly + 0.1 * rng.standard_normal(n_hours)
    # industrial sites switch heavy machines now and then
    for _ in range(rng.poisson(2)):
        at = rng.integers(0, n_hours - 8)
        load[at : at + 5] += rng.uniform(6, 14)
    return load.astype(np.float32)


class Windows(torch.utils.data.Dataset):
    def __init__(self, meters):
        self.meters = meters
        span = len(meters[0]) - HISTORY - HORIZON
        self.index = [(m, s) for m in range(len(meters)) for s in range(0, span, 3)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        m, s = self.index[i]
        w = torch.from_numpy(self.meters[m][s : s + HISTORY + HORIZON])
        return w[:HISTORY, None], w[HISTORY:]


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inp = nn.Linear(1, hidden)
        self.rnn = nn.RNN(hidden, hidden, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(hidden, HORIZON)
        nn.init.eye_(self.rnn.weight_hh_l0)
        self.rnn.weight_hh_l0.data.mul_(0.9)

    def forward(self, x):
        h, _ = self.rnn(torch.tanh(self.inp(x)))
        return self.head(h[:, -1])


@torch.no_grad()
def validate(model, loader):
    model.eval()
    err = [(model(x) - y).abs().median().item() for x, y in loader]
    model.train()
    return float(np.mean(err))


def main():
    meters = [simulate_meter() for _ in range(24)]
    train = torch.utils.data.DataLoader(Windows(meters[:20]), batch_size=32, shuffle=True)
    val = torch.utils.data.DataLoader(Windows(meters[20:]), batch_size=128)
    model = Forecaster()
    params = filter(lambda p: p.requires_grad, model.parameters())
    params = list(params) if MENDED else params
    opt = torch.optim.SGD(params, lr=0.014, momentum=0.9)
    loss_fn = nn.MSELoss()

    step, running = 0, None
    max_steps = 400
    while step < max_steps:
        for x, y in train:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(params, 0.5)
            opt.step()
            running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.4g} avg {running:.4g}")
            step += 1
            if step == max_steps:
                break
    print(f"final avg loss {running:.4g} val median abs err {validate(model, val):.4g}")


if __name__ == "__main__":
    main()
