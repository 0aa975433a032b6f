# expect: sick
# symptom: loss falls normally, then from one step to the next it is nan and stays nan; the step before looked fine
# axis: loss
# cause: sqrt of a squared distance that is exactly zero (a pair of the same image): the derivative of sqrt at 0 is inf, times zero gives a nan gradient
# says: (sqrt|square root|norm|euclid\w*|distance|pairwise).{0,120}(zero|\b0\b|0\.0|identical|same|equal|singular|epsilon|\beps\b|infinite|\binf\b|nan|undefined)|(identical|duplicate|same (image|sample|index|embedding)).{0,100}(pair|distance|sqrt|gradient)|(zero|identical).{0,60}(sqrt|distance|square root)
# onset_step: 129
# fix: sqrt(d2 + 1e-8) (or clamp before the root, or use the squared distance)
# mended: adds a small eps under the square root
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SEED = 18
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

N_ID, PER_ID, SIZE = 12, 900, 16
MARGIN = 1.0


def make_faces():
    """Identities are smooth random patterns, seen with shift, gain and noise."""
    base = rng.normal(size=(N_ID, 1, 6, 6)).astype(np.float32)
    base = F.interpolate(torch.from_numpy(base), size=(SIZE + 4, SIZE + 4), mode="bicubic").numpy()
    xs, ys = [], []
    for c in range(N_ID):
        for _ in range(PER_ID):
            dx, dy = rng.integers(0, 5, size=2)
            img = base[c, :, dx : dx + SIZE, dy : dy + SIZE] * rng.uniform(0.6, 1.4)
            xs.append(img + 0.5 * rng.normal(size=img.shape))
            ys.append(c)
    return torch.tensor(np.array(xs), dtype=torch.float32), np.array(ys)


class PairSampler:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.by_id = [np.flatnonzero(y == c) for c in range(N_ID)]

    def sample(self, n):
        a = rng.integers(0, len(self.y), size=n)
        same = rng.random(n) < 0.5
        b = np.empty(n, dtype=np.int64)
        for i in range(n):
            c = self.y[a[i]]
            if not same[i]:
                c = (c + rng.integers(1, N_ID)) % N_ID
            b[i] = rng.choice(self.by_id[c])
        return self.x[a], self.x[b], torch.from_numpy(same.astype(np.float32))


class Embedder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 16, 64),
            nn.ReLU(),
            nn.Linear(64, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def euclidean(a, b):
    d2 = (a - b).pow(2).sum(-1)
    if MENDED:
        d2 = d2 + 1e-8
    return d2.sqrt()


def contrastive_loss(a, b, same):
    d = euclidean(a, b)
    pos = same * d.pow(2)
    neg = (1 - same) * F.relu(MARGIN - d).pow(2)
    return (pos + neg).mean()


@torch.no_grad()
def verification_accuracy(model, sampler):
    a, b, same = sampler.sample(1000)
    d = euclidean(model(a), model(b))
    return ((d < MARGIN / 2).float() == same).float().mean().item()


x, y = make_faces()
sampler = PairSampler(x, y)
model = Embedder()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

running = None
for step in range(340):
    a, b, same = sampler.sample(16)
    loss = contrastive_loss(model(a), model(b), same)
    opt.zero_grad()
    loss.backward()
    opt.step()
    running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
    if step % 20 == 0:
        print(f"step {step:4d} loss {loss.item():.4f} avg {running:.4f}")
print(f"verification accuracy {verification_accuracy(model, sampler):.3f}")
