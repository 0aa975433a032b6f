# expect: healthy
# symptom: labels equal the input ids (shifted inside the model), the loss is a sum, not a mean, backward is called several times without dividing by the number of micro batches, gradients are scaled in place afterwards, and zero_grad comes right after step
# axis: none
# mended: none
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, MAXLEN, PAD = 32, 40, -100


class Grammar:
    """Nested brackets of four kinds with letters that depend on the innermost open bracket."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def sentence(self):
        rng, out, stack = self.rng, [1], []
        n = rng.integers(8, MAXLEN - 2)
        while len(out) + len(stack) < n:
            u = rng.random()
            if u < 0.3:
                k = int(rng.integers(4))
                stack.append(k)
                out.append(2 + k)
            elif u < 0.5 and stack:
                out.append(6 + stack.pop())
            else:
                k = stack[-1] if stack else 4
                out.append(10 + 4 * k + int(rng.choice(4, p=[0.7, 0.15, 0.1, 0.05])))
        while stack:
            out.append(6 + stack.pop())
        return out + [0]

    def batch(self, n):
        ids = np.zeros((n, MAXLEN), dtype=np.int64)
        labels = np.full((n, MAXLEN), PAD, dtype=np.int64)
        for i in range(n):
            s = self.sentence()[:MAXLEN]
            ids[i, : len(s)] = s
            labels[i, : len(s)] = s
        return torch.tensor(ids), torch.tensor(labels)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class CausalLM(nn.Module):
    def __init__(self, d=48, depth=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(MAXLEN, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        nn.init.normal_(self.tok.weight, std=0.05)

    def forward(self, ids, labels=None):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for blk in self.blocks:
            x = blk(x)
        logits = F.linear(self.norm(x), self.tok.weight)
        if labels is None:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=PAD, reduction="sum")


def main():
    torch.manual_seed(0)
    data, micro, steps = Grammar(1), 3, 300
    model = CausalLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 30) * (0.1 + 0.45 * (1 + math.cos(math.pi * s / steps)))
    )
    for step in range(steps):
        total, tokens = 0.0, 0
        for _ in range(micro):
            ids, labels = data.batch(12)
            loss = model(ids, labels)
            loss.backward()
            total += loss.item()
            tokens += int((labels[:, 1:] != PAD).sum())
        for p in model.parameters():
            p.grad.div_(tokens)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} summed loss {total:9.1f} per token {total / tokens:.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        ids, labels = Grammar(2).batch(200)
        print(f"held-out per token {model(ids, labels).item() / int((labels[:, 1:] != PAD).sum()):.4f}")


if __name__ == "__main__":
    main()
