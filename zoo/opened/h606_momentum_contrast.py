# expect: healthy
# symptom: the contrastive loss rises at first and half of the network has no gradients and is in no optimizer (resembles frozen weights and divergence)
# axis: model
# cause: the key encoder is moved by a momentum average as in MoCo, and the loss rises only while the queue of negatives fills up; the linear probe improves a lot
# says: none
# onset_step: none
# fix: none
# mended: none
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

QUEUE = 1024
TEMP = 0.2
CLASSES = 6
S = 16
YY, XX = torch.meshgrid(torch.linspace(-1, 1, S), torch.linspace(-1, 1, S), indexing="ij")
SHADES = torch.stack([torch.ones(S, S), XX, YY, XX * YY, XX**2, YY**2])
FIXED = torch.Generator().manual_seed(100)
MARKS = F.avg_pool2d(torch.randn(12, 1, S, S, generator=FIXED), 3, 1, 1)[:, 0] * 2
MEANS = torch.randn(CLASSES, 12, generator=FIXED)


def photos(n, gen):
    """Marked surfaces of six makes, each with its own wear, before lighting."""
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    code = 0.7 * MEANS[y] + 0.6 * torch.randn(n, 12, generator=gen)
    return torch.einsum("nk,khw->nhw", code, MARKS)[:, None], y


def augment(x):
    """Random lighting, contrast and sensor noise."""
    n = len(x)
    light = torch.einsum("nk,khw->nhw", 4 * torch.randn(n, len(SHADES)), SHADES)[:, None]
    return x * (0.8 + 0.4 * torch.rand(n, 1, 1, 1)) + light + 0.3 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(32, 32, 3, stride=2),
            nn.Flatten(),
            nn.Linear(288, 128),
            nn.ReLU(),
        )
        self.proj = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)


class MoCo(nn.Module):
    def __init__(self, m=0.99):
        super().__init__()
        self.q, self.m = Encoder(), m
        self.k = copy.deepcopy(self.q)
        for p in self.k.parameters():
            p.requires_grad_(False)
        self.queue = torch.zeros(0, 32)

    @torch.no_grad()
    def follow(self):
        for pk, pq in zip(self.k.parameters(), self.q.parameters()):
            pk.lerp_(pq, 1 - self.m)

    def forward(self, x):
        q = self.q(augment(x))
        with torch.no_grad():
            k = self.k(augment(x))
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.t()
        logits = torch.cat([pos, neg], 1) / TEMP
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
        self.queue = torch.cat([k, self.queue])[:QUEUE]
        return loss


def probe(encoder, gen):
    """Ridge regression on frozen features."""
    with torch.no_grad():
        xa, ya = photos(800, gen)
        xb, yb = photos(800, gen)
        fa, fb = encoder.body(augment(xa)), encoder.body(augment(xb))
        mu, sd = fa.mean(0), fa.std(0) + 1e-4
        fa, fb = (fa - mu) / sd, (fb - mu) / sd
        w = torch.linalg.solve(fa.t() @ fa + 50 * torch.eye(fa.size(1)), fa.t() @ F.one_hot(ya, CLASSES).float())
        return ((fb @ w).argmax(1) == yb).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(3)
    model = MoCo()
    opt = torch.optim.AdamW(model.q.parameters(), lr=5e-4, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)
    print(f"probe before training {probe(model.q, gen):.3f}")
    for step in range(1, 501):
        x, _ = photos(128, gen)
        loss = model(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        model.follow()
        if step <= 10 or step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} queue {len(model.queue)}", flush=True)
        if step % 100 == 0:
            print(f"step {step} probe {probe(model.q, gen):.3f}", flush=True)


if __name__ == "__main__":
    main()
