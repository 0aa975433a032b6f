# expect: sick
# symptom: LoRA fine-tuning with activation checkpointing hardly improves; only the classifier learns, the adapters stay at their initial values
# axis: model
# cause: reentrant activation checkpointing over blocks whose input needs no gradient (frozen embeddings) cuts the graph, so the LoRA weights get no gradient
# says: (re-?entrant|(gradient|activation).?checkpoint|\bcheckpoint\w*.{0,50}(graph|gradient|grad\b|input|requires)|(none of the )?inputs?.{0,30}requires?_?.?grad|enable_input_require_grads)
# onset_step: 1
# fix: use_reentrant=False (or make the embedding output require grad)
# mended: passes use_reentrant=False when MENDED=1
import math
import os
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
REENTRANT = os.environ.get("MENDED") != "1"
VOCAB, SEQ, DIM = 40, 10, 64


class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.ln1(x)
        q, k, v = (f(h).view(b, t, 4, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, DIM)
        x = x + self.o(a)
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Encoder(nn.Module):
    def __init__(self, n_layers=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(0.5 * torch.randn(SEQ, DIM))
        self.blocks = nn.ModuleList([Block() for _ in range(n_layers)])
        self.ln = nn.LayerNorm(DIM)
        self.gradient_checkpointing = False

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        for blk in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(blk, x, use_reentrant=REENTRANT)
            else:
                x = blk(x)
        return self.ln(x)


def lm_batch(n, g):
    ids = torch.randint(8, VOCAB, (n, SEQ), generator=g)
    ids[:, SEQ // 2 :] = ids[:, : SEQ // 2]
    mask = torch.rand(n, SEQ, generator=g) < 0.2
    return ids.masked_fill(mask, 1), ids, mask


def intent_batch(n, g):
    ids = torch.randint(8, VOCAB, (n, SEQ), generator=g)
    label = ids[:, 0] % 4
    return ids, label


def pretrain(enc, g, steps=120):
    head = nn.Linear(DIM, VOCAB)
    opt = torch.optim.AdamW([*enc.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(steps):
        x, y, m = lm_batch(32, g)
        loss = F.cross_entropy(head(enc(x))[m], y[m])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"base model ready, mlm loss {loss.item():.3f}")


def add_lora(enc):
    for p in enc.parameters():
        p.requires_grad_(False)
    for blk in enc.blocks:
        for name in ("q", "k", "v", "o", "up", "down"):
            setattr(blk, name, LoRALinear(getattr(blk, name)))


def main():
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(11)
    enc = Encoder()
    pretrain(enc, g)

    add_lora(enc)
    enc.gradient_checkpointing = True
    clf = nn.Linear(DIM, 4)
    params = [p for p in [*enc.parameters(), *clf.parameters()] if p.requires_grad]
    print("trainable parameters:", sum(p.numel() for p in params))
    opt = torch.optim.AdamW(params, lr=4e-3, weight_decay=0.0)
    steps = 200
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=steps, pct_start=0.1)

    enc.train()
    for step in range(1, steps + 1):
        ids, y = intent_batch(32, g)
        logits = clf(enc(ids).mean(1))
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0:
            acc = (logits.argmax(1) == y).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} batch_acc {acc:.3f} lr {sched.get_last_lr()[0]:.2e}")

    enc.eval()
    with torch.no_grad():
        ids, y = intent_batch(1000, g)
        acc = (clf(enc(ids).mean(1)).argmax(1) == y).float().mean().item()
    print(f"test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
