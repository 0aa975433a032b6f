# expect: sick
# symptom: the in-batch contrastive loss comes down a little from ln(batch) and then stays just under it for good, and recall on the held-out questions is poor
# axis: loss
# cause: the similarities are cosines (both towers normalised) put into the softmax without a temperature: the logits lie in [-1, 1], so the loss cannot fall much below ln(batch) and gradients hardly tell positives from negatives
# says: temperature|logit[_ -]?scale|(cosine|similarit|logits|score|normali[sz]).{0,160}(scale|scaling|bounded|\[-1|between -1|range|too small|sharp|flat)
# onset_step: 0
# fix: divide the cosine scores by a temperature (0.05, or a learned logit scale)
# mended: the scores are divided by 0.05
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(12)

VOCAB, TOPICS, DOC_LEN, Q_LEN, DIM, BATCH = 600, 30, 16, 8, 64, 128
SCALE = 20.0 if MENDED else 1.0
r = np.random.default_rng(31)
TOPIC_WORDS = np.stack([r.choice(VOCAB, 100, replace=False) for _ in range(TOPICS)])
PARAPHRASE = r.permutation(VOCAB)


def make_corpus(n, seed):
    """Passages draw words from one topic; the question asks with other words (paraphrases) about some of them."""
    g = np.random.default_rng(seed)
    docs, qs = np.zeros((n, DOC_LEN), np.int64), np.zeros((n, Q_LEN), np.int64)
    for i in range(n):
        words = TOPIC_WORDS[g.integers(TOPICS)]
        docs[i] = g.choice(words, DOC_LEN, replace=False)
        keep = g.choice(docs[i], Q_LEN, replace=False)
        flip = g.random(Q_LEN) < 0.5
        qs[i] = np.where(flip, PARAPHRASE[keep], keep)
    return torch.from_numpy(docs), torch.from_numpy(qs)


class Tower(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.gate = nn.Linear(dim, 1)
        self.ff = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, ids):
        e = self.emb(ids)
        pooled = (self.gate(e).softmax(1) * e).sum(1) * math.sqrt(ids.shape[1])
        return pooled + self.ff(pooled)


class BiEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.passage = Tower(VOCAB, DIM), Tower(VOCAB, DIM)

    def encode_q(self, ids):
        return F.normalize(self.query(ids), dim=-1)

    def encode_p(self, ids):
        return F.normalize(self.passage(ids), dim=-1)

    def forward(self, q_ids, p_ids):
        scores = SCALE * self.encode_q(q_ids) @ self.encode_p(p_ids).t()
        target = torch.arange(len(scores))
        return F.cross_entropy(scores, target), (scores.argmax(1) == target).float().mean()


@torch.no_grad()
def recall(model, docs, qs, ks=(1, 10)):
    model.eval()
    s = model.encode_q(qs) @ model.encode_p(docs).t()
    rank = (s > s.diag()[:, None]).sum(1)
    model.train()
    return [(rank < k).float().mean().item() for k in ks]


def main():
    docs, qs = make_corpus(20000, 1)
    test = make_corpus(1000, 2)
    model = BiEncoder()
    steps, lr = 800, 2e-3
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50) * max(0.02, 1 - s / steps))
    g = torch.Generator().manual_seed(5)
    perm, pos = torch.randperm(len(docs), generator=g), 0
    for step in range(steps):
        if pos + BATCH > len(docs):
            perm, pos = torch.randperm(len(docs), generator=g), 0
        idx = perm[pos : pos + BATCH]
        pos += BATCH
        loss, acc = model(qs[idx], docs[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} in-batch acc {acc.item():.3f}", flush=True)
        if (step + 1) % 200 == 0:
            r1, r10 = recall(model, *test)
            print(f"step {step} held-out recall@1 {r1:.3f} recall@10 {r10:.3f}", flush=True)


if __name__ == "__main__":
    main()
