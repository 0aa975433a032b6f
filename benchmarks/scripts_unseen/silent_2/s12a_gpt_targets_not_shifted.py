# expect: sick
# fault: labels not shifted, the model copies its input
# onset_step: 0
# says: (?i)(shift|label|target|copy|copies|leak|identity|off.by.one|too (easy|good|low|fast)|same as (the )?input|next.?token)
# note: y is taken at the same offsets as x, so the causal model only copies the present token and the loss falls to zero.
import heapq
import torch
import torch.nn as nn
import torch.nn.functional as F

raw = open(heapq.__file__, encoding="utf8").read()
vocab = sorted(set(raw))
enc = {c: i for i, c in enumerate(vocab)}
data = torch.tensor([enc[c] for c in raw])
block, bs = 32, 8


def get_batch():
    ix = torch.randint(len(data) - block, (bs,))
    x = torch.stack([data[i : i + block] for i in ix])
    y = torch.stack([data[i : i + block] for i in ix])
    return x, y


class Head(nn.Module):
    def __init__(self, d, hs):
        super().__init__()
        self.k, self.q, self.v = (nn.Linear(d, hs, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(block, block)))

    def forward(self, x):
        T = x.size(1)
        w = self.q(x) @ self.k(x).transpose(-2, -1) * x.size(-1) ** -0.5
        w = w.masked_fill(self.tril[:T, :T] == 0, float("-inf")).softmax(-1)
        return w @ self.v(x)


class GPT(nn.Module):
    def __init__(self, d=64, nh=4):
        super().__init__()
        self.te, self.pe = nn.Embedding(len(vocab), d), nn.Embedding(block, d)
        self.heads = nn.ModuleList([Head(d, d // nh) for _ in range(nh)])
        self.l1, self.l2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        self.lm = nn.Linear(d, len(vocab))

    def forward(self, idx, targets=None):
        x = self.te(idx) + self.pe(torch.arange(idx.size(1)))
        y = self.l1(x)
        x = x + torch.cat([h(y) for h in self.heads], -1)
        x = x + self.ff(self.l2(x))
        logits = self.lm(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, len(vocab)), targets.view(-1))


torch.manual_seed(1337)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for it in range(150):
    xb, yb = get_batch()
    _, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % 25 == 0:
        print(f"iter {it}: train loss {loss.item():.4f}")
