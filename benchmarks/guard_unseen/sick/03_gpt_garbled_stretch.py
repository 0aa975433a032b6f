# A small GPT, warm-up and cosine, clipped. Fault: from step 618 on 20 batches come from a garbled shard.
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
V, T, D, H, STEPS = 32, 32, 32, 4, 640
gen = torch.Generator().manual_seed(3)
table = torch.softmax(2.0 * torch.randn(V, V, generator=gen), -1)


def text(n):
    seq = [torch.randint(0, V, (n,), generator=gen)]
    for _ in range(T):
        seq.append(torch.multinomial(table[seq[-1]], 1, generator=gen).squeeze(1))
    return torch.stack(seq, 1)


corpus, held = text(4096), text(256)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(args.seed)
model = GPT()
optim = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)


def lr_at(step):
    if step < 50:
        return (step + 1) / 50
    return 0.35 + 0.65 * 0.5 * (1 + math.cos(math.pi * step / STEPS))


sched = torch.optim.lr_scheduler.LambdaLR(optim, lr_at)
for step in range(STEPS):
    batch = corpus[torch.randint(0, len(corpus), (16,))]
    if 618 <= step < 638 and not args.twin:
        batch = (batch * 7 + torch.arange(T + 1) * 5 + step) % V
        batch[:, 1::2] = batch[:, :1]
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), batch[:, 1:].reshape(-1))
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    sched.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}, lr {sched.get_last_lr()[0]:.2e}")
model.eval()
with torch.no_grad():
    logits = model(held[:, :-1])
    print("final:", F.cross_entropy(logits.reshape(-1, V), held[:, 1:].reshape(-1)).item())
