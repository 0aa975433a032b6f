# Transformer encoder with a padding mask, NAdam. Fault: from step 400 on the loader pads with id 0 and writes id 0 for every
# word: all positions are masked, in every batch until the end.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(18)


def sentences(n, g=None):
    length = torch.randint(4, 13, (n, 1), generator=g)
    word = torch.randint(1, 20, (n, 12), generator=g)
    word = torch.where(torch.arange(12) < length, word, 0)
    label = ((word % 3 == 1).sum(1) > (word % 3 == 2).sum(1)).long()
    wrong = torch.rand(n, generator=g) < 0.1
    return word, torch.where(wrong, 1 - label, label)


class Encoder(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.emb, self.pos = nn.Embedding(20, d), nn.Parameter(torch.randn(12, d) * 0.1)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 48), nn.ReLU(), nn.Linear(48, d))
        self.head = nn.Linear(d, 2)

    def forward(self, word):
        pad = word == 0
        x = self.emb(word) + self.pos
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        score = (q @ k.transpose(1, 2) / 5).masked_fill(pad[:, None, :], float("-inf"))
        x = x + self.proj(score.softmax(-1) @ v)
        x = x + self.mlp(self.n2(x))
        keep = (~pad).float()[..., None]
        return self.head((x * keep).sum(1) / keep.sum(1))


test = sentences(2000, fixed)
torch.manual_seed(args.seed)
model = Encoder()
opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
for step in range(600):
    word, label = sentences(48)
    if step >= 400 and not args.twin:
        word = torch.zeros_like(word)
    loss = nn.functional.cross_entropy(model(word), label)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0]), test[1]).item())
