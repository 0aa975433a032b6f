# expect: healthy
# symptom: the loss jumps up several times during training (each time the strings get longer)
# axis: none
# mended: none
"""Encoder-decoder GRU with attention that sorts strings; the strings get longer in stages."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

VOCAB, BATCH = 12, 64
STAGES = [(120, 3), (150, 5), (170, 8), (200, 11)]  # (steps, string length)
SOS = VOCAB


class Sorter(nn.Module):
    def __init__(self, d=72):
        super().__init__()
        self.emb = nn.Embedding(VOCAB + 1, d)
        self.enc = nn.GRU(d, d // 2, batch_first=True, bidirectional=True)
        self.dec = nn.GRU(d, d, batch_first=True)
        self.q = nn.Linear(d, d, bias=False)
        self.out = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, VOCAB))

    def forward(self, x, y_in):
        mem, h = self.enc(self.emb(x))
        h = torch.cat([h[0], h[1]], -1)[None]
        s, _ = self.dec(self.emb(y_in), h)
        w = torch.softmax(self.q(s) @ mem.transpose(1, 2) / s.shape[-1] ** 0.5, -1)
        return self.out(torch.cat([s, w @ mem], -1))


def batch(n, length, gen):
    x = torch.randint(0, VOCAB, (n, length), generator=gen)
    y = x.sort(1).values
    y_in = torch.cat([torch.full((n, 1), SOS), y[:, :-1]], 1)
    return x, y_in, y


@torch.no_grad()
def greedy(model, length, gen):
    x, _, y = batch(300, length, gen)
    out = torch.full((len(x), 1), SOS)
    for _ in range(length):
        out = torch.cat([out, model(x, out)[:, -1:].argmax(-1)], 1)
    return (out[:, 1:] == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(4)
    model = Sorter()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step, t0 = 0, time.time()
    for steps, length in STAGES:
        print(f"-- length {length}")
        for _ in range(steps):
            x, y_in, y = batch(BATCH, length, gen)
            loss = F.cross_entropy(model(x, y_in).flatten(0, 1), y.flatten(), reduction="sum") / BATCH
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"   greedy letters right at length {length}: {greedy(model, length, gen):.3f}")
    print(f"last loss {loss.item():.4f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
