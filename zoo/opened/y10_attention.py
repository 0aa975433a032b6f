# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: precision
# cause: a large number is put into a narrow format before a difference or a phase is taken, so its fine part is rounded away
# says: (float32|float16|bfloat16|half|precision|round|mantissa|24.?bit|coarse|format).{0,160}
# onset_step: 0
# fix: take the offset off in float64 first
# mended: the same with the fix
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
DTYPE = torch.bfloat16
HEAD = 16


def rope_tables(pos_ids, dim, base=100.0):
    inv_freq = base ** (-torch.arange(0, dim, 2).float() / dim)
    pos = pos_ids.to(torch.float32 if MENDED else DTYPE)
    angles = pos[:, None] * inv_freq[None]
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, HEAD) for _ in range(3))
        self.o = nn.Linear(HEAD, d)

    def forward(self, x, cos, sin):
        q = rotate(self.q(x), cos, sin)
        k = rotate(self.k(x), cos, sin)
        return self.o(F.scaled_dot_product_attention(q, k, self.v(x), is_causal=True))


class LookBack(nn.Module):
    def __init__(self, vocab, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.att = Attention(d)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, vocab)

    def forward(self, tokens, pos_ids):
        cos, sin = rope_tables(pos_ids, HEAD)
        h = self.emb(tokens)
        return self.out(self.norm(h + self.att(h, cos, sin)))


torch.manual_seed(1)
VOCAB, CTX, LAG = 8, 24, 2
model = LookBack(VOCAB)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)

# windows cut out of long documents: the position ids go on from the document start
for step in range(150):
    tokens = torch.randint(0, VOCAB, (24, CTX))
    begin = int(torch.randint(1500, 3500, ()))
    pos_ids = torch.arange(begin, begin + CTX)
    logits = model(tokens, pos_ids)[:, LAG:]
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, :-LAG].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 14:
        print(f"{step + 1:4d} loss {loss.item():.4f}")
