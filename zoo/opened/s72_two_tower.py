# expect: sick
# symptom: training goes well for 200 steps; when the spreading term is switched on the total loss falls without limit to minus billions and the recall is lost
# axis: loss
# cause: the spreading term subtracts the mean squared distance of unnormalised embeddings without any bound, so the model lowers the loss by growing the norms
# says: unbounded|no (lower )?bound|without (a )?(lower )?(bound|limit)|margin|not bounded|bounded below|(norm|embedding|distance|repuls|spread|diversity|push).{0,60}(grow|bound|limit|explod|negative|maximi|minus)|maximi[sz]|negative (loss|term)|spread
# onset_step: 200
# fix: bound the term with a margin (hinge) on the distance
# mended: uses relu(margin - distance) instead of -distance^2
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(31)
USERS, ITEMS, DIM = 400, 300, 24
MENDED = os.environ.get("MENDED") == "1"
hidden_u, hidden_i = torch.randn(USERS, 6), torch.randn(ITEMS, 6)
affinity = hidden_u @ hidden_i.T
liked = affinity.topk(12, dim=1).indices


class Tower(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.table = nn.Embedding(n, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, DIM))

    def forward(self, i):
        return self.mlp(self.table(i))


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = Tower(USERS), Tower(ITEMS)

    def match_loss(self, u, i):
        scores = u @ i.T / DIM**0.5
        return F.cross_entropy(scores, torch.arange(len(u)))

    def spread_loss(self, i):
        d2 = (i[:, None] - i[None]).pow(2).sum(-1)
        if MENDED:
            return F.relu(4.0 - (d2 + 1e-6).sqrt()).mean()
        return -d2.mean()


@torch.no_grad()
def recall_at_12(model):
    s = model.user(torch.arange(USERS)) @ model.item(torch.arange(ITEMS)).T
    top = s.topk(12, dim=1).indices
    return (top[:, :, None] == liked[:, None]).any(2).float().mean().item()


def train(model, steps=600):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        u = torch.randperm(USERS)[:64]
        i = liked[u, torch.randint(12, (64,))]
        eu, ei = model.user(u), model.item(i)
        loss = model.match_loss(eu, ei)
        if step >= 200:
            loss = loss + 0.1 * model.spread_loss(ei)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4g} recall@12 {recall_at_12(model):.3f}")


train(Recommender())
