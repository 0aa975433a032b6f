# expect: sick
# symptom: loss drops at step 620, when the context grows, below the entropy of the text (ln 4 a token) towards 0
# axis: model
# cause: the cached causal mask is only used up to length 12; the longer sequences attend to the future tokens, without a mask
# says: (?i)causal|future|look.?ahead|(without|\bno|missing|lost|dropped).{0,20}\bmask|mask.{0,40}(missing|not applied|skipped|lost|too short)
# onset_step: 620
# fix: build the causal mask for the actual length
# mended: MENDED=1 python s47_growing_context.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(54)
V, D, LONG = 16, 24, 18
CACHED = LONG if os.environ.get("MENDED") == "1" else 12


def text(n, t, seed):
    g = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, V, (n,), generator=g)]
    for _ in range(t):
        ids.append((4 * ids[-1] + torch.randint(0, 4, (n,), generator=g)) % V)
    return TensorDataset(torch.stack(ids, 1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.qkv, self.o = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ff = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 48), nn.GELU(), nn.Linear(48, D))
        self.register_buffer("mask", torch.ones(CACHED, CACHED).triu(1).bool())

    def forward(self, x):
        t = x.shape[1]
        q, k, v = self.qkv(self.ln(x)).chunk(3, -1)
        s = q @ k.transpose(1, 2) / D**0.5
        if t <= len(self.mask):
            s = s.masked_fill(self.mask[:t, :t], float("-inf"))
        x = x + self.o(s.softmax(-1) @ v)
        return x + self.ff(x)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(LONG, D)
        self.body, self.head = nn.Sequential(Layer()), nn.Linear(D, V)

    def forward(self, ids):
        return self.head(self.body(self.tok(ids) + self.pos.weight[: ids.shape[1]]))


lm, step = LM(), 0
opt = torch.optim.AdamW(lm.parameters(), lr=5e-3)
for t, n in ((12, 16 * 619), (LONG, 16 * 380)):
    for (ids,) in DataLoader(text(n, t, seed=t), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(lm(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 40 == 0:
            print(f"step {step} length {t} loss {loss.item():.4f}")
