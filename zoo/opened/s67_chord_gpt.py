# expect: sick
# symptom: the training loss keeps falling far below the entropy of the music, while the continuation of a given start gets worse and worse
# axis: model
# cause: the attention has no effective causal mask (the fill never matches an entry), so each position sees the token that it must predict
# says: causal|look.?ahead|future|leak|(attention|triangular).{0,30}mask|mask.{0,30}(attention|wrong|invert|missing|triangular)|sees? (the )?(target|answer|next)
# onset_step: 1
# fix: mask the future positions (tril) in the attention
# mended: fills with -inf where the lower triangular mask is zero
import os

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(77)
CHORDS, LEN, DIM = 24, 32, 48
g = torch.Generator().manual_seed(4)
# each chord goes on to one of three others, depending on the last two
nxt = torch.randint(CHORDS, (CHORDS, CHORDS, 3), generator=g)


def songs(n, gen):
    s = torch.randint(CHORDS, (n, LEN + 1), generator=gen)
    for t in range(2, LEN + 1):
        pick = torch.multinomial(torch.tensor([0.6, 0.25, 0.15]), n, replacement=True, generator=gen)
        s[:, t] = nxt[s[:, t - 1] % 6, s[:, t - 2] % 3, pick]
    return s


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.kqv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM)
        self.register_buffer("tril", torch.tril(torch.ones(LEN, LEN)))

    def forward(self, x):
        T = x.size(1)
        k, q, v = self.kqv(x).chunk(3, -1)
        w = q @ k.transpose(1, 2) * DIM**-0.5
        if os.environ.get("MENDED") == "1":
            w = w.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        else:
            w = w.masked_fill(self.tril[:T, :T] == float("-inf"), 0.0)
        return self.out(w.softmax(-1) @ v)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.na, self.nf = SelfAttention(), nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.f = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.a(self.na(x))
        return x + self.f(self.nf(x))


class ChordGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(CHORDS, DIM), nn.Parameter(torch.randn(LEN, DIM) * 0.1)
        self.layers = nn.Sequential(Layer(), Layer(), Layer())
        self.n, self.h = nn.LayerNorm(DIM), nn.Linear(DIM, CHORDS)

    def forward(self, s):
        return self.h(self.n(self.layers(self.e(s) + self.p[: s.size(1)])))


@torch.no_grad()
def continuation_accuracy(model, s):
    """How often the most probable chord after a start is the most frequent one of the true table."""
    good = 0
    for t in range(8, LEN):
        guess = model(s[:, :t])[:, -1].argmax(-1)
        good += (guess == nxt[s[:, t - 1] % 6, s[:, t - 2] % 3, 0]).float().mean().item()
    return good / (LEN - 8)


library, held = songs(4000, g), songs(100, g)
model = ChordGPT()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
for step in range(400):
    batch = library[torch.randint(len(library), (32,))]
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 399:
        print(f"step {step} loss {loss.item():.4f} continuation {continuation_accuracy(model, held):.3f}")
