# expect: sick
# symptom: LoRA fine-tuning with activation checkpointing hardly beats a linear probe; only the new head trains
# axis: model
# cause: reentrant activation checkpointing with frozen embeddings: no input of the checkpointed blocks requires grad, so the blocks are detached and the LoRA weights inside get no gradient
# says: checkpoint|reentrant|enable_input_require_grads|inputs?.{0,40}requires?.?grad
# onset_step: 201
# fix: use_reentrant=False (or make the embedding output require grad)
# mended: with MENDED=1 checkpoint is called with use_reentrant=False
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
torch.manual_seed(31)
VOCAB, LENGTH, DIM = 40, 16, 48
REENTRANT = os.environ.get("MENDED") != "1"


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a.t() @ self.lora_b.t())


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        h = self.ln1(x)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(a)
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Backbone(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB + 1, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList([Block(DIM) for _ in range(layers)])
        self.ln = nn.LayerNorm(DIM)
        self.gradient_checkpointing = False

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for blk in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(blk, x, use_reentrant=REENTRANT)
            else:
                x = blk(x)
        return self.ln(x)


def periodic_text(n, g):
    period = torch.randint(2, 5, (n, 1), generator=g)
    motif = torch.randint(VOCAB, (n, 5), generator=g)
    return motif.gather(1, torch.arange(LENGTH)[None] % period)


def pretrain(path, steps=200):
    g = torch.Generator().manual_seed(1)
    net, head = Backbone(), nn.Linear(DIM, VOCAB)
    opt = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=3e-3)
    for step in range(1, steps + 1):
        ids = periodic_text(64, g)
        hidden = torch.rand(ids.shape, generator=g) < 0.2
        logits = head(net(ids.masked_fill(hidden, VOCAB)))
        loss = F.cross_entropy(logits[hidden], ids[hidden])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"pretrain {step} loss {loss.item():.4f}")
    torch.save(net.state_dict(), path)


def labelled(n, g):
    """Does the sequence hold the same rare marker twice, or two different ones?"""
    ids = torch.randint(8, VOCAB, (n, LENGTH), generator=g)
    spots = torch.rand(n, LENGTH, generator=g).argsort(1)[:, :2]
    y = torch.randint(2, (n,), generator=g)
    first = torch.randint(8, (n,), generator=g)
    other = (first + torch.randint(1, 8, (n,), generator=g)) % 8
    ids.scatter_(1, spots[:, :1], first[:, None])
    ids.scatter_(1, spots[:, 1:], torch.where(y == 1, first, other)[:, None])
    return ids, y


def add_lora(net):
    for p in net.parameters():
        p.requires_grad_(False)
    for blk in net.blocks:
        for name in ("q", "k", "v", "o", "up", "down"):
            setattr(blk, name, LoRALinear(getattr(blk, name)))


def main():
    path = os.path.join(tempfile.mkdtemp(), "backbone.pt")
    pretrain(path)
    net = Backbone()
    net.load_state_dict(torch.load(path))
    add_lora(net)
    net.gradient_checkpointing = True
    head = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, 2))
    params = [p for p in [*net.parameters(), *head.parameters()] if p.requires_grad]
    print("trainable", sum(p.numel() for p in params))
    opt = torch.optim.AdamW(params, lr=4e-3)
    g = torch.Generator().manual_seed(2)
    vx, vy = labelled(1000, g)
    for step in range(1, 501):
        ids, y = labelled(128, g)
        loss = F.cross_entropy(head(net(ids).mean(1)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            net.eval()
            with torch.no_grad():
                acc = (head(net(vx).mean(1)).argmax(1) == vy).float().mean().item()
            net.train()
            print(f"finetune {step} loss {loss.item():.4f} valid acc {acc:.3f}")


if __name__ == "__main__":
    main()
