# expect: healthy
# symptom: the loss is very noisy with rare giant batches, sign-based updates of constant size and bf16 autocast, which resembles an unstable optimizer
# axis: optimizer
"""Sequence sorting with a small bidirectional transformer, token-budget batches and the Lion optimizer."""

import math
import random

import torch
import torch.nn as nn

torch.set_num_threads(1)

SYMBOLS = 24
PAD = 0
BUDGET = 384
STEPS = 850


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.98), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                direction = (b1 * m + (1 - b1) * p.grad).sign_()
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


def draw_length(rng):
    return min(40, max(3, int(rng.expovariate(1 / 9)) + 3))


def token_batches(rng):
    """Pools sequences, sorts them by length and cuts them by a token budget; now and then a pool is sent whole."""
    while True:
        pool = [[rng.randint(1, SYMBOLS) for _ in range(draw_length(rng))] for _ in range(160)]
        if rng.random() < 0.12:
            yield pool
            continue
        pool.sort(key=len)
        batches, current = [], []
        for seq in pool:
            if current and len(seq) * (len(current) + 1) > BUDGET:
                batches.append(current)
                current = []
            current.append(seq)
        batches.append(current)
        rng.shuffle(batches)
        yield from batches


def collate(seqs):
    width = max(map(len, seqs))
    x = torch.tensor([s + [PAD] * (width - len(s)) for s in seqs])
    y = torch.tensor([sorted(s) + [PAD] * (width - len(s)) for s in seqs])
    return x, y


class Sorter(nn.Module):
    def __init__(self, dim=64, depth=2):
        super().__init__()
        self.tok = nn.Embedding(SYMBOLS + 1, dim, padding_idx=PAD)
        pos = torch.arange(40)[:, None] * torch.exp(-math.log(200.0) * torch.arange(0, dim, 2) / dim)
        self.register_buffer("pos", torch.stack([pos.sin(), pos.cos()], -1).flatten(1))
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.out = nn.Linear(dim, SYMBOLS + 1)

    def forward(self, x):
        h = self.tok(x) + self.pos[: x.shape[1]]
        return self.out(self.enc(h, src_key_padding_mask=x == PAD))


@torch.no_grad()
def token_accuracy(model, seqs):
    x, y = collate(seqs)
    model.eval()
    hit = (model(x).argmax(-1) == y)[y != PAD].float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(13)
    rng = random.Random(13)
    held_rng = random.Random(99)
    held = [[held_rng.randint(1, SYMBOLS) for _ in range(draw_length(held_rng))] for _ in range(200)]
    model = Sorter()
    opt = Lion(model.parameters(), lr=6e-4, weight_decay=0.05)
    stream = token_batches(rng)
    for step in range(1, STEPS + 1):
        for group in opt.param_groups:
            group["lr"] = 6e-4 * min(step / 40, 1.0) * (1 - 0.95 * step / STEPS)
        x, y = collate(next(stream))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float().transpose(1, 2), y, ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == 1:
            print(f"step {step:3d}  batch {x.shape[0]:3d}x{x.shape[1]:2d}  loss {loss.item():.3f}")
        if step % 170 == 0:
            print(f"   held-out token accuracy {token_accuracy(model, held):.3f}")


if __name__ == "__main__":
    main()
