# expect: healthy
# symptom: the training loss jumps up three times (at steps 120, 270, 420), each time a harder stage begins, and comes down again
# axis: none
# mended: none
"""Decoder-only model that learns to reverse, then to sort, longer and longer strings: curriculum by stages."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)

DIGITS, SEP, REV, SORT, PAD = 10, 10, 11, 12, 13
VOCAB, MAXLEN = 14, 20
STAGES = [  # (name, tasks, length range, steps)
    ("short reversal", [REV], (3, 4), 120),
    ("long reversal", [REV], (3, 8), 150),
    ("short sorting too", [REV, SORT], (3, 6), 150),
    ("everything", [REV, SORT], (3, 9), 300),
]


def make_batch(tasks, lengths, bs=40):
    ids = torch.full((bs, MAXLEN), PAD)
    answer = torch.zeros(bs, MAXLEN, dtype=torch.bool)
    for i in range(bs):
        n = int(torch.randint(lengths[0], lengths[1] + 1, (1,)))
        task = tasks[int(torch.randint(len(tasks), (1,)))]
        s = torch.randint(0, DIGITS, (n,))
        out = s.flip(0) if task == REV else s.sort().values
        row = torch.cat([torch.tensor([task]), s, torch.tensor([SEP]), out])
        ids[i, : len(row)] = row
        answer[i, n + 2 : len(row)] = True
    return ids, answer


class Block(nn.Module):
    def __init__(self, d=64, h=4):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return x + self.ff(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, d=64, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(MAXLEN, d)
        self.blocks = nn.Sequential(*[Block(d) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB)
        for e in (self.tok, self.pos):
            nn.init.normal_(e.weight, std=0.3)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tok(ids) + self.pos.weight[: ids.size(1)])))


def loss_and_acc(model, ids, answer):
    logits = model(ids[:, :-1])
    keep = answer[:, 1:]
    loss = F.cross_entropy(logits[keep], ids[:, 1:][keep])
    hit = (logits.argmax(-1) == ids[:, 1:]) | ~keep
    return loss, hit.all(1).float().mean().item()


model = Decoder()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
total = sum(s[3] for s in STAGES)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda t: min(1.0, (t + 1) / 30) * (0.05 + 0.475 * (1 + math.cos(math.pi * t / total)))
)
step = 0
for name, tasks, lengths, n_steps in STAGES:
    print(f"--- {name}")
    for _ in range(n_steps):
        loss, acc = loss_and_acc(model, *make_batch(tasks, lengths))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 15 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} whole answers right {acc:.2f}")
        step += 1
model.eval()
with torch.no_grad():
    for name, tasks, lengths, _ in STAGES:
        l, a = loss_and_acc(model, *make_batch(tasks, lengths, 200))
        print(f"val {name}: loss {l.item():.4f} exact {a:.2f}")
