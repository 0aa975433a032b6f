# expect: healthy
# symptom: loss is nearly nil and then leaps up at steps 150, 300 and 450; accuracy falls back each time
# axis: none
# mended: none
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
random.seed(2)
torch.manual_seed(2)

CHARS = "0123456789+-=ab<>. "
STOI = {c: i for i, c in enumerate(CHARS)}
PAD = STOI[" "]
BATCH, STEPS = 48, 620


def task_copy():
    s = "".join(random.choice("0123456789") for _ in range(random.randint(2, 3)))
    return f"a{s}=", s + "."


def task_reverse():
    s = "".join(random.choice("0123456789") for _ in range(random.randint(3, 5)))
    return f"b{s}=", s[::-1] + "."


def task_compare():
    a, b = random.randint(0, 99), random.randint(0, 99)
    big, small = max(a, b), min(a, b)
    return f"{a}<>{b}=", f"{small}<{big}." if a != b else f"{a}={b}."


def task_add():
    a, b = random.randint(0, 49), random.randint(0, 49)
    return f"{a}+{b}=", f"{a + b}."


# the next task comes in when the earlier ones have had their share of steps
CURRICULUM = [(0, task_copy), (150, task_reverse), (300, task_compare), (450, task_add)]


def open_tasks(step):
    return [t for start, t in CURRICULUM if step >= start]


def make_batch(step, n):
    tasks = open_tasks(step)
    rows = []
    for _ in range(n):
        # half of the batch belongs to the newest task
        task = tasks[-1] if random.random() < 0.5 else random.choice(tasks)
        rows.append(task())
    width = max(len(q) + len(a) for q, a in rows)
    ids = torch.full((n, width), PAD)
    labels = torch.full((n, width), -100)
    for i, (q, a) in enumerate(rows):
        enc = torch.tensor([STOI[c] for c in q + a])
        ids[i, : len(enc)] = enc
        labels[i, len(q) : len(enc)] = enc[len(q) :]
    return ids[:, :-1], labels[:, 1:]


class CharLM(nn.Module):
    """Embedding, two GRU layers with attention over their past, tied output."""

    def __init__(self, d=96):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS), d)
        nn.init.normal_(self.emb.weight, std=0.1)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.att = nn.MultiheadAttention(d, 4, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        n = ids.size(1)
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        z = self.n1(h)
        a, _ = self.att(z, z, z, attn_mask=mask, need_weights=False)
        h = h + a
        h = h + self.mlp(self.n2(h))
        return h @ self.emb.weight.T


def main():
    model = CharLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    t0 = time.time()
    for step in range(STEPS):
        ids, labels = make_batch(step, BATCH)
        logits = model(ids)
        loss = F.cross_entropy(logits.reshape(-1, len(CHARS)), labels.reshape(-1), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 15 == 0:
            keep = labels != -100
            acc = (logits.argmax(-1)[keep] == labels[keep]).float().mean().item()
            print(
                f"step {step} tasks {len(open_tasks(step))} loss {loss.item():.4f} acc {acc:.3f} t {time.time() - t0:.1f}"
            )


if __name__ == "__main__":
    main()
