# expect: sick
# symptom: the loss is normal on the first batch and nan from the second step on; the weights are full of nan after a single update
# axis: precision
# cause: the model is held in float16 and Adam runs with its default eps of 1e-8, which rounds to zero in float16, so the update divides by zero
# says: \beps(ilon)?\b|(fp16|float16|half).{0,40}(adam|optimi[sz]er|denominator|second moment|weights|param)|(adam|optimi[sz]er|denominator|second moment|weights|param\w*).{0,40}(fp16|float16|half)
# onset_step: 1
# fix: give Adam an eps that float16 can represent (1e-4)
# mended: passes eps=1e-4 to Adam; the contrastive loss falls steadily and retrieval works
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(7)
torch.set_num_threads(1)

VOCAB, TOPICS, QLEN, DLEN = 600, 60, 8, 20
STEPS, BATCH = 400, 48
WORDS_PER_TOPIC = VOCAB // TOPICS


class Tower(nn.Module):
    def __init__(self, vocab, dim, out, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.proj = nn.Linear(dim, out)
        nn.init.normal_(self.emb.weight, std=0.3)

    def forward(self, ids):
        h = self.emb(ids).mean(1)
        for b in self.blocks:
            h = h + b(h)
        return self.proj(self.norm(h))


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Tower(VOCAB, 64, 48)
        self.doc = Tower(VOCAB, 64, 48)

    def forward(self, q, d):
        zq = F.normalize(self.query(q).float(), dim=-1)
        zd = F.normalize(self.doc(d).float(), dim=-1)
        return zq @ zd.t() / 0.07


def sample_text(topics, length):
    on_topic = topics[:, None] * WORDS_PER_TOPIC + torch.randint(0, WORDS_PER_TOPIC, (len(topics), length))
    noise = torch.randint(0, VOCAB, (len(topics), length))
    keep = torch.rand(len(topics), length) < 0.85
    return torch.where(keep, on_topic, noise)


def make_batch(n):
    pairs = torch.randint(0, TOPICS, (n,))
    second = torch.randint(0, TOPICS, (n,))
    q = torch.cat([sample_text(pairs, QLEN // 2), sample_text(second, QLEN // 2)], 1)
    d = torch.cat([sample_text(pairs, DLEN // 2), sample_text(second, DLEN // 2)], 1)
    return q, d


@torch.no_grad()
def recall_at_1(model, n=256):
    q, d = make_batch(n)
    s = model(q, d)
    return (s.argmax(1) == torch.arange(n)).float().mean().item()


def main():
    model = Retriever().half()
    extra = {"eps": 1e-4} if MENDED else {}
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), **extra)
    target = torch.arange(BATCH)
    t0 = time.time()
    for step in range(1, STEPS + 1):
        for g in opt.param_groups:
            g["lr"] = 2e-3 * min(1.0, step / 20) * (0.55 + 0.45 * math.cos(math.pi * step / STEPS))
        q, d = make_batch(BATCH)
        logits = model(q, d)
        loss = 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 1 or step % 40 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
    print(f"recall@1 of 256: {recall_at_1(model):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
