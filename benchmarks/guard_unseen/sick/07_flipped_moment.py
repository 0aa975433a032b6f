# GRU tagger, Adam. Fault: before step 380 the first moments of two tensors get a wrong exponent (x512).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(19)


def tagged(n):
    w = torch.randint(0, 12, (n, 14), generator=g)
    tag = (w + torch.roll(w, 1, 1) * 2 + torch.roll(w, 2, 1)) % 5
    tag = torch.where(torch.rand(n, 14, generator=g) < 0.1, torch.randint(0, 5, (n, 14), generator=g), tag)
    return w, tag


words, tags = tagged(6000)
hw, ht = tagged(800)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 16)
        self.rnn = nn.GRU(16, 48, batch_first=True)
        self.out = nn.Linear(48, 5)

    def forward(self, w):
        return self.out(self.rnn(self.emb(w))[0])


def loss_of(model, w, t):
    return nn.functional.cross_entropy(model(w)[:, 2:].reshape(-1, 5), t[:, 2:].reshape(-1))


torch.manual_seed(args.seed)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(500):
    if step == 380 and not args.twin:
        for p in (model.rnn.weight_hh_l0, model.out.weight):
            opt.state[p]["exp_avg"].mul_(2.0**9)
    i = torch.randint(0, 6000, (32,))
    loss = loss_of(model, words[i], tags[i])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 49:
        print(f"{step + 1}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, hw, ht).item())
