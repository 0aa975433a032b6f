# expect: healthy
# symptom: half of the parameters (the key encoder) never get a gradient and are not in the optimizer; the targets are all zero; the loss rises at first, while the queue fills
# axis: none
# mended: none
"""MoCo-style dense retrieval: momentum key encoder for passages and a queue of negatives."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)

VOCAB, PASSAGE, QUERY, N = 900, 20, 6, 3000


def corpus(seed=1):
    r = np.random.default_rng(seed)
    entity = r.integers(1, VOCAB, (300, 10))
    who = r.integers(0, 300, N)
    p = np.where(
        r.random((N, PASSAGE)) < 0.5,
        entity[who][np.arange(N)[:, None], r.integers(0, 10, (N, PASSAGE))],
        r.integers(1, VOCAB, (N, PASSAGE)),
    )
    return torch.from_numpy(p), torch.from_numpy(who)


passages, ids = corpus()


def make_query(p, gen):
    """Some words of the passage, as in the inverse cloze task."""
    pick = torch.rand(p.shape, generator=gen).argsort(1)[:, :QUERY]
    return p.gather(1, pick)


class Tower(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        nn.init.normal_(self.emb.weight, std=0.1)
        self.mix = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.score = nn.Linear(d, 1)

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.mix(x)
        return F.normalize((self.score(x).softmax(1) * x).sum(1), dim=-1)


class MoCo(nn.Module):
    def __init__(self, size=1024, momentum=0.99, tau=0.07):
        super().__init__()
        self.query = Tower()
        self.key = copy.deepcopy(self.query)
        for p in self.key.parameters():
            p.requires_grad = False
        self.m, self.tau, self.size, self.ptr, self.filled = momentum, tau, size, 0, 0
        self.register_buffer("queue", torch.zeros(size, 64))

    @torch.no_grad()
    def update_key(self):
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.mul_(self.m).add_(q, alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, k):
        at = (self.ptr + torch.arange(len(k))) % self.size
        self.queue[at] = k
        self.ptr = (self.ptr + len(k)) % self.size
        self.filled = min(self.size, self.filled + len(k))

    def forward(self, q_ids, p_ids):
        q = self.query(q_ids)
        with torch.no_grad():
            self.update_key()
            k = self.key(p_ids)
        pos = (q * k).sum(-1, keepdim=True)
        neg = q @ self.queue[: max(self.filled, 1)].T.clone()
        logits = torch.cat([pos, neg], 1) / self.tau
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        self.enqueue(k)
        return loss, logits


@torch.no_grad()
def recall(model, k=5):
    q = make_query(passages[:400], torch.Generator().manual_seed(123))
    top = (model.query(q) @ model.key(passages).T).topk(k, 1).indices
    return (top == torch.arange(400)[:, None]).any(1).float().mean().item()


gen = torch.Generator().manual_seed(5)
model = MoCo()
opt = torch.optim.AdamW(model.query.parameters(), lr=2e-3, weight_decay=0.01)
EPOCHS, BS, step = 8, 48, 0
total = EPOCHS * (N // BS)
for epoch in range(EPOCHS):
    for idx in torch.randperm(N, generator=gen)[: N // BS * BS].split(BS):
        for g in opt.param_groups:
            g["lr"] = 2e-3 * min(1, (step + 1) / 20) * (1 - 0.95 * step / total)
        p = passages[idx]
        loss, logits = model(make_query(p, gen), p)
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 20 == 0:
            print(
                f"step {step:3d} loss {loss.item():.4f} queue {model.filled} "
                f"acc {(logits.argmax(1) == 0).float().mean().item():.2f}"
            )
        step += 1
    print(f"epoch {epoch} recall@5 {recall(model):.3f}")
