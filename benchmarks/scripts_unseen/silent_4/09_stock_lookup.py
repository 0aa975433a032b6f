# expect: sick
# cause: The attention softmax runs over the head axis of the [batch, heads, query, key] scores instead of over the keys; with one head all weights are 1 and attention cannot select.
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(41)
N_ARTICLES, N_SHELVES, N_RECORDS = 24, 24, 10


def stock_lists(n):
    """rows of (article, shelf) records in free order, then a question about one of the articles"""
    articles = torch.rand(n, N_ARTICLES).argsort(1)[:, :N_RECORDS]
    shelves = torch.randint(0, N_SHELVES, (n, N_RECORDS))
    ask = torch.randint(0, N_RECORDS, (n, 1))
    query = articles.gather(1, ask)
    a = torch.cat([articles, query], 1)
    s = torch.cat([shelves, torch.full((n, 1), N_SHELVES)], 1)
    return a, s, shelves.gather(1, ask).squeeze(1)


class Attention(nn.Module):
    def __init__(self, dim, heads=1):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        weights = F.softmax(scores, dim=1)
        y = torch.einsum("bhqk,bhkd->bhqd", weights, v)
        return self.o(y.transpose(1, 2).flatten(2))


class Lookup(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.article = nn.Embedding(N_ARTICLES, dim)
        self.shelf = nn.Embedding(N_SHELVES + 1, dim)
        self.attn = nn.ModuleList([Attention(dim), Attention(dim)])
        self.ff = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, dim)) for _ in range(2)]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(3)])
        self.out = nn.Linear(dim, N_SHELVES)

    def forward(self, a, s):
        x = self.article(a) + self.shelf(s)
        for attn, ff, norm in zip(self.attn, self.ff, self.norms):
            x = x + attn(norm(x))
            x = x + ff(x)
        return self.out(self.norms[2](x[:, -1]))


model = Lookup()
optim = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
for step in range(450):
    a, s, target = stock_lists(96)
    loss = F.cross_entropy(model(a, s), target)
    optim.zero_grad()
    loss.backward()
    optim.step()
    if step % 50 == 49:
        a, s, target = stock_lists(400)
        with torch.no_grad():
            acc = (model(a, s).argmax(1) == target).float().mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} fresh lists right {acc:.3f}")
