# expect: sick
# symptom: loss is fine for the first 19 batches, then NaN at once, although the inputs are finite and the loss of the batch before was finite
# axis: model
# cause: interatomic distance is sqrt of a squared sum, whose gradient is infinite at zero; two padding atoms lie on the same point, and 0*inf = NaN comes back through the mask
# says: sqrt|square.?root|distance.*(zero|0\b|eps|coincid|singular)|(zero|coincident|coinciding|identical|duplicate).{0,20}(distance|point|atom|node|position)|\bnorm\b.{0,20}(zero|at 0|singular)|(gradient|derivative|backward).{0,30}distance|pad\w*.{0,10}(atom|node).*(coincid|same|zero|identical)|0 ?\* ?inf
# onset_step: 19
# fix: add a small eps inside the square root (sqrt(d2 + 1e-8))
# mended: loss stays finite; held-out MSE falls to a small part of the target variance
import os
import random

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
EPS = 1e-8 if MENDED else 0.0
torch.set_num_threads(1)
torch.manual_seed(5)
rng = random.Random(6)

N_TYPES, BATCH, STEPS, POOL = 5, 24, 300, 20
CHARGE = torch.tensor([0.0, 1.0, -1.0, 0.5, -0.5, 0.8])


def make_molecule():
    n = rng.choices([8, 9, 10, 13], [0.33, 0.4, 0.25, 0.02])[0]
    z = torch.randint(1, N_TYPES + 1, (n,))
    pos = [torch.randn(3)]
    while len(pos) < n:
        d = torch.randn(3)
        cand = rng.choice(pos) + 1.2 * d / d.norm()
        if min((cand - p).norm() for p in pos) > 0.7:
            pos.append(cand)
    pos = torch.stack(pos)
    q = CHARGE[z]
    dist = torch.cdist(pos, pos) + torch.eye(n)
    e = (q[:, None] * q[None] / dist * (1 - torch.eye(n))).sum() / 2
    return z, pos - pos.mean(0), e


def collate(mols):
    n = max(len(z) for z, _, _ in mols)
    z = torch.zeros(len(mols), n, dtype=torch.long)
    x = torch.zeros(len(mols), n, 3)
    for i, (zi, xi, _) in enumerate(mols):
        z[i, : len(zi)] = zi
        x[i, : len(zi)] = xi
    y = torch.stack([e for _, _, e in mols])
    return z, x, y


def size_batches(data):
    """Shuffle, take a pool, sort the pool by size, cut it into batches."""
    order = list(range(len(data)))
    while True:
        rng.shuffle(order)
        for k in range(0, len(order) - POOL * BATCH + 1, POOL * BATCH):
            pool = sorted(order[k : k + POOL * BATCH], key=lambda i: len(data[i][0]))
            cuts = [pool[j : j + BATCH] for j in range(0, len(pool), BATCH)]
            rng.shuffle(cuts)
            for c in cuts:
                yield [data[i] for i in c]


class EGNNLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU())
        self.coord = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))
        self.node = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        nn.init.normal_(self.coord[-1].weight, std=1e-3)

    def forward(self, h, x, src, dst, emask):
        diff = x[:, src] - x[:, dst]
        dist = (diff.pow(2).sum(-1, keepdim=True) + EPS).sqrt()
        m = self.edge(torch.cat([h[:, src], h[:, dst], dist], -1)) * emask
        shift = diff / (dist + 1.0) * self.coord(m) * emask
        x = x + torch.zeros_like(x).index_add(1, src, shift) / 10
        agg = torch.zeros_like(h).index_add(1, src, m)
        return h + self.node(torch.cat([h, agg / 5], -1)), x


class EGNN(nn.Module):
    def __init__(self, d=48, depth=3):
        super().__init__()
        self.emb = nn.Embedding(N_TYPES + 1, d, padding_idx=0)
        self.layers = nn.ModuleList(EGNNLayer(d) for _ in range(depth))
        self.out = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))

    def forward(self, z, x):
        n = z.size(1)
        src, dst = (~torch.eye(n, dtype=torch.bool)).nonzero(as_tuple=True)
        mask = (z > 0).float()
        emask = (mask[:, src] * mask[:, dst])[..., None]
        h = self.emb(z)
        for layer in self.layers:
            h, x = layer(h, x, src, dst, emask)
        return (self.out(h).squeeze(-1) * mask).sum(-1)


train = [make_molecule() for _ in range(1200)]
test = collate([make_molecule() for _ in range(200)])
mu, sd = (lambda t: (t.mean(), t.std()))(torch.stack([e for _, _, e in train]))

model = EGNN()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, mols in zip(range(1, STEPS + 1), size_batches(train)):
    z, x, y = collate(mols)
    loss = (model(z, x) - (y - mu) / sd).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    if step % 20 == 0 or step <= 3:
        print(f"step {step:4d}  atoms {z.size(1):2d}  mse {loss.item():.4f}")

with torch.no_grad():
    z, x, y = test
    print(f"final test mse (target variance 1) {(model(z, x) - (y - mu) / sd).pow(2).mean().item():.4f}")
