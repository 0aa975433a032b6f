# expect: sick
# symptom: the contrastive loss falls normally, then is NaN from one step to the next and stays NaN to the end
# axis: data
# cause: a few documents are empty after cleaning (only stop words), so their row consists of padding only; the softmax of the attention pooling over nothing but -inf gives NaN, and the in-batch softmax spreads it to the whole batch
# says: empty|(only|all|fully|entirely|complete(ly)?|nothing but).{0,20}(pad|mask)|(pad|mask)(ded|ed|ding)?.{0,15}(only|everything|entire row|fully|completely|all positions)|zero.?length|length (of )?(0|zero)|no (valid|real|unmasked) (token|position|word)|softmax.{0,30}(all )?-?inf
# onset_step: 111
# fix: drop documents that are empty after cleaning (or give them an <empty> token / guard the pooling)
# mended: documents without tokens are left out of the training pairs
"""Query-document retrieval with a shared dual encoder and in-batch negatives."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(0)
rng = np.random.default_rng(2)

VOCAB, STOP, PAD = 1200, 60, 0  # ids 1..59 are function words
N_DOCS, TOPICS, MAX_D, MAX_Q = 4800, 240, 24, 8
topic_words = rng.integers(STOP, VOCAB, (TOPICS, 14))


def write_doc(i):
    n = rng.integers(10, 40)
    if rng.random() < 0.0005:  # cookie banners, "read more" and the like
        return rng.integers(1, STOP, n).tolist(), int(rng.integers(TOPICS))
    t = int(rng.integers(TOPICS))
    body = np.where(rng.random(n) < 0.45, rng.choice(topic_words[t], n), rng.integers(1, STOP, n))
    noise = rng.random(n) < 0.1
    body[noise] = rng.integers(STOP, VOCAB, noise.sum())
    return body.tolist(), t


def clean(doc):
    return [w for w in doc if w >= STOP][:MAX_D]


def write_query(t):
    return rng.choice(topic_words[t], rng.integers(3, MAX_Q)).tolist()


pairs = []
for i in range(N_DOCS):
    doc, topic = write_doc(i)
    doc = clean(doc)
    if MENDED and len(doc) == 0:
        continue
    pairs.append((write_query(topic), doc, topic))
valid_docs = [p for p in pairs[-480:] if p[1]]
pairs = pairs[:-480]


def collate(seqs, length):
    out = torch.full((len(seqs), length), PAD)
    for r, s in enumerate(seqs):
        out[r, : len(s)] = torch.tensor(s, dtype=torch.long)
    return out


class TextEncoder(nn.Module):
    def __init__(self, dim=64, out=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.norm = nn.LayerNorm(dim)
        self.score = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 1))
        self.proj = nn.Linear(dim, out)

    def forward(self, ids):
        mask = ids != PAD
        x = self.emb(ids)
        x = self.norm(x + F.gelu(self.conv(x.transpose(1, 2)).transpose(1, 2)))
        a = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf")).softmax(-1)
        return F.normalize(self.proj((a.unsqueeze(-1) * x).sum(1)), dim=-1)


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = TextEncoder()
        self.log_scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, q, d, topics):
        sim = self.encoder(q) @ self.encoder(d).T * self.log_scale.exp().clamp(max=60)
        same = topics[:, None].eq(topics[None]) & ~torch.eye(len(q), dtype=torch.bool)
        sim = sim.masked_fill(same, -1e4)
        tgt = torch.arange(len(q))
        return 0.5 * (F.cross_entropy(sim, tgt) + F.cross_entropy(sim.T, tgt))


@torch.no_grad()
def precision_at_1(model):
    model.eval()
    d = model.encoder(collate([p[1] for p in valid_docs], MAX_D))
    q = model.encoder(collate([p[0] for p in valid_docs], MAX_Q))
    t = torch.tensor([p[2] for p in valid_docs])
    hit = (t[(q @ d.T).argmax(1)] == t).float().mean().item()
    model.train()
    return hit


model = Retriever()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
BS, EPOCHS, step = 32, 4, 0
order_rng = np.random.default_rng(449)
for epoch in range(EPOCHS):
    order = order_rng.permutation(len(pairs))
    running = []
    for b in range(0, len(order) - BS + 1, BS):
        rows = [pairs[i] for i in order[b : b + BS]]
        loss = model(
            collate([r[0] for r in rows], MAX_Q),
            collate([r[1] for r in rows], MAX_D),
            torch.tensor([r[2] for r in rows]),
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running.append(loss.item())
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f} scale {model.log_scale.exp().item():.1f}")
        step += 1
    print(f"epoch {epoch}: mean loss {np.mean(running):.4f}  P@1 {precision_at_1(model):.3f}")
