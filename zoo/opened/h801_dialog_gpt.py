# expect: healthy
# symptom: resembles missing zero_grad or unnormalised gradient accumulation, and targets without a shift: the loss is summed, backward runs four times between two zero_grad calls, labels are the inputs
# axis: none
# cause: healthy: the summed gradients are divided by the token count of the window before clipping, the grads are cleared after each update, and the model shifts the labels itself
# says: none
# onset_step: none
# fix: none
# mended: none
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

NAMES = "mira tom lena oskar ines paul".split()
THINGS = "tea bread soup rice fish cake plums".split()
MOODS = {
    "tea": "warm",
    "bread": "fresh",
    "soup": "hot",
    "rice": "plain",
    "fish": "salty",
    "cake": "sweet",
    "plums": "sour",
}


def dialog(rng):
    a, b = rng.sample(NAMES, 2)
    t = rng.choice(THINGS)
    return f"{a}: do you like {t}? {b}: yes {a}, {t} is {MOODS[t]}.\n"


class Text:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.chars = ["\0"] + sorted(set("".join(NAMES + THINGS + list(MOODS.values())) + ": do you like? yes, is.\n"))
        self.index = {c: i for i, c in enumerate(self.chars)}

    def micro_batch(self, n):
        lines = [dialog(self.rng) for _ in range(n)]
        width = max(map(len, lines))
        ids = torch.zeros(n, width, dtype=torch.long)
        for i, line in enumerate(lines):
            ids[i, : len(line)] = torch.tensor([self.index[c] for c in line])
        labels = ids.masked_fill(ids == 0, -100)
        return ids, labels


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class DialogGPT(nn.Module):
    def __init__(self, vocab, d=64, heads=4, layers=2, ctx=80):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.layers = nn.ModuleList([Layer(d, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, ids, labels):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))[:, :-1]
        labels = labels[:, 1:]
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        return total, int((labels != -100).sum())


def main():
    torch.manual_seed(2)
    data = Text(2)
    model = DialogGPT(len(data.chars))
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=4e-3, betas=(0.9, 0.95), weight_decay=0.05)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 20) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(s, 240) / 240)))
    )
    accumulate, window_loss, window_tokens, update = 4, 0.0, 0, 0
    for micro in range(1, 240 * accumulate + 1):
        ids, labels = data.micro_batch(random.Random(micro).randint(3, 7))
        total, tokens = model(ids, labels)
        total.backward()
        window_loss += total.item()
        window_tokens += tokens
        if micro % accumulate:
            continue
        for p in params:
            p.grad.div_(window_tokens)
        norm = nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        update += 1
        if update % 20 == 0:
            print(f"update {update} sum {window_loss:.1f} per token {window_loss / window_tokens:.4f} norm {norm:.2f}")
        window_loss, window_tokens = 0.0, 0


if __name__ == "__main__":
    main()
