# expect: healthy
# symptom: input and label are the same tensor (the shift is inside the model), the loss is a sum that is divided by a token count, zero_grad comes after step and not in every iteration, the schedule is stepped per update
# axis: none
# mended: none
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

IGNORE = -100


class ArithmeticChat(Dataset):
    """Prompt "a+b=" and the answer's digits as the completion; padded on the right; prompt labels are ignored."""

    PAD, PLUS, EQ, EOS = 10, 11, 12, 13
    VOCAB, LENGTH = 14, 10

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.ab = rng.integers(0, 40, (n, 2))

    def __len__(self):
        return len(self.ab)

    def __getitem__(self, i):
        a, b = map(int, self.ab[i])
        prompt = [*map(int, str(a)), self.PLUS, *map(int, str(b)), self.EQ]
        answer = [*map(int, str(a + b)), self.EOS]
        pad = self.LENGTH - len(prompt) - len(answer)
        ids = prompt + answer + [self.PAD] * pad
        labels = [IGNORE] * len(prompt) + answer + [IGNORE] * pad
        return torch.tensor(ids), torch.tensor(labels)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attention(d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class CausalLM(nn.Module):
    def __init__(self, vocab, length, d, heads, layers):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(length, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids, labels=None, num_items=None):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        logits = self.head(self.ln(self.blocks(x)))
        if labels is None:
            return logits
        loss = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE, reduction="sum"
        )
        return loss / num_items


def param_groups(model, wd):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decay, "weight_decay": wd}, {"params": rest, "weight_decay": 0.0}]


def windows(loader, k):
    """Groups of k micro batches with the number of answer tokens in the whole group."""
    group = []
    while True:
        for batch in loader:
            group.append(batch)
            if len(group) == k:
                yield group, sum((labels[:, 1:] != IGNORE).sum() for _, labels in group)
                group = []


@torch.no_grad()
def exact_match(model, ds, n=200):
    ids = torch.stack([ds[i][0] for i in range(n)])
    labels = torch.stack([ds[i][1] for i in range(n)])
    pred = model(ids).argmax(-1)[:, :-1]
    target = labels[:, 1:]
    return ((pred == target) | (target == IGNORE)).all(1).float().mean().item()


def main(args):
    torch.manual_seed(args.seed)
    loader = DataLoader(ArithmeticChat(args.n_train, 1), args.micro, shuffle=True, drop_last=True)
    test = ArithmeticChat(200, 2)
    model = CausalLM(ArithmeticChat.VOCAB, ArithmeticChat.LENGTH, 64, 4, 2)
    opt = torch.optim.AdamW(param_groups(model, 0.1), lr=args.lr, betas=(0.9, 0.98))
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 30) * 0.5 * (1 + math.cos(math.pi * min(1.0, s / args.updates)))
    )
    stream = windows(loader, args.accum)
    for update in range(args.updates):
        group, num_items = next(stream)
        total = 0.0
        for ids, labels in group:
            loss = model(ids, labels, num_items)
            loss.backward()
            total += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if update % 10 == 0:
            print(f"update {update:4d} loss {total:.4f} grad norm {norm.item():.3f}", flush=True)
        if (update + 1) % 100 == 0:
            print(f"  exact match {exact_match(model, test):.3f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--n-train", type=int, default=8000)
    p.add_argument("--micro", type=int, default=16)
    p.add_argument("--accum", type=int, default=3)
    p.add_argument("--updates", type=int, default=400)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
