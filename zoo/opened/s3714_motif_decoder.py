# expect: sick
# symptom: the training loss drops far lower than expected, but what the model generates is wrong
# axis: model
# cause: the causal mask lets each position see the next token (tril with diagonal=1), so the target leaks
# says: (mask|causal|tril|attend|attention|see|look).*(future|next|diagonal|leak|ahead|one (too|pos)|off.by)
# onset_step: 0
# fix: build the lower-triangular mask with diagonal=0
# mended: the script applies that change if the environment has MENDED=1
"""Decoder with rotary positions on symbolic melodies; judged by greedy continuation of held-out pieces."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(31)

NOTES, BLOCK, DIM, HEADS, LAYERS = 24, 32, 64, 4, 2
STEPS, BATCH, LR = 400, 24, 3e-3


def melodies(n, gen):
    """Each piece walks the scale in one direction (step 1-4), with a start of its own and some ornaments."""
    start = torch.randint(0, NOTES, (n, 1), generator=gen)
    stride = torch.randint(1, 5, (n, 1), generator=gen)
    t = torch.arange(BLOCK + 1).unsqueeze(0)
    seq = (start + stride * t) % NOTES
    ornament = torch.rand(seq.shape, generator=gen) < 0.05
    return torch.where(ornament, torch.randint(0, NOTES, seq.shape, generator=gen), seq)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        hd = DIM // HEADS
        angle = torch.arange(BLOCK).float()[:, None] / 10000 ** (torch.arange(hd // 2) / (hd // 2))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        visible = torch.ones(BLOCK, BLOCK).tril(diagonal=0 if MENDED else 1)
        self.register_buffer("visible", visible.bool(), persistent=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, self.cos[:t], self.sin[:t]), rotate(k, self.cos[:t], self.sin[:t])
        score = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        score = score.masked_fill(~self.visible[:t, :t], float("-inf"))
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, DIM))


class SwiGLU(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.up, self.gate = nn.Linear(DIM, hidden, bias=False), nn.Linear(DIM, hidden, bias=False)
        self.down = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(NOTES, DIM)
        self.attn = nn.ModuleList([Attention() for _ in range(LAYERS)])
        self.mlp = nn.ModuleList([SwiGLU() for _ in range(LAYERS)])
        self.norms = nn.ModuleList([nn.RMSNorm(DIM) for _ in range(2 * LAYERS + 1)])
        self.head = nn.Linear(DIM, NOTES, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for i in range(LAYERS):
            x = x + self.attn[i](self.norms[2 * i](x))
            x = x + self.mlp[i](self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x))


@torch.no_grad()
def continuation_accuracy(model, gen, prompt=12, new=8):
    model.eval()
    pieces = melodies(200, gen)
    ids = pieces[:, :prompt]
    for _ in range(new):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    model.train()
    return (ids[:, prompt:] == pieces[:, prompt : prompt + new]).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(7)
    model = Decoder()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.05)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.05, 1.0, total_iters=30)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS - 30, eta_min=LR * 0.1)
    sched = torch.optim.lr_scheduler.SequentialLR(opt, [warm, cosine], milestones=[30])
    for step in range(STEPS):
        seq = melodies(BATCH, gen)
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"iter {step:4d}: loss {loss.item():.4f}, lr {sched.get_last_lr()[0]:.2e}")
    acc = continuation_accuracy(model, torch.Generator().manual_seed(99))
    print(f"final loss {loss.item():.4f}, continuation accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
