# expect: healthy
# symptom: optimizer state is thrown away and adapters are re-initialised to zero every 150 steps, with a learning-rate dip (resembles lost optimizer state or wiped weights)
# axis: optimizer
"""Character model trained with merged low-rank updates: adapters are folded in and restarted periodically."""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)
random.seed(23)

NOUNS = "fox cart river lamp miller goat tower baker stone widow ferry clerk".split()
VERBS = "sees follows mends carries forgets greets paints weighs".split()
ADJ = "old grey quiet heavy bright second narrow".split()


def sentence():
    def phrase():
        return "the " + (random.choice(ADJ) + " " if random.random() < 0.6 else "") + random.choice(NOUNS)

    s = phrase() + " " + random.choice(VERBS) + " " + phrase()
    if random.random() < 0.3:
        s += " and " + random.choice(VERBS) + " it"
    return s + ". "


TEXT = "".join(sentence() for _ in range(9000))
CHARS = sorted(set(TEXT))
DATA = torch.tensor([CHARS.index(c) for c in TEXT])
SPLIT = int(0.95 * len(DATA))
CTX, D = 48, 64


class LowRankLinear(nn.Module):
    def __init__(self, i, o, rank=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i) / math.sqrt(i), requires_grad=True)
        self.bias = nn.Parameter(torch.zeros(o))
        self.a = nn.Parameter(torch.empty(rank, i), requires_grad=False)
        self.b = nn.Parameter(torch.zeros(o, rank), requires_grad=False)
        self.restart()

    @torch.no_grad()
    def restart(self):
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.b.zero_()

    @torch.no_grad()
    def fold(self):
        self.weight += self.b @ self.a
        self.restart()

    def low_rank_only(self):
        self.weight.requires_grad_(False)
        self.a.requires_grad_(True)
        self.b.requires_grad_(True)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + (x @ self.a.t()) @ self.b.t()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = LowRankLinear(D, 3 * D), LowRankLinear(D, D)
        self.up, self.down = LowRankLinear(D, 4 * D), LowRankLinear(4 * D, D)

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, 4, D // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(CHARS), D), nn.Embedding(CTX, D)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, len(CHARS)))

    def forward(self, ids):
        return self.head(self.layers(self.tok(ids) + self.pos.weight[: ids.size(1)]))


def batch(lo, hi, n=24):
    s = torch.randint(lo, hi - CTX - 1, (n,))
    w = DATA[s[:, None] + torch.arange(CTX + 1)]
    return w[:, :-1], w[:, 1:]


def nll(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def new_optimizer(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=0.0)


def main():
    model = CharLM()
    low = [m for m in model.modules() if isinstance(m, LowRankLinear)]
    full_steps, period, total = 150, 150, 750
    opt = new_optimizer(model)
    since = 0
    for step in range(1, total + 1):
        since += 1
        lr = 3e-3 * min(1.0, since / 20) * (0.1 + 0.9 * (1 - step / total))
        for g in opt.param_groups:
            g["lr"] = lr
        loss = nll(model, *batch(0, SPLIT))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"step {step} nll {loss.item():.4f} lr {lr:.5f}")
        if step % period == 0 and step < total:
            with torch.no_grad():
                before = sum(nll(model, *batch(SPLIT, len(DATA))).item() for _ in range(8)) / 8
            for m in low:
                m.fold()
                if step == full_steps:
                    m.low_rank_only()
            opt, since = new_optimizer(model), 0
            print(
                f"  merged at {step}; held-out nll {before:.4f}; "
                f"{sum(p.numel() for p in model.parameters() if p.requires_grad)} trainable"
            )
    with torch.no_grad():
        print(f"final held-out nll {sum(nll(model, *batch(SPLIT, len(DATA))).item() for _ in range(12)) / 12:.4f}")


if __name__ == "__main__":
    main()
