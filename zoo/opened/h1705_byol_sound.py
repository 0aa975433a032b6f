# expect: healthy
# symptom: a second network gets no gradient and is in no optimizer, no negatives and no labels in the loss; loss does not tell how good the features are
# axis: none
# mended: none
import copy
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(81)

MELS, FRAMES, KINDS = 16, 32, 6
BATCH, STEPS = 64, 300
TAU0 = 0.97


def make_sounds(n, seed):
    """Six kinds of sound events: their melody over time is what sets them apart."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, KINDS, size=n)
    t = np.linspace(0, 1, FRAMES)[None]
    bins = np.arange(MELS)[:, None]
    x = np.empty((n, MELS, FRAMES), dtype=np.float32)
    curves = [
        t * 8 + 4,
        12 - t * 8,
        8 + 4 * np.sin(2 * np.pi * 2 * t),
        8 + 4 * np.sign(np.sin(2 * np.pi * 3 * t)),
        4 + 10 * (t - 0.5) ** 2 * 4,
        8 + 0 * t,
    ]
    for i, k in enumerate(kinds):
        centre = curves[k] + rng.normal(0, 1.0)
        x[i] = 2 * np.exp(-((bins - centre) ** 2) / rng.uniform(1.5, 4.0)) + 0.3 * rng.normal(size=(MELS, FRAMES))
    return torch.from_numpy(x), torch.from_numpy(kinds)


def view(x, gen):
    """Random gain, time shift, a masked band of time and of frequency."""
    n = len(x)
    x = x * (0.7 + 0.6 * torch.rand(n, 1, 1, generator=gen))
    shift = int(torch.randint(-3, 4, (1,), generator=gen))
    x = torch.roll(x, shift, dims=2)
    t0 = torch.randint(0, FRAMES - 6, (n, 1, 1), generator=gen)
    f0 = torch.randint(0, MELS - 3, (n, 1, 1), generator=gen)
    tt, ff = torch.arange(FRAMES).view(1, 1, -1), torch.arange(MELS).view(1, -1, 1)
    gone = ((tt >= t0) & (tt < t0 + 6)) | ((ff >= f0) & (ff < f0 + 3))
    return x.masked_fill(gone, 0.0) + 0.1 * torch.randn(x.shape, generator=gen)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(inplace=True), nn.Linear(h, o))


class Net(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(MELS, 48, 5, stride=2, padding=2),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Conv1d(48, d, 5, stride=2, padding=2),
            nn.BatchNorm1d(d),
            nn.ReLU(),
            nn.Conv1d(d, d, 3, padding=1),
            nn.ReLU(),
        )
        self.proj = mlp(2 * d, 96, 32)

    def features(self, x):
        h = self.body(x)
        return torch.cat([h.mean(-1), h.amax(-1)], dim=-1)

    def forward(self, x):
        return self.proj(self.features(x))


@torch.no_grad()
def knn_accuracy(net, bank, test):
    net.eval()
    a, b = F.normalize(net.features(bank[0]), dim=-1), F.normalize(net.features(test[0]), dim=-1)
    net.train()
    near = bank[1][(b @ a.T).topk(5).indices]
    return (near.mode(dim=1).values == test[1]).float().mean().item(), b.std(0).mean().item()


def main():
    x, y = make_sounds(3000, 1)
    test = make_sounds(400, 2)
    online = Net()
    slow = copy.deepcopy(online)
    for p in slow.parameters():
        p.requires_grad_(False)
    predictor = mlp(32, 64, 32)
    opt = torch.optim.AdamW(list(online.parameters()) + list(predictor.parameters()), lr=2e-3, weight_decay=1e-4)
    gen = torch.Generator().manual_seed(9)
    t0 = time.time()
    for step in range(STEPS):
        batch = x[torch.randint(0, len(x), (BATCH,), generator=gen)]
        v1, v2 = view(batch, gen), view(batch, gen)
        with torch.no_grad():
            goal1, goal2 = slow(v1), slow(v2)
        p1, p2 = predictor(online(v1)), predictor(online(v2))
        loss = 4 - 2 * (F.cosine_similarity(p1, goal2) + F.cosine_similarity(p2, goal1)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        tau = 1 - (1 - TAU0) * (math.cos(math.pi * step / STEPS) + 1) / 2
        with torch.no_grad():
            for ps, po in zip(slow.parameters(), online.parameters()):
                ps.lerp_(po, 1 - tau)
            for bs, bo in zip(slow.buffers(), online.buffers()):
                bs.copy_(bo)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} tau {tau:.4f} t {time.time() - t0:.1f}")
        if step % 75 == 74:
            acc, spread = knn_accuracy(online, (x[:1000], y[:1000]), test)
            print(f"knn accuracy {acc:.3f} feature spread {spread:.4f}")


if __name__ == "__main__":
    main()
