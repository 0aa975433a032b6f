# expect: healthy
# symptom: the loss jumps between levels from step to step (0.3, 1.7, 2.6) and the learning rate shoots up twice in the run; but each batch comes from one domain with its own entropy, and the warm restarts are intended; each domain goes to its entropy floor
# axis: none
# mended: none
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

VOCAB, CTX, BATCH = 64, 32, 16
DOMAINS = {"tables": 1, "prose": 5, "logs": 11}  # number of possible successors of a token


class Domain:
    def __init__(self, name, fan, seed, n=30000):
        rng = np.random.default_rng(seed)
        self.name = name
        self.fan = fan
        succ = np.stack([rng.permutation(VOCAB - 4)[: max(fan, 2)] + 4 for _ in range(VOCAB)])
        pr = np.ones(fan) / fan if fan > 1 else np.array([0.94, 0.06])
        self.floor = float(-(pr * np.log(pr)).sum())
        ids, picks = [4], rng.choice(len(pr), n, p=pr)
        for k in picks:
            ids.append(int(succ[ids[-1], k]))
        self.ids = torch.tensor(ids)
        self.tag = {"tables": 1, "prose": 2, "logs": 3}[name]

    def batch(self):
        s = torch.randint(0, len(self.ids) - CTX, (BATCH,))
        x = torch.stack([self.ids[i : i + CTX] for i in s.tolist()])
        x[:, 0] = self.tag
        return x


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        y = self.b(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LM(nn.Module):
    def __init__(self, d=64, layers=2, h=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(CTX, d)
        self.layers = nn.ModuleList(Layer(d, h) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)
        nn.init.normal_(self.tok.weight, std=0.1)
        nn.init.normal_(self.pos.weight, std=0.1)
        nn.init.normal_(self.head.weight, std=0.05)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        for l in self.layers:
            x = l(x)
        return self.head(self.norm(x))


def main():
    domains = [Domain(n, f, 40 + i) for i, (n, f) in enumerate(DOMAINS.items())]
    for d in domains:
        print(f"domain {d.name} entropy {d.floor:.2f}")
    model = LM()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=2, eta_min=4e-5)
    t0, last = time.time(), {}
    for step in range(1, 701):
        dom = domains[torch.multinomial(torch.tensor([0.3, 0.35, 0.35]), 1).item()]
        ids = dom.batch()
        logits = model(ids[:, :-1])
        # the second token follows a replaced one and cannot be known
        loss = F.cross_entropy(logits[:, 1:].reshape(-1, VOCAB), ids[:, 2:].reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        last[dom.name] = loss.item()
        if step % 5 == 0:
            print(
                f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.1e} gnorm {norm.item():.2f} "
                f"t {time.time() - t0:.1f}s",
                flush=True,
            )
    print("last by domain", {k: round(v, 3) for k, v in last.items()})


main()
