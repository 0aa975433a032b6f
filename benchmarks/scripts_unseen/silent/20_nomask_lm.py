# EXPECT: sick
# FAULT: no causal mask, attention sees the next token
# ONSET: 1
# SAYS: causal|mask|future|leak
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        self.o = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        split = lambda z: z.view(b, t, self.h, d // self.h).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        att = q @ k.transpose(-2, -1) / math.sqrt(d // self.h)
        att = att.softmax(-1)
        return self.o((att @ v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.att = SelfAttention(d, heads)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.ff(self.n2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab=30, d=64, heads=4, depth=2, max_len=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.randn(max_len, d) * 0.5)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.unembed = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.size(1)]
        for l in self.layers:
            x = l(x)
        return self.unembed(self.norm(x))


torch.manual_seed(13)
text = torch.randint(0, 30, (20000,))  # nothing to learn beyond unigram
text[1::2] = (text[0::2] + 3) % 30  # except every other token
model = LanguageModel()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    off = torch.randint(0, len(text) - 17, (32,))
    x = torch.stack([text[o : o + 16] for o in off])
    y = torch.stack([text[o + 1 : o + 17] for o in off])
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(f"step {step} | loss {loss.item():.3f}")
