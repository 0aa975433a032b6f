# expect: healthy
# symptom: the loss jumps up at steps 200, 275, 350 and 425 and most weights become exactly zero and stay frozen: planned magnitude pruning rounds (to 95 %) with fine-tuning between them
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)
rng = np.random.default_rng(12)
L, NCLS, BATCH, STEPS = 256, 6, 48, 560
ROUNDS = {200: 0.6, 275: 0.8, 350: 0.9, 425: 0.95}


def bearings(n):
    """vibration windows: shaft tone plus impact trains that depend on the damaged part"""
    t = np.arange(L) / L
    y = rng.integers(0, NCLS, n)
    f0 = rng.uniform(3, 6, n)
    x = 0.6 * np.sin(2 * np.pi * f0[:, None] * t + rng.uniform(0, 6.3, (n, 1)))
    rate = np.array([0, 2.1, 2.1, 2.1, 6.3, 6.3])[y] * f0
    tone = np.array([30, 30, 55, 80, 30, 80])[y]
    ph = (rate[:, None] * t + rng.uniform(0, 1, (n, 1))) % 1.0
    x = x + np.where(y[:, None] > 0, np.exp(-6 * ph) * np.sin(2 * np.pi * tone[:, None] * t), 0) * rng.uniform(
        0.7, 1.2, (n, 1)
    )
    return torch.tensor(x + rng.normal(0, 0.12, x.shape), dtype=torch.float32)[:, None], torch.tensor(y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 24, 15, 2, 7),
            nn.ReLU(),
            nn.Conv1d(24, 48, 9, 2, 4),
            nn.ReLU(),
            nn.Conv1d(48, 48, 9, 4, 4),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, NCLS))

    def forward(self, x):
        h = self.conv(x)
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], 1))


class Pruner:
    """global magnitude pruning; removed weights get no updates any more"""

    def __init__(self, model):
        self.weights = [m.weight for m in model.modules() if isinstance(m, (nn.Conv1d, nn.Linear))]
        self.masks = [torch.ones_like(w) for w in self.weights]

    @torch.no_grad()
    def prune(self, fraction):
        scores = torch.cat([(w / w.std()).abs().flatten() for w in self.weights])
        cut = scores.kthvalue(int(fraction * len(scores))).values
        self.masks = [((w / w.std()).abs() > cut).float() * m for w, m in zip(self.weights, self.masks)]
        self.apply()

    @torch.no_grad()
    def apply(self):
        for w, m in zip(self.weights, self.masks):
            w.mul_(m)

    def mask_grads(self):
        for w, m in zip(self.weights, self.masks):
            w.grad.mul_(m)

    def sparsity(self):
        return sum((w == 0).sum().item() for w in self.weights) / sum(w.numel() for w in self.weights)


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


x, y = bearings(3000)
vx, vy = bearings(500)
model = Net()
pruner = Pruner(model)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
t0 = time.time()
for step in range(STEPS):
    if step in ROUNDS:
        print(f"== before pruning to {ROUNDS[step]:.0%}: val acc {accuracy(model, vx, vy):.3f}")
        pruner.prune(ROUNDS[step])
        print(f"== pruned: sparsity {pruner.sparsity():.3f} val acc {accuracy(model, vx, vy):.3f}")
    k = torch.randint(0, len(x), (BATCH,))
    loss = F.cross_entropy(model(x[k]), y[k])
    opt.zero_grad()
    loss.backward()
    pruner.mask_grads()
    opt.step()
    pruner.apply()
    if step % 15 == 0 or step in ROUNDS:
        print(f"step {step:4d} loss {loss.item():.4f} sparsity {pruner.sparsity():.3f}")
print(f"== final val acc {accuracy(model, vx, vy):.3f} at sparsity {pruner.sparsity():.3f} ({time.time() - t0:.1f}s)")
