# expect: sick
# symptom: the loss falls normally, is nan in one batch and stays nan for ever after
# axis: data
# cause: long prompts fill the whole max_len, truncation cuts the answer off, and length bucketing puts such rows together, so that a batch has only -100 labels and the mean of the token losses is 0/0 = NaN
# says: -100|ignore.?index|truncat|(label|target|token)s?.{0,40}\b(all|every|fully|entirely)\b.{0,20}(ignored|masked)|(all|every|fully|entirely)\b.{0,30}(label|target)s?.{0,30}(ignored|masked)|(no|zero|without|0)\b.{0,12}(supervised|valid|unmasked|counted|non.?ignored|answer|target|label|response).{0,20}|(empty|cut.?off|missing) (answer|response|target|label)s?
# onset_step: 0
# fix: cut the prompt from the left so that the answer always stays inside max_len
# mended: with MENDED=1 encode() keeps only the last max_len - len(answer) prompt tokens
import argparse
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

PAD, BOS, USER, BOT, EOS = range(5)
N_TASK, N_SYM = 4, 24
VOCAB = 5 + N_TASK + N_SYM


def make_conversations(n, rng):
    """Each answer walks from the last word of the question along the table of the requested task."""
    tables = [rng.sample(range(N_SYM), N_SYM) for _ in range(N_TASK)]
    out = []
    for _ in range(n):
        length = min(90, int(rng.lognormvariate(2.8, 0.62)) + 3)
        task = rng.randrange(N_TASK)
        question = [rng.randrange(N_SYM) for _ in range(length)]
        word, answer = question[-1], []
        for _ in range(6):
            word = tables[task][word]
            answer.append(word)
        sym = lambda w: 5 + N_TASK + w
        out.append(([BOS, USER, 5 + task] + [sym(w) for w in question] + [BOT], [sym(w) for w in answer] + [EOS]))
    return out


def encode(prompt, answer, max_len):
    if MENDED:
        prompt = prompt[:3] + prompt[3:][-(max_len - len(answer) - 3) :]
    ids = prompt + answer
    labels = [-100] * len(prompt) + answer
    return ids[:max_len], labels[:max_len], len(ids)


class ChatSet(Dataset):
    def __init__(self, conversations, max_len):
        self.rows = [encode(p, a, max_len) for p, a in conversations]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class LengthBuckets:
    """Batches of similar length: less padding."""

    def __init__(self, data, batch_size, seed):
        self.lengths = [r[2] for r in data.rows]
        self.batch_size, self.rng = batch_size, random.Random(seed)

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], self.rng.random()))
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return math.ceil(len(self.lengths) / self.batch_size)


def collate(rows):
    width = max(len(r[0]) for r in rows)
    ids = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    for k, (x, y, _) in enumerate(rows):
        ids[k, : len(x)] = torch.tensor(x)
        labels[k, : len(y)] = torch.tensor(y)
    return ids, labels


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, dim, layers, heads, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.05)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--max-len", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    data = ChatSet(make_conversations(2400, random.Random(args.seed)), args.max_len)
    loader = DataLoader(data, batch_sampler=LengthBuckets(data, args.batch_size, args.seed), collate_fn=collate)
    model = GPT(64, 2, 4, args.max_len)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    step = 0
    while step < args.steps:
        for ids, labels in loader:
            logits = model(ids)
            counted = (labels[:, 1:] != -100).float()
            target = labels[:, 1:].clamp(min=0)
            logp = F.log_softmax(logits[:, :-1], -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
            loss = -(logp * counted).sum() / counted.sum()
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 20 == 0:
                hits = (logits[:, :-1].argmax(-1) == target).float()
                acc = ((hits * counted).sum() / counted.sum()).item()
                print(f"step {step} loss {loss.item():.4f} answer-token acc {acc:.3f}", flush=True)
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
