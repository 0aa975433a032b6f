# expect: sick
# symptom: the first printed triplet loss is normal, from the second step on it is NaN and recall@1 is at chance
# axis: loss
# cause: the pairwise Euclidean distance takes sqrt of exactly 0 on the diagonal (an item with itself); the derivative of sqrt at 0 is infinite and 0 * inf gives NaN gradients in the very first backward
# says: sqrt|square[ -]?root|(pairwise|euclid|self|diagonal|zero)[^.\n]{0,60}distance|distance[^.\n]{0,60}(zero|0\b|diagonal|itself|eps)|norm[^.\n]{0,30}(at|of) (zero|0)
# onset_step: 0
# fix: clamp the squared distance to a small positive number (1e-12) before the sqrt
# mended: lower bound of the squared distance 1e-12 instead of 0
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

N_CLASSES, PER_CLASS, SIDE = 60, 24, 20
P, K = 12, 4
STEPS = 300
MARGIN = 0.3
FLOOR = 1e-12 if MENDED else 0.0


def make_products():
    """every product is a low-frequency texture, each photo is shifted, relit and noisy"""
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), 0) / SIDE
    images, labels = [], []
    for c in range(N_CLASSES):
        waves = [
            (rng.uniform(0.5, 3.5, 2) * rng.choice([-1, 1], 2), rng.uniform(0, 6.28), rng.normal(0, 1, 3))
            for _ in range(4)
        ]
        for _ in range(PER_CLASS):
            shift = rng.uniform(-0.08, 0.08, 2)
            img = np.zeros((3, SIDE, SIDE))
            for freq, phase, colour in waves:
                arg = 6.28 * ((grid[0] + shift[0]) * freq[0] + (grid[1] + shift[1]) * freq[1]) + phase
                img += colour[:, None, None] * np.sin(arg)[None]
            img = img * rng.uniform(0.6, 1.4) + rng.normal(0, 0.3, (3, 1, 1)) + rng.normal(0, 1.2, img.shape)
            images.append(img)
            labels.append(c)
    return torch.tensor(np.stack(images), dtype=torch.float32), torch.tensor(labels)


class PKSampler:
    """P products with K photos each"""

    def __init__(self, labels, p, k):
        self.by_class = {int(c): np.flatnonzero(labels.numpy() == c) for c in labels.unique()}
        self.p, self.k = p, k

    def batch(self):
        classes = rng.choice(list(self.by_class), self.p, replace=False)
        return np.concatenate([rng.choice(self.by_class[c], self.k, replace=False) for c in classes])


class Embedder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
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
        self.head = nn.Linear(64 * 5 * 5, dim)

    def forward(self, x):
        return F.normalize(self.head(self.body(x).flatten(1)), dim=1)


def distances(z):
    sq = (z * z).sum(1)
    d2 = sq[:, None] + sq[None, :] - 2 * z @ z.t()
    return d2.clamp(min=FLOOR).sqrt()


def batch_hard(z, y):
    d = distances(z)
    same = y[:, None] == y[None, :]
    pos = d.masked_fill(~same, -1.0).max(1).values
    neg = d.masked_fill(same, 1e4).min(1).values
    return F.relu(pos - neg + MARGIN).mean(), pos.mean(), neg.mean()


@torch.no_grad()
def recall_at_1(model, x, y):
    model.eval()
    z = torch.cat([model(part) for part in x.split(200)])
    sim = z @ z.t()
    sim.fill_diagonal_(-9)
    model.train()
    return (y[sim.argmax(1)] == y).float().mean().item()


def main():
    images, labels = make_products()
    held_out = labels >= 45
    train_x, train_y = images[~held_out], labels[~held_out]
    test_x, test_y = images[held_out], labels[held_out]
    sampler = PKSampler(train_y, P, K)
    model = Embedder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        idx = torch.as_tensor(sampler.batch())
        loss, pos, neg = batch_hard(model(train_x[idx]), train_y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < 3 or step % 25 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  hardest pos {pos.item():.3f}  hardest neg {neg.item():.3f}")
    print(f"recall@1 on unseen products: {recall_at_1(model, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
