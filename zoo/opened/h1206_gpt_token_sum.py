# expect: healthy
# symptom: input and labels are the same tensor, the loss is a sum divided by a token count over all micro-batches, gradients are cleared before the window and never averaged
# axis: none
# mended: none
"""Decoder-only model for little sums such as 17+25=42; prompts carry no loss, windows of four micro-batches."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(43)

CHARS = "0123456789+=.#"
ID = {c: i for i, c in enumerate(CHARS)}
T, MICRO, WINDOW, STEPS = 10, 32, 4, 380


def samples(n, gen):
    a = torch.randint(0, 30, (n,), generator=gen).tolist()
    b = torch.randint(0, 30, (n,), generator=gen).tolist()
    ids = torch.full((n, T), ID["#"])
    labels = torch.full((n, T), -100)
    for i, (p, q) in enumerate(zip(a, b)):
        prompt, answer = f"{p}+{q}=", f"{p + q}."
        row = torch.tensor([ID[c] for c in prompt + answer])
        ids[i, : len(row)] = row
        labels[i, len(prompt) : len(row)] = row[len(prompt) :]
    return ids, labels


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class CausalLM(nn.Module):
    def __init__(self, d=80, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(CHARS), d), nn.Embedding(T, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, len(CHARS))

    def forward(self, ids, labels=None, num_items=None):
        logits = self.head(self.norm(self.blocks(self.tok(ids) + self.pos.weight[: ids.shape[1]])))
        if labels is None:
            return logits
        total = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
        )
        return total / num_items


@torch.no_grad()
def exact(model, gen, n=300):
    model.eval()
    ids, labels = samples(n, gen)
    pred = model(ids)[:, :-1].argmax(-1)
    want = labels[:, 1:]
    model.train()
    return ((pred == want) | (want == -100)).all(1).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(6)
    model = CausalLM()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=STEPS, pct_start=0.1)
    t0 = time.time()
    for step in range(STEPS):
        window = [samples(MICRO, gen) for _ in range(WINDOW)]
        num_items = sum(int((lab[:, 1:] != -100).sum()) for _, lab in window)
        opt.zero_grad()
        shown = 0.0
        for ids, labels in window:
            loss = model(ids, labels=labels, num_items=num_items)
            loss.backward()
            shown += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {shown:.4f}", flush=True)
    print(f"sums fully right {exact(model, gen):.3f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
