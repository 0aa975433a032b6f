# expect: sick
# symptom: the triplet loss falls well, then is NaN for good some time after the second collection is added
# axis: loss
# cause: scarce identities are drawn twice into a batch, so sqrt of a zero distance has a NaN gradient
# says: sqrt|square root|zero distance|distance.{0,30}zero|duplicat|identical|(drawn|same).{0,40}(twice|repeat)
# onset_step: 150
# fix: clamp the squared distances to a tiny minimum before the square root
# mended: the script applies that change if the environment has MENDED=1
"""Re-identification: embeddings by batch-hard triplets with a P x K sampler."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
P, K, MARGIN, STEPS, STAGE2 = 8, 4, 0.3, 300, 150
D2_MIN = 1e-12 if FLAG else 0.0


def make_people(n_id, per_id, rng, protos=None):
    """Every identity is a smooth 16x16 pattern seen under shifts, gain and noise."""
    imgs, ids = [], []
    for i in range(n_id):
        coarse = torch.from_numpy(rng.normal(size=(1, 1, 5, 5))).float()
        proto = F.interpolate(coarse, size=(16, 16), mode="bicubic", align_corners=False)[0, 0]
        for _ in range(per_id):
            dx, dy = rng.integers(-2, 3, 2)
            im = torch.roll(proto, (int(dx), int(dy)), (0, 1)) * float(rng.uniform(0.6, 1.4))
            imgs.append(im + 0.35 * torch.from_numpy(rng.normal(size=(16, 16))).float())
            ids.append(i)
    return torch.stack(imgs).unsqueeze(1), np.array(ids)


class PKSampler:
    def __init__(self, ids, p, k, rng):
        self.p, self.k, self.rng = p, k, rng
        self.index = {}
        self.extend(ids)

    def extend(self, ids, offset=0):
        for row, i in enumerate(ids):
            self.index.setdefault(int(i), []).append(row + offset)

    def draw(self):
        rows, labels = [], []
        for i in self.rng.choice(list(self.index), self.p, replace=False):
            pool = self.index[int(i)]
            rows.extend(self.rng.choice(pool, self.k, replace=len(pool) < self.k))
            labels.extend([int(i)] * self.k)
        return torch.as_tensor(np.array(rows)), torch.tensor(labels)


class Embedder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(32 * 16, dim)

    def forward(self, x):
        return F.normalize(self.head(self.body(x).flatten(1)), dim=1)


def pairwise(e):
    d2 = (e.unsqueeze(1) - e.unsqueeze(0)).pow(2).sum(-1)
    return (d2.clamp(min=D2_MIN) + torch.eye(len(e))).sqrt()  # unit diagonal, it is masked by the miner


def batch_hard(e, y):
    d = pairwise(e)
    same = y.unsqueeze(0) == y.unsqueeze(1)
    pos = d.masked_fill(~same | torch.eye(len(y), dtype=torch.bool), -1.0).max(1).values
    neg = d.masked_fill(same, 10.0).min(1).values
    return F.relu(pos - neg + MARGIN).mean(), (pos < neg).float().mean()


@torch.no_grad()
def rank1(model, x, y):
    model.eval()
    e = model(x)
    d = torch.cdist(e, e) + 10 * torch.eye(len(e))
    hit = (torch.as_tensor(y)[d.argmin(1)] == torch.as_tensor(y)).float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    images, ids = make_people(40, 14, rng)
    extra, extra_ids = make_people(10, 3, rng)  # a second, small collection
    gallery, gallery_ids = make_people(20, 8, rng)
    sampler = PKSampler(ids, P, K, rng)
    model = Embedder()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    print(f"rank-1 before training {rank1(model, gallery, gallery_ids):.3f}")
    for step in range(1, STEPS + 1):
        if step == STAGE2:
            sampler.extend(extra_ids + 40, offset=len(images))
            images = torch.cat([images, extra])
            print(f"step {step}: second collection added, {len(sampler.index)} identities")
        rows, y = sampler.draw()
        loss, ok = batch_hard(model(images[rows]), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 1:
            print(f"step {step:4d} loss {loss.item():.4f} ordered {ok.item():.2f}")
    print(f"final loss {loss.item():.4f} rank-1 on new people {rank1(model, gallery, gallery_ids):.3f}")


if __name__ == "__main__":
    main()
