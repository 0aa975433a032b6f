# expect: healthy
# symptom: resembles divergence or a plateau: the contrastive loss climbs above its first value, rises again while the bank of negatives fills, and then lies flat, while retrieval goes on improving
# axis: loss
"""Shop-session embeddings: two random halves of a session are a positive pair; negatives come from the
batch and from a bank of past embeddings made by a slowly moving copy of the encoder."""

import copy
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(40)
RNG = np.random.default_rng(40)

ITEMS, TASTES, SESSION = 600, 24, 16
BANK_CHUNKS, BATCH, STEPS = 48, 48, 800
TEMP, SLOW = 0.15, 0.98


class Shop:
    """Items lie on a latent map; a visitor has a taste vector and clicks near it."""

    def __init__(self):
        self.items = RNG.normal(size=(ITEMS, 6))
        self.pop = 0.5 * RNG.normal(size=ITEMS)
        self.centres = RNG.normal(size=(TASTES, 6))

    def sessions(self, n):
        kind = RNG.integers(0, TASTES, n)
        taste = self.centres[kind] + 1.2 * RNG.normal(size=(n, 6))
        score = 1.2 * taste @ self.items.T + self.pop + RNG.gumbel(size=(n, ITEMS))
        top = np.argpartition(-score, SESSION, axis=1)[:, :SESSION]
        return torch.from_numpy(RNG.permuted(top, axis=1)), torch.from_numpy(kind)


class Encoder(nn.Module):
    def __init__(self, d=48, out=32):
        super().__init__()
        self.emb = nn.Embedding(ITEMS, d)
        self.gate = nn.Linear(d, 1)
        self.proj = nn.Sequential(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, out))
        nn.init.normal_(self.emb.weight, std=0.3)

    def forward(self, s):
        e = self.emb(s)
        w = self.gate(e).softmax(1)
        return F.normalize(self.proj((w * e).sum(1)), dim=-1)


@torch.no_grad()
def retrieval(enc, sessions):
    a, b = enc(sessions[:, : SESSION // 2]), enc(sessions[:, SESSION // 2 :])
    rank = (a @ b.T).argsort(1, descending=True)
    hit = (rank[:, :10] == torch.arange(len(a))[:, None]).any(1)
    return hit.float().mean().item()


shop = Shop()
fast = Encoder()
slow = copy.deepcopy(fast)
for p in slow.parameters():
    p.requires_grad_(False)
bank = deque(maxlen=BANK_CHUNKS)
opt = torch.optim.Adam(fast.parameters(), lr=2e-3)
exam, _ = shop.sessions(500)

smooth = None
for step in range(1, STEPS + 1):
    s, _ = shop.sessions(BATCH)
    q = fast(s[:, : SESSION // 2])
    with torch.no_grad():
        for ps, pf in zip(slow.parameters(), fast.parameters()):
            ps.lerp_(pf, 1 - SLOW)
        k = slow(s[:, SESSION // 2 :])
    keys = torch.cat([k, *bank]) if bank else k
    logits = q @ keys.T / TEMP
    loss = F.cross_entropy(logits, torch.arange(BATCH))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 4 == 0:
        bank.append(k)

    smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
    if step % 40 == 0 or step == 1:
        print(
            f"step {step:4d} negatives {len(keys) - 1:5d} loss {loss.item():.4f} smooth {smooth:.4f} "
            f"chance {np.log(len(keys)):.3f} hit@10 {retrieval(fast, exam):.3f}",
            flush=True,
        )
