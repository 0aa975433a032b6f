# expect: healthy
# symptom: resembles labels that are all -100: only about 4 percent of all positions carry a label, about 40 percent of the rows have none at all, and the loss is noisy
# axis: data
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed; test loss on masked tokens goes from 4.03 to 0.49 (unigram entropy about 3.9)
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(41)
rng = random.Random(41)

PAD, MASK, V0 = 0, 1, 2
V, L, BATCH, STEPS, D = 50, 24, 64, 450, 64
IGNORE = -100
RULE = [rng.sample(range(V0, V), 3) for _ in range(V)]


def sentence():
    n = rng.choice([6, 6, 6, 7, 8, 16, 20, 24])
    s = [rng.randrange(V0, V)]
    while len(s) < n:
        s.append(rng.choices(RULE[s[-1]], [0.8, 0.15, 0.05])[0])
    return s


def corrupt(s):
    """Pick each position with probability 0.08; labels elsewhere are ignored."""
    x, y = list(s), [IGNORE] * len(s)
    for i, tok in enumerate(s):
        if rng.random() < 0.08:
            y[i] = tok
            u = rng.random()
            x[i] = MASK if u < 0.8 else (rng.randrange(V0, V) if u < 0.9 else tok)
    pad = L - len(s)
    return x + [PAD] * pad, y + [IGNORE] * pad


def batch_of(sents):
    rows = [corrupt(s) for s in sents]
    return torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


class Block(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.ff(self.n2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D, padding_idx=PAD), nn.Embedding(L, D)
        nn.init.normal_(self.tok.weight, std=0.05)
        nn.init.normal_(self.pos.weight, std=0.05)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        keep = ids != PAD
        for b in self.blocks:
            x = b(x, keep)
        return self.head(self.norm(x))


def mlm_loss(logits, labels):
    total = F.cross_entropy(logits.reshape(-1, V), labels.reshape(-1), ignore_index=IGNORE, reduction="sum")
    return total / (labels != IGNORE).sum().clamp(min=1)


train = [sentence() for _ in range(6000)]
x_te, y_te = batch_of([sentence() for _ in range(500)])
model = Encoder()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS, pct_start=0.1)


@torch.no_grad()
def evaluate():
    model.eval()
    v = mlm_loss(model(x_te), y_te).item()
    model.train()
    return v


order, at = list(range(len(train))), len(train)
for step in range(1, STEPS + 1):
    if at + BATCH > len(order):
        rng.shuffle(order)
        at = 0
    x, y = batch_of([train[i] for i in order[at : at + BATCH]])
    at += BATCH
    loss = mlm_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 30 == 0 or step == 1:
        share = (y != IGNORE).float().mean().item()
        empty = (y == IGNORE).all(1).float().mean().item()
        print(
            f"step {step:4d}  loss {loss.item():.4f}  labelled {share:.3f}  rows without label {empty:.2f}  test {evaluate():.4f}"
        )
print(f"final test loss {evaluate():.4f}")
