# expect: healthy
# axis: none
# symptom: a new optimizer object is made for every round of three batches
# cause: harmless: it is SGD without momentum, which has no state to lose; the rate follows a plan that the property reads
import math

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def contours(n, seed):
    """Closed curves as 64 radii: a few harmonics of random size and phase."""
    g = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * math.pi, 64, endpoint=False)
    r = np.zeros((n, 64))
    for k in (1, 2, 3):
        r += g.normal(0, 0.6 / k, (n, 1)) * np.cos(k * angle + g.uniform(0, 2 * math.pi, (n, 1)))
    return torch.tensor(r + 0.02 * g.normal(size=(n, 64)), dtype=torch.float32)


class Squeeze(nn.Module):
    def __init__(self, code=8):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, code))
        self.up = nn.Sequential(nn.Linear(code, 128), nn.Tanh(), nn.Linear(128, 64))

    def forward(self, x):
        return self.up(self.down(x))


class Studio:
    def __init__(self, data, lr=2.0, batch=64, rounds=180):
        self.data = data
        self.lr = lr
        self.batch = batch
        self.rounds = rounds
        self.done = 0
        self.net = Squeeze()

    @property
    def optimizer(self):
        rate = self.lr * (1 - 0.9 * self.done / self.rounds)
        return torch.optim.SGD(self.net.parameters(), lr=rate)

    def round(self, batches):
        opt = self.optimizer
        losses = []
        for x in batches:
            opt.zero_grad()
            loss = (self.net(x) - x).square().mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        self.done += 1
        return sum(losses) / len(losses)

    def draw(self, k):
        return [self.data[torch.randint(len(self.data), (self.batch,))] for _ in range(k)]

    def work(self, per_round=3):
        log = []
        while self.done < self.rounds:
            log.append(self.round(self.draw(per_round)))
            if self.done % 20 == 0:
                print(f"round {self.done:4d}  loss {np.mean(log[-20:]):.5f}", flush=True)

    @torch.no_grad()
    def judge(self, x):
        return (self.net(x) - x).square().mean().item()


if __name__ == "__main__":
    torch.manual_seed(27)
    studio = Studio(contours(4000, seed=27))
    studio.work()
    print(f"new contours: loss {studio.judge(contours(500, seed=28)):.5f}")
