# expect: healthy
# symptom: the loss jumps up at steps 201 and 401, each time with a jump of the learning rate: looks like a spike or a broken schedule
# axis: schedule
# cause: healthy: CosineAnnealingWarmRestarts restarts the learning rate on purpose every 200 steps, each cycle recovers and ends lower, and the run ends at the end of a cycle
# says: none
# onset_step: none
# fix: none
# mended: none
import logging
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

torch.set_num_threads(1)
logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, datefmt="%H:%M:%S")
log = logging.getLogger("seasons")


def generate(n_series, length, rng):
    """Positive series: a level, two seasonal waves and multiplicative noise."""
    t = np.arange(length)
    out = []
    for _ in range(n_series):
        p1, p2 = rng.uniform(6, 9), rng.uniform(18, 30)
        s = rng.uniform(0.5, 1) * np.sin(2 * np.pi * t / p1 + rng.uniform(0, 6.28))
        s = s + rng.uniform(0.5, 1) * np.sin(2 * np.pi * t / p2 + rng.uniform(0, 6.28))
        out.append(s + 0.05 * rng.standard_normal(length))
    return torch.tensor(np.stack(out), dtype=torch.float32)


class GRUForecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.mu = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x.unsqueeze(-1))
        return self.mu(h).squeeze(-1)


def windows(data, batch, size, rng):
    while True:
        rows = rng.integers(0, len(data), batch)
        cols = rng.integers(0, data.size(1) - size - 1, batch)
        yield torch.stack([data[r, c : c + size + 1] for r, c in zip(rows, cols)])


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    pred = model(data[:, :-1])
    model.train()
    return F.mse_loss(pred[:, 20:], data[:, 21:]).item()


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    train, test = generate(300, 160, rng), generate(60, 60, rng)
    model = GRUForecaster()
    opt = torch.optim.Adam(model.parameters(), lr=1.3e-2)
    sched = CosineAnnealingWarmRestarts(opt, T_0=200)
    stream = windows(train, 48, 40, rng)

    window, best = [], math.inf
    for step in range(1, 601):
        b = next(stream)
        pred = model(b[:, :-1])
        loss = F.mse_loss(pred[:, 10:], b[:, 11:])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        window.append(loss.item())
        if step % 20 == 0:
            val = evaluate(model, test)
            best = min(best, val)
            log.info(
                "step %d lr %.5f train %.4f val %.4f best %.4f",
                step,
                sched.get_last_lr()[0],
                sum(window) / len(window),
                val,
                best,
            )
            window.clear()


if __name__ == "__main__":
    main()
