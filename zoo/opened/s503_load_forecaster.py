# expect: sick
# symptom: the loss falls a little, then explodes and ends in nan
# axis: optimizer
# cause: clip_grad_norm_ is called between zero_grad() and backward(), so it clips empty gradients and the recurrent net trains without any clipping
# says: clip\w*.{0,60}(before|prior|ahead|precede|too early|order|no effect|not (act|work|applied|effective)|empty|none|wrong (place|position))|(before|prior to).{0,30}backward.{0,40}clip|(unclipped|not clipped|never clipped|without (any )?(gradient )?clipping|clip\w* (is )?(ineffective|inactive|useless))
# onset_step: 1
# fix: move clip_grad_norm_ to between backward() and step()
# mended: with MENDED=1 clip_grad_norm_ is called after backward()
import logging
import math
import os

import numpy as np
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("forecast")
torch.set_num_threads(1)
torch.manual_seed(3)
MENDED = os.environ.get("MENDED") == "1"


def synthetic_load(hours=24 * 400, seed=3):
    r = np.random.default_rng(seed)
    t = np.arange(hours)
    base = 1.0 + 0.6 * np.sin(2 * math.pi * t / 24) + 0.25 * np.sin(2 * math.pi * t / 168)
    ar = np.zeros(hours)
    for i in range(1, hours):
        ar[i] = 0.9 * ar[i - 1] + 0.08 * r.standard_normal()
    peaks = np.zeros(hours)
    for start in r.integers(0, hours - 12, size=110):
        peaks[start : start + 8] += 1.2 + 1.5 * r.pareto(3.0)
    return (base + ar + peaks).astype(np.float32)


class WindowSampler:
    def __init__(self, series, window, batch_size, seed):
        self.series = torch.from_numpy(series)
        self.window, self.batch_size = window, batch_size
        self.gen = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            start = torch.randint(0, len(self.series) - self.window - 1, (self.batch_size,), generator=self.gen)
            idx = start[:, None] + torch.arange(self.window + 1)
            chunk = self.series[idx]
            yield chunk[:, :-1, None], chunk[:, 1:, None]


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inp = nn.Linear(1, hidden)
        self.rnn = nn.RNN(hidden, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.zeros_(self.rnn.bias_hh_l0)

    def forward(self, x):
        h, _ = self.rnn(torch.tanh(self.inp(x)))
        return self.out(h)


class Trainer:
    def __init__(self, model, lr=0.004, max_norm=0.5):
        self.model, self.max_norm = model, max_norm
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.loss_fn = nn.MSELoss()

    def train_step(self, x, y):
        self.opt.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        if not MENDED:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        loss.backward()
        if MENDED:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, x, y):
        return self.loss_fn(self.model(x), y).item()


def main(steps=500):
    series = synthetic_load()
    split = int(0.9 * len(series))
    train = WindowSampler(series[:split], window=60, batch_size=32, seed=0)
    val_x, val_y = next(iter(WindowSampler(series[split:], window=60, batch_size=128, seed=1)))
    log.info(
        "variance of the target %.4f, persistence error %.4f", val_y.var().item(), ((val_x - val_y) ** 2).mean().item()
    )
    trainer = Trainer(Forecaster())
    for step, (x, y) in enumerate(train, 1):
        loss = trainer.train_step(x, y)
        if step % 10 == 0 and step <= 100 or step % 50 == 0:
            log.info("step %d train mse %.4f", step, loss)
        if step % 100 == 0:
            log.info("step %d val mse %.4f", step, trainer.evaluate(val_x, val_y))
        if step == steps:
            break


if __name__ == "__main__":
    main()
