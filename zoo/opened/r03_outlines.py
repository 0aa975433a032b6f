# expect: sick
# axis: optimizer
# symptom: the loss falls very slowly, many times slower than SGD with momentum 0.95 should at this rate
# cause: the optimizer is a plain property, so each round of three batches gets a new SGD object and the momentum buffer is thrown away before it can build up
# says: (optimi[sz]er|sgd|momentum|moment|buffer|velocity|state).{0,200}(anew|re-?creat|re-?built|re-?init|re-?instantiat|re-?mad|made|new|every|each|per|reset|lost|discard|thrown|fresh|construct)|(new|fresh|re-?creat\w*|re-?init\w*|construct\w*|reset\w*).{0,120}(optimi[sz]er|sgd|momentum)
# onset_step: 1
# fix: make the optimizer once
# mended: the property is a cached one, so that one SGD object serves the whole run
import functools
import math
import os

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
kept = functools.cached_property if ALT else property


def outlines(n, seed):
    """Closed curves as 64 radii: a few harmonics of random size and phase."""
    g = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * math.pi, 64, endpoint=False)
    r = np.ones((n, 64))
    for k in (1, 2, 3, 5):
        r += g.normal(0, 0.5 / k, (n, 1)) * np.cos(k * angle + g.uniform(0, 2 * math.pi, (n, 1)))
    return torch.tensor(r + 0.02 * g.normal(size=(n, 64)), dtype=torch.float32)


class Squeeze(nn.Module):
    def __init__(self, code=8):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, code))
        self.up = nn.Sequential(nn.Linear(code, 128), nn.Tanh(), nn.Linear(128, 64))

    def forward(self, x):
        return self.up(self.down(x))


class Studio:
    def __init__(self, data, lr=0.02, momentum=0.95, batch=64):
        self.data = data
        self.lr = lr
        self.momentum = momentum
        self.batch = batch
        self.net = Squeeze()

    @kept
    def optimizer(self):
        heavy = [p for p in self.net.parameters() if p.dim() > 1]
        light = [p for p in self.net.parameters() if p.dim() <= 1]
        groups = [{"params": heavy, "weight_decay": 1e-5}, {"params": light, "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)

    def round(self, batches):
        opt = self.optimizer
        losses = []
        for x in batches:
            opt.zero_grad()
            loss = (self.net(x) - x).square().mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def draw(self, k):
        return [self.data[torch.randint(len(self.data), (self.batch,))] for _ in range(k)]

    def work(self, rounds, per_round=3):
        log = []
        for n in range(1, rounds + 1):
            log.append(self.round(self.draw(per_round)))
            if n % 20 == 0:
                print(f"round {n:4d}  loss {np.mean(log[-20:]):.5f}", flush=True)

    @torch.no_grad()
    def judge(self, x):
        return (self.net(x) - x).square().mean().item()


if __name__ == "__main__":
    torch.manual_seed(17)
    studio = Studio(outlines(4000, seed=17))
    studio.work(rounds=200)
    print(f"new outlines: loss {studio.judge(outlines(500, seed=18)):.5f}")
