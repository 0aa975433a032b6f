# expect: sick
# symptom: the first printed loss is fine, then the loss is NaN from the second step on and every weight is NaN
# axis: loss
# cause: the pairwise Euclidean distance takes sqrt of an exact zero (the distance of each embedding to itself on the diagonal); the derivative of sqrt at 0 is infinite, and 0 * inf gives NaN gradients in the first backward
# says: sqrt|square root|zero distance|distance[^.]{0,40}\bzero\b|diagonal|self[- ]distance|(pairwise|euclid\w*) (distance|norm)|norm[^.]{0,30}\b(at|of) (0|zero)|(infinite|undefined|singular)[^.]{0,30}(gradient|derivative)
# onset_step: 0
# fix: add a small epsilon inside the square root (or clamp the squared distance from below) so that the gradient at zero distance is finite
# mended: adds 1e-12-sized clamp to the squared distances before the square root
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(7)
rng = np.random.default_rng(7)

N_ID, PER_ID, IMG = 60, 30, 24
P, K = 12, 4  # identities per batch, images per identity
STEPS, MARGIN = 260, 0.3


def make_gallery():
    """Small 'faces': a smooth identity pattern, shifted, rescaled and with sensor noise."""
    base = rng.normal(size=(N_ID, 1, 6, 6)).astype(np.float32)
    base = F.interpolate(torch.from_numpy(base), size=IMG, mode="bicubic", align_corners=False)
    imgs = []
    for i in range(N_ID):
        row = []
        for _ in range(PER_ID):
            dx, dy = rng.integers(-2, 3, size=2)
            im = torch.roll(base[i], (int(dx), int(dy)), dims=(1, 2))
            im = im * float(rng.uniform(0.7, 1.3)) + 0.4 * torch.from_numpy(
                rng.normal(size=(1, IMG, IMG)).astype(np.float32)
            )
            row.append(im)
        imgs.append(torch.stack(row))
    return torch.stack(imgs)  # (identity, shot, 1, H, W)


class EmbeddingNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(48, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )
        self.fc = nn.Linear(64 * 6 * 6, dim)

    def forward(self, x):
        h = self.body(x).flatten(1)
        return F.normalize(self.fc(h), dim=1)


def pairwise_distance(a, b):
    d2 = (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(-1)
    if MENDED:
        d2 = d2.clamp(min=1e-12)
    return d2.sqrt()


def batch_hard_triplet(emb, ids):
    dist = pairwise_distance(emb, emb)
    same = ids.unsqueeze(0) == ids.unsqueeze(1)
    hardest_pos = (dist * same.float()).max(dim=1).values
    hardest_neg = (dist + 10.0 * same.float()).min(dim=1).values
    return F.relu(hardest_pos - hardest_neg + MARGIN).mean()


def sample_pk(gallery, train_ids):
    ids = rng.choice(train_ids, size=P, replace=False)
    xs, ys = [], []
    for i in ids:
        shots = rng.choice(PER_ID, size=K, replace=False)
        xs.append(gallery[i, shots])
        ys.append(torch.full((K,), int(i)))
    return torch.cat(xs), torch.cat(ys)


@torch.no_grad()
def recall_at_1(model, gallery, ids):
    model.eval()
    x = gallery[ids, :8].reshape(-1, 1, IMG, IMG)
    y = torch.arange(len(ids)).repeat_interleave(8)
    e = model(x)
    sim = e @ e.T
    sim.fill_diagonal_(-9)
    model.train()
    return (y[sim.argmax(1)] == y).float().mean().item()


def main():
    gallery = make_gallery()
    train_ids, test_ids = np.arange(45), np.arange(45, N_ID)
    model = EmbeddingNet()
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    t0 = time.time()
    for step in range(STEPS):
        x, y = sample_pk(gallery, train_ids)
        loss = batch_hard_triplet(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step < 3:
            print(f"step {step:4d}  triplet loss {loss.item():.4f}")
    print(f"recall@1 on unseen identities {recall_at_1(model, gallery, test_ids):.3f}  ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
