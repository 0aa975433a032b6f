# expect: sick
# cause: A guard against bad batches skips the update when the gradient norm is above 0.5, which nearly every batch exceeds, so almost no update is made.
import torch
import torch.nn as nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

torch.manual_seed(44)
N_USERS, N_FILMS, DIM = 120, 90, 12
true_u, true_f = torch.randn(N_USERS, 6), torch.randn(N_FILMS, 6)
bias_f = 0.8 * torch.randn(N_FILMS)


def ratings(n):
    u, f = torch.randint(0, N_USERS, (n,)), torch.randint(0, N_FILMS, (n,))
    score = (true_u[u] * true_f[f]).sum(1) + bias_f[f]
    return u, f, (torch.rand(n) < torch.sigmoid(1.5 * score)).float()


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(N_USERS, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.film = nn.Sequential(nn.Embedding(N_FILMS, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.film_bias = nn.Embedding(N_FILMS, 1)

    def forward(self, u, f):
        return (self.user(u) * self.film(f)).sum(-1) + 0.1 * self.film_bias(f).squeeze(-1)


train, test = ratings(40000), ratings(4000)
model = TwoTower()
optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
MAX_NORM = 0.5

for it in range(1400):
    rows = torch.randint(0, 40000, (128,))
    u, f, y = (t[rows] for t in train)
    optimizer.zero_grad()
    loss = bce(model(u, f), y)
    loss.backward()
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
    if torch.isfinite(norm) and norm < MAX_NORM:
        optimizer.step()
    if it % 100 == 99:
        with torch.no_grad():
            logit = model(test[0], test[1])
        print(
            f"iteration {it + 1} loss {loss.item():.4f} test loss {bce(logit, test[2]):.4f} acc {((logit > 0) == (test[2] > 0.5)).float().mean():.3f}"
        )
