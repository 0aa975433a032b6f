# expect: sick
# symptom: the first printed loss is fine (about 0.5), from the second step on the loss is nan and stays nan
# axis: loss
# cause: pairwise Euclidean distances are taken with sqrt of a squared distance that is exactly zero (clamped at 0) on the diagonal; the derivative of sqrt at 0 is infinite and inf * 0 = NaN in backward, so the gradients are NaN in the very first step
# says: (sqrt|square.?root|euclid\w*|cdist|distance).{0,80}(zero|\b0\b|diagonal|\beps|identical|infinit|derivative|gradient|backward)|(zero|diagonal|self).{0,80}(distance|sqrt|square.?root)
# onset_step: 1
# fix: clamp the squared distances to a small positive eps (1e-12) before the square root (or add eps inside the sqrt)
# mended: clamp(min=1e-12) instead of clamp(min=0) before sqrt
"""Person re-identification style embedding with the batch-hard triplet loss (P identities x K images)."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

N_IDS, IMGS_PER_ID, SIZE = 40, 20, 16
P, K = 8, 4
STEPS = 250
MARGIN = 0.3


def make_images():
    """Every identity has its own coarse colour pattern; every picture gets shift, gain and noise."""
    base = rng.normal(size=(N_IDS, 3, 4, 4)).astype(np.float32)
    base = base.repeat(4, axis=2).repeat(4, axis=3)
    images, ids = [], []
    for i in range(N_IDS):
        for _ in range(IMGS_PER_ID):
            im = np.roll(base[i], rng.integers(-3, 4, size=2), axis=(1, 2))
            im = im * rng.uniform(0.7, 1.3) + rng.normal(scale=0.9, size=im.shape)
            images.append(im.astype(np.float32))
            ids.append(i)
    return torch.from_numpy(np.stack(images)), torch.tensor(ids)


class PKSampler:
    def __init__(self, ids, p, k):
        self.by_id = {int(i): torch.where(ids == i)[0].numpy() for i in ids.unique()}
        self.p, self.k = p, k

    def draw(self):
        chosen = rng.choice(list(self.by_id), size=self.p, replace=False)
        rows = [rng.choice(self.by_id[int(i)], size=self.k, replace=False) for i in chosen]
        return torch.from_numpy(np.concatenate(rows))


class Embedder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )
        self.fc = nn.Linear(64 * 4 * 4, dim)

    def forward(self, x):
        return F.normalize(self.fc(self.body(x).flatten(1)), dim=1)


def pairwise_distances(emb):
    sq = emb.pow(2).sum(1)
    d2 = sq[:, None] + sq[None, :] - 2.0 * emb @ emb.t()
    d2 = d2.clamp(min=1e-12 if MENDED else 0.0)
    return d2.sqrt()


def batch_hard_triplet(emb, ids, margin):
    dist = pairwise_distances(emb)
    same = ids[:, None] == ids[None, :]
    hardest_pos = (dist * same.float()).max(dim=1).values
    hardest_neg = (dist + 10.0 * same.float()).min(dim=1).values
    return F.relu(hardest_pos - hardest_neg + margin).mean()


@torch.no_grad()
def rank1(model, images, ids):
    model.eval()
    emb = model(images)
    sim = emb @ emb.t()
    sim.fill_diagonal_(-2.0)
    hit = (ids[sim.argmax(1)] == ids).float().mean().item()
    model.train()
    return hit


def main():
    images, ids = make_images()
    test = torch.arange(len(ids)) % 4 == 0
    train_x, train_y = images[~test], ids[~test]
    test_x, test_y = images[test], ids[test]
    sampler = PKSampler(train_y, P, K)
    model = Embedder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    print(f"rank-1 before training {rank1(model, test_x, test_y):.3f}")
    for step in range(STEPS):
        rows = sampler.draw()
        emb = model(train_x[rows])
        loss = batch_hard_triplet(emb, train_y[rows], MARGIN)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < 3 or step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.4f}")
    print(f"rank-1 after training {rank1(model, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
