# expect: healthy
# symptom: resembles a broken schedule and an unstable run, as the loss jumps up at each warm restart
# axis: schedule
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)
rnd = random.Random(31)
CTX = 32


def grammar():
    n = rnd.choice(["cat", "dog", "bird", "horse"])
    many = rnd.random() < 0.5
    adj = rnd.choice(["small", "grey", "hungry", "quiet"])
    verb = {"cat": "purr", "dog": "bark", "bird": "sing", "horse": "trot"}[n]
    return (
        f"the {adj} {n}{'s' if many else ''} {verb}{'' if many else 's'} {rnd.choice(['here', 'there', 'at home'])}. "
    )


corpus = "".join(grammar() for _ in range(3000))
chars = sorted(set(corpus))
ids = torch.tensor([chars.index(c) for c in corpus])
split = int(0.9 * len(ids))
train_ids, val_ids = ids[:split], ids[split:]


def batch(src, n):
    start = torch.randint(0, len(src) - CTX - 1, (n,))
    w = torch.stack([src[s : s + CTX + 1] for s in start])
    return w[:, :-1], w[:, 1:]


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.ln1, self.ln2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.pr = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.h, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, C))
        return x + self.pr(F.relu(self.fc(self.ln2(x))).square())


class TinyGPT(nn.Module):
    def __init__(self, V, d=64, h=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(CTX, d)
        self.blocks, self.ln = nn.Sequential(*[Block(d, h) for _ in range(depth)]), nn.LayerNorm(d)
        self.head = nn.Linear(d, V, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)
        self.head.weight = self.tok.weight

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        return self.head(self.ln(self.blocks(h)))


model = TinyGPT(len(chars))
named = dict(model.named_parameters())
groups = [
    {"params": [p for p in named.values() if p.ndim >= 2], "weight_decay": 0.1},
    {"params": [p for p in named.values() if p.ndim < 2], "weight_decay": 0.0},
]
opt = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95))
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=2e-5)
for step in range(420):
    x, y = batch(train_ids, 16)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 20 == 0 or step == 419:
        print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
model.eval()
with torch.no_grad():
    x, y = batch(val_ids, 200)
    print(f"val loss {F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item():.4f}")
