# expect: sick
# axis: harness
# symptom: the run was nearly done with a low loss; after the resume the loss rises again and the run ends worse than it stood at the break
# cause: the step count that drives the warm-up and cosine rate is not in the checkpoint, so after the resume it counts from 0: warm-up begins anew and the rate climbs back to its peak
# says: (warm-?up|schedul|cosine|step count|counter|tick|learning.?rate|\blr\b).{0,200}(restart|begin|anew|again|from (0|zero|scratch)|reset|not (saved|restored|loaded|kept|stored|in the checkpoint)|start(s|ed)? over|re-?warm|afresh|forg[oe]t|missing|lost|rise|climb)|(restart|reset|forg[oe]t|not (saved|restored|loaded)|missing).{0,200}(warm-?up|schedul|counter|step count|tick|learning.?rate|\blr\b)
# onset_step: 301
# fix: save the count of the schedule
# mended: the step count is read back from the checkpoint
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

PER_EPOCH = 20
EPOCHS = 20


def gauge(n=6000, seed=0):
    """Water level at one harbour: a few tides, weather and some measuring noise."""
    g = np.random.default_rng(seed)
    t = np.arange(n)
    level = sum(
        a * np.sin(2 * math.pi * t / p + f)
        for a, p, f in [(1.0, 24.8, 0.3), (0.6, 12.4, 1.0), (0.4, 51.3, 2.0), (0.3, 7.7, 0.9)]
    )
    wind = np.zeros(n)
    for i in range(2, n):
        wind[i] = 1.6 * wind[i - 1] - 0.66 * wind[i - 2] + 0.03 * g.normal()
    return torch.tensor(level + wind + 0.02 * g.normal(size=n), dtype=torch.float32)


class Causal(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.front = nn.Conv1d(1, c, 3)
        self.mid = nn.ModuleList(nn.Conv1d(c, c, 3, dilation=d) for d in (2, 4, 8))
        self.back = nn.Linear(c, 4)

    def forward(self, x):
        h = torch.relu(self.front(x))
        for m in self.mid:
            h = torch.relu(m(h))
        return self.back(h[:, :, -1])


class Forecaster:
    peak, warm = 3e-2, 30

    def __init__(self, series, seed):
        torch.manual_seed(seed)
        self.g = np.random.default_rng(seed)
        self.windows = series.unfold(0, 68, 1)
        self.net = Causal()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=self.peak)
        self.epoch = 0
        self.tick = 0

    def rate(self):
        if self.tick < self.warm:
            return self.peak * (self.tick + 1) / self.warm
        done = (self.tick - self.warm) / (PER_EPOCH * EPOCHS - self.warm)
        return self.peak * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))

    def one_batch(self):
        for group in self.opt.param_groups:
            group["lr"] = self.rate()
        w = self.windows[torch.from_numpy(self.g.integers(len(self.windows), size=32))]
        guess = self.net(w[:, None, :64])
        loss = nn.functional.mse_loss(guess, w[:, 64:])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.tick += 1
        return loss.item()

    def fit(self, until):
        while self.epoch < until:
            seen = [self.one_batch() for _ in range(PER_EPOCH)]
            print(f"epoch {self.epoch:2d}  loss {np.mean(seen):.4f}", flush=True)
            self.epoch += 1

    def save(self, path):
        torch.save(dict(net=self.net.state_dict(), opt=self.opt.state_dict(), epoch=self.epoch), path)

    def load(self, path):
        kept = torch.load(path)
        self.net.load_state_dict(kept["net"])
        self.opt.load_state_dict(kept["opt"])
        self.epoch = kept["epoch"]
        if ALT:
            self.tick = self.epoch * PER_EPOCH
        print("goes on with epoch", self.epoch)


if __name__ == "__main__":
    series = gauge()
    place = os.path.join(tempfile.mkdtemp(), "harbour.pt")
    job = Forecaster(series, seed=1)
    job.fit(15)
    job.save(place)
    del job
    job = Forecaster(series, seed=2)
    job.load(place)
    job.fit(EPOCHS)
