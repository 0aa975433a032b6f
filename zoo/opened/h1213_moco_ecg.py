# expect: healthy
# symptom: the contrastive loss rises in the first steps, all labels are zero, the key encoder has no gradient and is not in the optimizer, and the queue holds keys of older weights
# axis: none
# mended: none
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

LEN, N_CLS, DIM, QUEUE, M, T = 128, 8, 32, 1024, 0.99, 0.1
BATCH, STEPS, LR = 64, 500, 1e-3
morph = np.random.default_rng(77).normal(0, 1, (N_CLS, 4, 3))


def record(c, r, n=LEN):
    """Periodic pulse trains; the class is the shape of the beat, rate and phase are nuisance."""
    period = r.uniform(26, 40)
    t = (np.arange(2 * n) + r.uniform(0, period)) % period / period
    x = np.zeros(2 * n)
    for k in range(4):
        a, m, w = morph[c, k]
        x += 1.2 * a * np.exp(-0.5 * ((t - 0.2 - 0.18 * k - 0.03 * m) / (0.035 + 0.01 * abs(w))) ** 2)
    return x


def make_set(n, seed):
    r = np.random.default_rng(seed)
    y = r.integers(0, N_CLS, n)
    return torch.from_numpy(np.stack([record(c, r) for c in y])).float(), torch.from_numpy(y)


def augment(x, g):
    n = len(x)
    off = torch.randint(0, LEN, (n, 1), generator=g) + torch.arange(LEN)[None]
    x = x.gather(1, off)
    x = x * (0.6 + 0.8 * torch.rand(n, 1, generator=g))
    x = x + 0.5 * torch.randn(n, 1, generator=g) + 0.2 * torch.randn(n, LEN, generator=g)
    start = torch.randint(0, LEN - 16, (n, 1), generator=g)
    pos = torch.arange(LEN)[None]
    return x.masked_fill((pos >= start) & (pos < start + 16), 0.0)[:, None]


class Encoder(nn.Module):
    def __init__(self, c=24):
        super().__init__()

        def blk(i, o):
            return nn.Sequential(nn.Conv1d(i, o, 7, 2, 3), nn.GroupNorm(4, o), nn.ReLU())

        self.body = nn.Sequential(blk(1, c), blk(c, 2 * c), blk(2 * c, 4 * c))
        self.proj = nn.Sequential(nn.Linear(4 * c, 4 * c), nn.ReLU(), nn.Linear(4 * c, DIM))

    def features(self, x):
        return self.body(x).mean(-1)

    def forward(self, x):
        return F.normalize(self.proj(self.features(x)), dim=-1)


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Encoder()
        self.k = copy.deepcopy(self.q)
        self.k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, DIM), dim=-1))
        self.ptr = 0

    @torch.no_grad()
    def keys(self, x):
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.mul_(M).add_(a, alpha=1 - M)
        return self.k(x)

    @torch.no_grad()
    def enqueue(self, k):
        self.queue[self.ptr : self.ptr + len(k)] = k
        self.ptr = (self.ptr + len(k)) % QUEUE

    def forward(self, xq, xk):
        q, k = self.q(xq), self.keys(xk)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().t()
        logits = torch.cat([pos, neg], 1) / T
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        self.enqueue(k)
        return loss


@torch.no_grad()
def knn_accuracy(enc, train, test, k=5):
    g = torch.Generator().manual_seed(3)
    f, y = [], []
    for x, lab in (train, test):
        v = torch.stack([enc.features(augment(x, g)) for _ in range(4)]).mean(0)
        f.append(F.normalize(v - v.mean(0), dim=-1))
        y.append(lab)
    idx = (f[1] @ f[0].t()).topk(k, dim=1).indices
    votes = F.one_hot(y[0][idx], N_CLS).sum(1)
    return (votes.argmax(1) == y[1]).float().mean().item()


def main():
    train, test = make_set(2000, 0), make_set(300, 1)
    g = torch.Generator().manual_seed(0)
    model = MoCo()
    opt = torch.optim.AdamW(model.q.parameters(), lr=LR, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    print(f"kNN accuracy before training {knn_accuracy(model.q, train, test):.3f}")
    for step in range(STEPS):
        x = train[0][torch.randint(0, len(train[0]), (BATCH,), generator=g)]
        loss = model(augment(x, g), augment(x, g))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if (step + 1) % 250 == 0:
            print(f"step {step} kNN accuracy {knn_accuracy(model.q, train, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
