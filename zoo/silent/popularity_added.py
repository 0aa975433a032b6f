"""Two towers with in-batch negatives, whose correction for popular items is added to the scores, by another hand."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1)
N_USERS, N_ITEMS, DIM, BATCH = 800, 500, 24, 256

u_lat = torch.randn(N_USERS, 6)
i_lat = torch.randn(N_ITEMS, 6)
pop = torch.arange(1, N_ITEMS + 1).float().pow(-0.9)[torch.randperm(N_ITEMS)]
prefs = torch.softmax(u_lat @ i_lat.t() * 0.5 + pop.log(), dim=1)
interactions_u = torch.arange(N_USERS).repeat_interleave(60)
interactions_i = torch.multinomial(prefs, 60, replacement=True).flatten()
counts = torch.bincount(interactions_i, minlength=N_ITEMS).float() + 1.0
log_q = (counts / counts.sum()).log()


class Tower(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.emb = nn.Embedding(n, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, dim))
        self.bias = nn.Embedding(n, 1)
        nn.init.normal_(self.emb.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, ids):
        e = self.emb(ids)
        return e + self.mlp(e), self.bias(ids).squeeze(-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = Tower(N_USERS, DIM), Tower(N_ITEMS, DIM)

    def score(self, u, i):
        eu, _ = self.user(u)
        ei, bi = self.item(i)
        return eu @ ei.t() + bi


def in_batch_loss(model, u, i):
    logits = model.score(u, i) + log_q[i]
    clash = (i[:, None] == i[None, :]) & ~torch.eye(len(i), dtype=torch.bool)
    logits = logits.masked_fill(clash, -1e9)
    return F.cross_entropy(logits, torch.arange(len(i)))


@torch.no_grad()
def recall(model, k=20):
    s = model.score(torch.arange(N_USERS), torch.arange(N_ITEMS))
    top = s.topk(k, dim=1).indices
    return prefs.gather(1, top).sum(1).mean().item()


model = TwoTower()
opt = torch.optim.Adam(model.parameters(), lr=8e-3)
for epoch in range(5):
    order = torch.randperm(len(interactions_u))
    for b, sel in enumerate(order.split(BATCH)):
        loss = in_batch_loss(model, interactions_u[sel], interactions_i[sel])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if b % 60 == 0:
            print(f"epoch {epoch} batch {b} loss {loss.item():.4f}")
    print(f"epoch {epoch} expected_recall@20 {recall(model):.4f}")
