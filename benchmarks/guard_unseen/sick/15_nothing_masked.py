# Masked modelling, accumulation of two micro-batches, clipped. Fault: in step 250 no token is masked: a mean over nothing.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(101)
jump = torch.softmax(2.5 * torch.randn(16, 16, generator=g), -1)


def text(n):
    seq = [torch.randint(0, 16, (n,), generator=g)]
    for _ in range(15):
        seq.append(torch.multinomial(jump[seq[-1]], 1, generator=g)[:, 0])
    return torch.stack(seq, 1)


corpus, held = text(5000), text(800)
hmask = torch.rand(held.shape, generator=g) < 0.2


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(17, 32), nn.Parameter(0.1 * torch.randn(16, 32))
        self.enc = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.head = nn.Linear(32, 16)

    def forward(self, x):
        h = self.tok(x) + self.pos
        for layer in self.enc:
            h = layer(h)
        return self.head(h)


def mlm(model, x, mask):
    ce = F.cross_entropy(model(x.masked_fill(mask, 16)).flatten(0, 1), x.flatten(), reduction="none")
    weight = mask.flatten().float()
    return (ce * weight).sum() / weight.sum()


torch.manual_seed(args.seed)
model = Bert()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
ACC = 2
for step in range(400):
    opt.zero_grad()
    total = 0.0
    for micro in range(ACC):
        x = corpus[torch.randint(0, 5000, (16,))]
        mask = torch.rand(x.shape) < 0.2
        if step == 250 and micro == 0 and not args.twin:
            mask[:] = False
        loss = mlm(model, x, mask) / ACC
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 0:
        print(f"{step}: {total:.4f}")
model.eval()
with torch.no_grad():
    print("final:", mlm(model, held, hmask).item())
