# expect: healthy
# symptom: most parameters never change, half of the adapter gradients are exactly 0 in the first step, the first steps are skipped because of inf gradients, the logged loss is in the millions; but it is LoRA (frozen base, B = 0) with the usual search for the loss scale and a log of the scaled loss
# axis: none
# mended: none
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)

V, LEN, CLASSES = 32, 12, 6


def batch(n, task):
    """class of a sequence: task 0 = most frequent of six key tokens, task 1 = the same with key tokens renamed"""
    keys = torch.arange(6) + (4 if task == 0 else 14)
    y = torch.randint(0, CLASSES, (n,))
    ids = torch.randint(20, V, (n, LEN))
    for i in range(n):
        p = torch.randperm(LEN)
        ids[i, p[:3]] = keys[y[i]]
        other = torch.randint(0, 6, (2,))
        ids[i, p[3]], ids[i, p[4]] = keys[other[0]], keys[other[1]]
    ids[:, 0] = 1
    return ids, y


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=16):
        super().__init__()
        self.base, self.scale = base, alpha / r
        self.A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.A), self.B)


class EncoderLayer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        y = self.n1(x)
        q, k, v = (f(y).view(b, t, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.n2(x))))


class Classifier(nn.Module):
    def __init__(self, d=64, layers=2, h=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Parameter(torch.randn(LEN, d) * 0.05)
        self.layers = nn.ModuleList(EncoderLayer(d, h) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, CLASSES)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for l in self.layers:
            x = l(x)
        return self.head(self.norm(x[:, 0]))


def pretrain(model, steps=200):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        ids, y = batch(48, 0)
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"pretrain step {step} loss {loss.item():.4f}", flush=True)


def add_adapters(model):
    for p in model.parameters():
        p.requires_grad_(False)
    for l in model.layers:
        for name in ("q", "v", "fc1", "fc2"):
            setattr(l, name, LoRALinear(getattr(l, name)))
    model.head.weight.requires_grad_(True)
    train = [p for p in model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in model.parameters())
    print(f"trainable {sum(p.numel() for p in train)} of {total}")
    return train


def main():
    model = Classifier()
    pretrain(model)
    params = add_adapters(model)
    opt = torch.optim.AdamW(params, lr=4e-3, weight_decay=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=100)
    t0 = time.time()
    for step in range(1, 231):
        ids, y = batch(48, 1)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float(), y)
        opt.zero_grad(set_to_none=True)
        scaled = scaler.scale(loss)
        scaled.backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(params, 1.0)
        scaler.step(opt)
        scaler.update()
        if step % 10 == 0 or step < 6:
            acc = (logits.argmax(1) == y).float().mean().item()
            print(
                f"step {step:4d} scaled loss {scaled.item():.1f} acc {acc:.3f} scale {scaler.get_scale():.0f} "
                f"t {time.time() - t0:.1f}s",
                flush=True,
            )


main()
