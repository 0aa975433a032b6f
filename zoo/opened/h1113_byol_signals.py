# expect: healthy
# symptom: half of the networks never get a gradient, there are no negatives, the target network is a deep copy moved by hand under no_grad; the loss (a cosine distance) falls close to its trivial minimum 0
# axis: none
# mended: none
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
CLASSES, LENGTH = 6, 96


def make_ecg(n, seed):
    """Toy heart beats: a train of pulses whose shape and rhythm depend on the class."""
    shape = np.random.default_rng(8)
    width, second, rate = (
        shape.uniform(1.0, 3.0, CLASSES),
        shape.uniform(-0.8, 0.8, CLASSES),
        shape.uniform(11, 23, CLASSES),
    )
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    t = np.arange(LENGTH)
    x = rng.normal(0, 0.5, (n, LENGTH))
    for i, c in enumerate(y):
        period = rate[c] * rng.uniform(0.88, 1.12)
        for centre in np.arange(rng.uniform(-period, 0), LENGTH + period, period):
            x[i] += np.exp(-(((t - centre) / width[c]) ** 2)) + second[c] * np.exp(-(((t - centre - 5) / 2.0) ** 2))
    return torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


def augment(x):
    n = len(x)
    shift = int(torch.randint(0, LENGTH, ()))
    x = x.roll(shift, -1) * (0.6 + 0.8 * torch.rand(n, 1, 1)) + 0.15 * torch.randn_like(x)
    start = torch.randint(0, LENGTH - 20, (n, 1, 1))
    pos = torch.arange(LENGTH).view(1, 1, -1)
    return x * ~((pos >= start) & (pos < start + 20))


def mlp(i, o, hidden=128):
    return nn.Sequential(nn.Linear(i, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, o))


class Encoder(nn.Module):
    def __init__(self, c=24, out=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, c, 9, 2, 4),
            nn.BatchNorm1d(c),
            nn.ReLU(),
            nn.Conv1d(c, 2 * c, 5, 2, 2),
            nn.BatchNorm1d(2 * c),
            nn.ReLU(),
            nn.Conv1d(2 * c, 2 * c, 5, 2, 2),
            nn.BatchNorm1d(2 * c),
            nn.ReLU(),
        )
        self.proj = mlp(2 * c, out)

    def features(self, x):
        return self.conv(x).mean(-1)

    def forward(self, x):
        return self.proj(self.features(x))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.predictor = Encoder(), mlp(64, 64)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        return 2 - F.cosine_similarity(pa, tb).mean() - F.cosine_similarity(pb, ta).mean()

    @torch.no_grad()
    def move_target(self, tau):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - tau)


@torch.no_grad()
def knn_accuracy(enc, bank, by, q, qy):
    enc.eval()
    f, g = F.normalize(enc.features(bank), dim=1), F.normalize(enc.features(q), dim=1)
    vote = by[(g @ f.t()).topk(10, 1).indices].mode(1).values
    enc.train()
    return (vote == qy).float().mean().item()


def main():
    torch.manual_seed(0)
    x, y = make_ecg(3000, 1)
    q, qy = make_ecg(600, 2)
    model = BYOL()
    live = list(model.online.parameters()) + list(model.predictor.parameters())
    opt = torch.optim.AdamW(live, lr=2e-3, weight_decay=1e-4)
    steps = 450
    for step in range(steps):
        b = x[torch.randint(0, len(x), (96,))]
        loss = model(augment(b), augment(b))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        model.move_target(1 - 0.03 * (math.cos(math.pi * step / steps) + 1) / 2)
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
        if step % 150 == 0 or step == steps - 1:
            print(
                f"step {step:4d} 10-nn accuracy {knn_accuracy(model.online, x[:1500], y[:1500], q, qy):.3f}", flush=True
            )


if __name__ == "__main__":
    main()
