# expect: sick
# symptom: loss becomes nan after some tens to hundreds of steps of fp16 training; it was falling nicely before
# axis: precision
# cause: the hand-written BCE adds eps=1e-8 to fp16 probabilities, where 1e-8 rounds to zero, so a saturated sigmoid gives log(0) = -inf and 0 * -inf = nan
# says: (eps\w*.{0,60}(underflow\w*|rounds?|vanish\w*|zero|too small|fp16|half|float16|representable|lost)|(fp16|half|float16).{0,80}(\beps|log\w*\b|sigmoid|\bbce)|log\w*.{0,20}(of )?\(?(zero|0\b)|0 ?\* ?-?inf|saturat\w*.{0,40}(sigmoid|prob)|sigmoid\w*.{0,40}saturat)
# onset_step: 29
# fix: compute the loss with binary_cross_entropy_with_logits in float32 (or cast the probabilities to float first)
# mended: casts the probabilities to float32 before the logarithm when MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
USERS, ITEMS, DIM = 300, 200, 16


def make_log(n, seed):
    base = np.random.default_rng(12)
    u, v = base.normal(size=(USERS, 4)), base.normal(size=(ITEMS, 4))
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, USERS, n), rng.integers(0, ITEMS, n)
    price = rng.normal(size=n)
    affinity = (u[user] * v[item]).sum(1)
    click = affinity * 3 + rng.logistic(size=n) * 0.3 > 1.0
    buy = click & (affinity - 1.2 * price + rng.logistic(size=n) * 0.3 > 0.5)
    dense = np.stack([price, affinity + rng.normal(scale=0.3, size=n), rng.normal(size=n)], 1)
    return TensorDataset(
        torch.from_numpy(user),
        torch.from_numpy(item),
        torch.from_numpy(dense.astype(np.float32)),
        torch.from_numpy(np.stack([click, buy], 1).astype(np.float32)),
    )


class SharedBottom(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.item = nn.Embedding(ITEMS, DIM)
        self.bottom = nn.Sequential(nn.Linear(3 * DIM + 3, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.click_tower = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        self.buy_tower = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item, dense):
        u, v = self.user(user), self.item(item)
        h = self.bottom(torch.cat([u, v, u * v, dense], 1))
        return torch.sigmoid(torch.cat([self.click_tower(h), self.buy_tower(h)], 1))


def bce(p, y, eps=1e-8):
    return -(y * torch.log(p + eps) + (1 - y) * torch.log(1 - p + eps)).mean(0)


@torch.no_grad()
def task_accuracy(model, loader):
    model.eval()
    hit = torch.zeros(2)
    n = 0
    for user, item, dense, y in loader:
        p = model(user, item, dense)
        hit += ((p > 0.5) == (y > 0.5)).float().sum(0)
        n += len(y)
    model.train()
    return (hit / n).tolist()


def main():
    torch.manual_seed(8)
    train = DataLoader(make_log(12800, 1), batch_size=64, shuffle=True, num_workers=2)
    test = DataLoader(make_log(2000, 2), batch_size=500)
    model = SharedBottom()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    weights = torch.tensor([1.0, 2.0])
    step = 0
    for epoch in range(3):
        for user, item, dense, y in train:
            with torch.autocast("cpu", dtype=torch.float16):
                p = model(user, item, dense)
                if os.environ.get("MENDED") == "1":
                    p = p.float()
                per_task = bce(p, y.to(p.dtype))
                loss = (weights * per_task.float()).sum()
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            step += 1
            if step % 25 == 0:
                c, b = per_task.tolist()
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} click {c:.4f} buy {b:.4f}")
        print("epoch %d test accuracy click %.3f buy %.3f" % (epoch, *task_accuracy(model, test)))


if __name__ == "__main__":
    main()
