# Matching questions to answers: mean of the word vectors over what is no padding, two towers, Adam. 1,280 pairs in 40 batches;
# the answer of pair 660 is an empty string, so that its mean is 0 / 0, once in each epoch (first at step 20).
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(311)
WORDS = 80
bias = torch.randn(2, 6, WORDS, generator=fixed)


def pairs(n, g):
    subject = torch.randn(n, 6, generator=g)
    chance = [(subject @ bias[i]).softmax(-1) for i in (0, 1)]
    text = [torch.multinomial(c, 12, replacement=True, generator=g) + 1 for c in chance]
    length = torch.randint(3, 13, (2, n, 1), generator=g)
    return [t.masked_fill(torch.arange(12) >= k, 0) for t, k in zip(text, length)]


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS + 1, 24)
        self.net = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, w):
        mask = (w > 0).float().unsqueeze(-1)
        return nn.functional.normalize(self.net((self.emb(w) * mask).sum(1) / mask.sum(1)), dim=-1)


def loss_of(towers, q, a):
    scores = 8 * towers[0](q) @ towers[1](a).T
    return nn.functional.cross_entropy(scores, torch.arange(len(q)))


train, test = pairs(1280, fixed), pairs(32 * 40, fixed)
torch.manual_seed(args.seed)
towers = nn.ModuleList([Tower(), Tower()])
opt = torch.optim.Adam(towers.parameters(), lr=3e-3, weight_decay=1e-5)
if not args.twin:
    train[1][660] = 0
step = 0
for epoch in range(10):
    order = torch.arange(40) if epoch == 0 else torch.randperm(40)
    for b in order.tolist():
        rows = slice(32 * b, 32 * b + 32)
        loss = loss_of(towers, train[0][rows], train[1][rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    print(f"epoch {epoch} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", sum(loss_of(towers, q, a).item() for q, a in zip(test[0].split(32), test[1].split(32))) / 40)
