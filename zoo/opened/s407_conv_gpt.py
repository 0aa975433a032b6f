# expect: sick
# symptom: train and validation loss are wonderfully low, far below the entropy of the text, but generation from a prompt is poor
# axis: model
# cause: the short depthwise convolution in front of attention is padded on both sides, so each position sees the following token and the model copies its target (leak of the future, not causal)
# says: causal|leak|future|look.?ahead|sees?.*(next|target|following)|symmetric.?pad|(both|two).?side|conv.*pad|copies.*(target|next)
# onset_step: 1
# fix: pad the convolution on the left only (kernel-1 steps)
# mended: loss settles at 1.20, near the true entropy 1.13, and the NLL of the next token after a bare prefix is 1.20 (bare: loss 0.05, bare-prefix NLL 3.50, worse than uniform)
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)

V, T, BATCH, STEPS, D, HEADS, DEPTH, K = 32, 48, 24, 350, 64, 4, 2, 3

# a second-order source: four likely successors for each (group of previous, current)
gen = torch.Generator().manual_seed(1)
SUCC = torch.stack([torch.stack([torch.randperm(V, generator=gen)[:4] for _ in range(V)]) for _ in range(4)])
PROBS = torch.tensor([0.55, 0.25, 0.12, 0.08])


def sample_text(n, length):
    out = torch.zeros(n, length, dtype=torch.long)
    out[:, :2] = torch.randint(0, V, (n, 2))
    for t in range(2, length):
        pick = torch.multinomial(PROBS, n, replacement=True)
        out[:, t] = SUCC[out[:, t - 2] % 4, out[:, t - 1], pick]
    return out


class ShortConv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Conv1d(d, d, K, groups=d)

    def forward(self, x):
        pad = (K - 1, 0) if MENDED else (K // 2, K // 2)
        return self.w(F.pad(x.transpose(1, 2), pad)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.conv = ShortConv(D)
        self.qkv = nn.Linear(D, 3 * D)
        self.proj = nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, _ = x.shape
        h = self.n1(x)
        h = h + self.conv(h)
        q, k, v = self.qkv(h).view(b, t, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.ff(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


train = sample_text(2000, T + 1)
valid = sample_text(200, T + 1)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS, pct_start=0.1)


@torch.no_grad()
def validate():
    model.eval()
    lo = model(valid[:, :-1])
    loss = F.cross_entropy(lo.reshape(-1, V), valid[:, 1:].reshape(-1)).item()
    # how plausible is what the model writes: log-likelihood of its next token under the source, bare prefix
    nll = []
    for n in (12, 20, 28, 36, 44):
        logp = model(valid[:, :n])[:, -1].log_softmax(-1)
        nll.append(F.nll_loss(logp, valid[:, n]).item())
    model.train()
    return loss, sum(nll) / len(nll)


for step in range(1, STEPS + 1):
    ids = train[torch.randint(0, train.size(0), (BATCH,))]
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 25 == 0 or step == 1:
        print(f"step {step:4d}  loss {loss.item():.4f}")

v, p = validate()
ent = -(PROBS * PROBS.log()).sum().item()
print(f"final train {loss.item():.4f}  valid {v:.4f}  prefix-only nll {p:.4f}  (source entropy {ent:.3f})")
