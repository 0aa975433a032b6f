# expect: healthy
# symptom: a token model without causal mask whose labels are nearly all -100; the loss stays on a plateau at first and never gets near zero
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(35)

VOCAB, T, DIM, HEADS, LAYERS, BATCH, STEPS = 32, 32, 64, 4, 2, 32, 600
MASK, FIRST = 0, 1


def sequences(n, g):
    """Strings of a second order chain: each symbol depends on the two before it."""
    out = torch.empty(n, T, dtype=torch.long)
    out[:, 0] = torch.randint(0, VOCAB - 1, (n,), generator=g)
    step = torch.randint(0, 3, (n,), generator=g) + 1
    for t in range(1, T):
        jump = (torch.rand(n, generator=g) < 0.04).long() * torch.randint(0, VOCAB - 1, (n,), generator=g)
        out[:, t] = (out[:, t - 1] + step + jump) % (VOCAB - 1)
    return out + FIRST


def corrupt(ids, g):
    pick = torch.rand(ids.shape, generator=g) < 0.15
    labels = ids.masked_fill(~pick, -100)
    u = torch.rand(ids.shape, generator=g)
    x = torch.where(pick & (u < 0.8), torch.full_like(ids, MASK), ids)
    rand = torch.randint(FIRST, VOCAB, ids.shape, generator=g)
    return torch.where(pick & (u > 0.9), rand, x), labels


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class MaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(T, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        nn.init.normal_(self.tok.weight, std=0.05)
        nn.init.normal_(self.pos.weight, std=0.05)

    def forward(self, ids):
        h = self.tok(ids) + self.pos.weight
        for l in self.layers:
            h = l(h)
        return self.norm(h) @ self.tok.weight.t() + self.bias


def main():
    g = torch.Generator().manual_seed(1)
    data = sequences(8000, g)
    model = MaskedLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS, pct_start=0.1)
    run, hits, t0 = 0.0, 0.0, time.time()
    for step in range(STEPS):
        ids = data[torch.randint(0, len(data), (BATCH,), generator=g)]
        x, labels = corrupt(ids, g)
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        seen = labels != -100
        run += loss.item()
        hits += (logits.argmax(-1)[seen] == labels[seen]).float().mean().item()
        if (step + 1) % 20 == 0:
            print(
                f"step {step + 1:4d} loss {run / 20:.4f} masked accuracy {hits / 20:.3f} ({time.time() - t0:.1f}s)",
                flush=True,
            )
            run = hits = 0.0


if __name__ == "__main__":
    main()
