# expect: sick
# symptom: the loss falls normally and turns to NaN for good at about step 85, without any spike before
# axis: model
# cause: a review without any word gives a row in which every key is masked with -inf, so the softmax of the attention is 0/0 = NaN
# says: (fully|all|entirely|completely|every|whole|no).{0,40}(mask|pad|-inf|key|valid|visible)|(empty|blank|zero.?length).{0,40}(sequence|row|review|sample|text|mask|input)|mask.{0,60}(softmax|row|nan|-inf|everything|all)|softmax.{0,50}(-inf|mask)
# onset_step: 84
# fix: mask with a large finite number instead of -inf (or drop the empty reviews)
# mended: masks with -1e4 instead of -inf
import math
import os

import torch
import torch.nn as nn

torch.manual_seed(21)
VOCAB, MAXLEN, BATCH, STEPS = 120, 18, 24, 240
mood = torch.randn(VOCAB)
mood[0] = 0.0


def load_reviews():
    tokens = torch.randint(1, VOCAB, (BATCH * STEPS, MAXLEN))
    lengths = torch.randint(4, MAXLEN + 1, (BATCH * STEPS,))
    lengths[84 * BATCH + 7] = 0  # someone left stars only
    lengths[171 * BATCH + 3] = 0
    tokens[torch.arange(MAXLEN)[None] >= lengths[:, None]] = 0
    return tokens, (mood[tokens].sum(1) > 0).long()


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.dk = h, d // h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.h, self.dk).transpose(1, 2) for f in (self.q, self.k, self.v))
        score = q @ k.transpose(-2, -1) / math.sqrt(self.dk)
        fill = -1e4 if os.environ.get("MENDED") == "1" else float("-inf")
        score = score.masked_fill(pad[:, None, None, :], fill)
        return self.o((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Encoder(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.att = nn.ModuleList(Attention(d, 4) for _ in range(2))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)) for _ in range(2))
        self.n1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.n2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.cls = nn.Linear(d, 2)

    def forward(self, tok):
        pad = tok == 0
        x = self.emb(tok)
        for att, ff, n1, n2 in zip(self.att, self.ff, self.n1, self.n2):
            x = x + att(n1(x), pad)
            x = x + ff(n2(x))
        w = (~pad).float().unsqueeze(-1)
        return self.cls((x * w).sum(1) / w.sum(1).clamp(min=1))


def main():
    tok, lab = load_reviews()
    model = Encoder()
    opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    lossf = nn.CrossEntropyLoss()
    running = 0.0
    for s in range(STEPS):
        sl = slice(s * BATCH, (s + 1) * BATCH)
        out = model(tok[sl])
        loss = lossf(out, lab[sl])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running = loss.item() if s == 0 else 0.9 * running + 0.1 * loss.item()
        if s % 20 == 0 or s == STEPS - 1:
            print(f"{s:4d}  loss {loss.item():.4f}  smoothed {running:.4f}")


if __name__ == "__main__":
    main()
