# expect: sick
# symptom: training is fine for some dozens of steps, then from one step to the next loss and all weights are NaN
# axis: model
# cause: the pair distance is sqrt of zero for coinciding padding atoms; its gradient is infinite and the mask multiplies it by zero, so backward yields NaN as soon as a batch holds two padded slots
# says: (?=[\s\S]*(sqrt|square root|distance|norm\b))(?=[\s\S]*(pad|zero|coincid|\b0\b|mask|infinit|inf\b))(?=[\s\S]*(grad|backward|deriv|nan))
# onset_step: 36
# fix: clamp or add a small epsilon to the squared distance before the square root
# mended: yes
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Sampler

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

SIZES = (5, 6, 7, 9)


def energy(pos, kind):
    d = np.linalg.norm(pos[:, None] - pos[None], axis=-1)
    i, j = np.triu_indices(len(pos), 1)
    r = d[i, j]
    r0 = 1.0 + 0.25 * (kind[i] + kind[j])
    return float(np.sum((1 - np.exp(-1.3 * (r - r0))) ** 2 - 1))


class Clusters(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        while len(self.items) < n:
            k = int(rng.choice(SIZES))
            pos = rng.normal(0, 1.1, (k, 3))
            d = np.linalg.norm(pos[:, None] - pos[None], axis=-1) + 9 * np.eye(k)
            if d.min() < 0.7:
                continue
            kind = rng.integers(0, 3, k)
            self.items.append((torch.tensor(pos - pos.mean(0)).float(), torch.tensor(kind), energy(pos, kind)))
        e = np.array([it[2] / len(it[1]) for it in self.items])
        self.mean, self.std = e.mean(), e.std()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class SizeBuckets(Sampler):
    """Batches of similar size; the order of the batches is random."""

    def __init__(self, data, batch, seed):
        self.sizes = [len(k) for _, k, _ in data.items]
        self.batch, self.rng = batch, np.random.default_rng(seed)

    def __len__(self):
        return (len(self.sizes) + self.batch - 1) // self.batch

    def __iter__(self):
        key = np.array(self.sizes) + self.rng.random(len(self.sizes))
        order = np.argsort(key)
        batches = [order[i : i + self.batch].tolist() for i in range(0, len(order), self.batch)]
        self.rng.shuffle(batches)
        return iter(batches)


def collate(items):
    n = max(len(k) for _, k, _ in items)
    pos = torch.zeros(len(items), n, 3)
    kind = torch.zeros(len(items), n, dtype=torch.long)
    mask = torch.zeros(len(items), n)
    for b, (p, k, _) in enumerate(items):
        pos[b, : len(k)], kind[b, : len(k)], mask[b, : len(k)] = p, k, 1.0
    return pos, kind, mask, torch.tensor([e for _, _, e in items])


class EquivariantLayer(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * h + 12, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU())
        self.shift = nn.Linear(h, 1, bias=False)
        self.node = nn.Sequential(nn.Linear(2 * h, h), nn.SiLU(), nn.Linear(h, h))
        nn.init.normal_(self.shift.weight, std=0.02)
        self.register_buffer("centres", torch.linspace(0, 4, 12))

    def forward(self, h, pos, mask):
        n = pos.shape[1]
        pair = mask[:, :, None] * mask[:, None, :] * (1 - torch.eye(n))
        diff = pos[:, :, None] - pos[:, None, :]
        sq = diff.pow(2).sum(-1) + torch.eye(n)
        dist = sq.clamp_min(1e-8).sqrt() if MENDED else sq.sqrt()
        rbf = torch.exp(-4.0 * (dist[..., None] - self.centres) ** 2)
        hi, hj = h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1)
        m = self.msg(torch.cat([hi, hj, rbf], -1)) * pair[..., None]
        pos = pos + (diff / (dist[..., None] + 1) * torch.tanh(self.shift(m))).sum(2) * mask[..., None]
        h = h + self.node(torch.cat([h, m.sum(2)], -1)) * mask[..., None]
        return h, pos


class ClusterNet(nn.Module):
    def __init__(self, h=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(3, h)
        self.layers = nn.ModuleList(EquivariantLayer(h) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1))

    def forward(self, pos, kind, mask):
        h = self.embed(kind) * mask[..., None]
        for layer in self.layers:
            h, pos = layer(h, pos, mask)
        return (self.readout(h).squeeze(-1) * mask).sum(1) / mask.sum(1)


def main(epochs=5, batch=16, lr=2e-3):
    torch.manual_seed(1)
    data, held = Clusters(1150, 0), Clusters(192, 1)
    train = DataLoader(data, batch_sampler=SizeBuckets(data, batch, 8), collate_fn=collate)
    val = DataLoader(held, batch_size=32, collate_fn=collate)
    model = ClusterNet()
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)
    step = 0
    for epoch in range(epochs):
        model.train()
        for pos, kind, mask, e in train:
            target = (e / mask.sum(1) - data.mean) / data.std
            loss = nn.functional.smooth_l1_loss(model(pos, kind, mask), target.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 15 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} atoms {pos.shape[1]}")
            step += 1
        sched.step()
        model.eval()
        with torch.no_grad():
            err = [((model(p, k, m) * data.std + data.mean) - e / m.sum(1)).abs() for p, k, m, e in val]
        print(f"epoch {epoch} val mae/atom {torch.cat(err).mean().item():.4f} (target std {data.std:.3f})")


if __name__ == "__main__":
    main()
